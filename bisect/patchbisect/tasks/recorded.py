"""Tasks that look at what was recorded: runs, comparison, reports, pictures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks.face import console, emit, say, task, writing

if TYPE_CHECKING:
    from patchbisect.records import Record, Store, Wanted
    from patchbisect.report.subject import Subject
    from patchbisect.wire import Json

# Rows of a table where nobody said how many: a screen full, and Rich stays fast.
_SHOWN = 50


_RUN = "a run's id, the beginning of it, its name, 'last', or 'demo' (the demo's last)"
_JSON = "print one JSON document"


def _store() -> Store:
    from patchbisect.config import load_project
    from patchbisect.records import Store

    return Store.of(load_project())


@task(
    help={
        "outcome": "only ready, kv-allocated, oom, crash, hang or void",
        "point": "only runs of this point (HEAD, clean+7 …), or with this patch (0003 or its slug)",
        "box": "only on this box",
        "profile": "only with this profile",
        "tag": "only with this name",
        "since": "only newer than this: 30m, 6h, 3d, 2w, or 2026-11-29T18:00",
        "last": "only the newest N (default: 50 in a table, all of them with --json)",
        "demo": "the demo's runs instead of one's own",
        "json": _JSON,
    }
)
def runs(
    ctx: invoke.Context,
    outcome: str = "",
    point: str = "",
    box: str = "",
    profile: str = "",
    tag: str = "",
    since: str = "",
    last: int = 0,
    demo: bool = False,
    json: bool = False,
) -> None:
    """List the recorded runs, newest last. The demo's runs are kept apart.

    Example: invoke runs --outcome oom --since 3d
    """
    from patchbisect.errors import UsageError
    from patchbisect.records import moment, wanted

    store = _store().of_demo if demo else _store()
    filters = wanted(
        outcome=outcome, point=point, box=box, profile=profile, tag=tag, since=moment(since) if since else None
    )
    if last < 0:
        raise UsageError(f"--last: there are no {last} runs", remedy="like --last 20")
    shown = last or (0 if json else _SHOWN)
    newest, matching = _newest(store, filters, most=shown)
    rows = [store.row(document) for document in reversed(newest)]
    if json:
        emit({"runs": rows, "matching": matching})
        return
    from patchbisect.report.text import runs_table

    if not rows:
        _nothing_listed(store, filters)
        return
    console().print(runs_table(rows))
    if len(rows) < matching:
        say(f"{matching - len(rows)} earlier runs not shown: --last {matching}")


def _newest(store: Store, filters: Wanted, *, most: int) -> tuple[list[Json], int]:
    """The newest ``most`` records that match (0: all of them), newest first; and how many match.

    Where nothing is filtered the others are not even read.
    """
    from itertools import islice

    if filters.everything and most:
        return list(islice(store.documents(fault=say, newest_first=True), most)), len(store.ids())
    matching = [each for each in store.documents(fault=say, newest_first=True) if filters.matches(each)]
    return matching[: most or None], len(matching)


def _nothing_listed(store: Store, filters: Wanted) -> None:
    from patchbisect.records import unmatched

    if documents := list(store.documents()):
        message, remedy = unmatched(filters, documents)
        say(f"{message}\n  {remedy}")
        return
    demo = store.of_demo.ids() if store.demo else []
    shown = f"; the demo's {len(demo)} are shown by invoke runs --demo" if demo else ""
    say(f"no run yet: invoke launch makes one{shown}")


@task(
    help={
        "run": _RUN,
        "log": "print the server's log and nothing else",
        "json": _JSON,
    }
)
def show(ctx: invoke.Context, run: str, log: bool = False, json: bool = False) -> None:
    """Show one recorded run: point, code, verdict, facts, and how to repeat it by hand.

    Example: invoke show last
    """
    store = _store()
    if log:
        for chunk in store.log_chunks(run):
            sys.stdout.buffer.write(chunk)
        return
    record = store.load(run)
    document = record.model_dump(mode="json")
    found = store.dossier(record.id)
    if json:
        emit({**document, "dossier": found} if found else document)
        return
    from patchbisect.report.text import record_page

    console().print(record_page(document, found))


@task(help={"run": _RUN, "name": "the name to give", "remove": "take the name away instead", "json": _JSON})
def tag(ctx: invoke.Context, run: str, name: str, remove: bool = False, json: bool = False) -> None:
    """Give a run a name: it can be called by it everywhere, and is never collected.

    Example: invoke tag last baseline
    """
    store = _store()
    record = store.untag(run, name) if remove else store.tag(run, name)
    if json:
        emit({"id": record.id, "tags": list(record.tags)})
        return
    say(f"{record.id} is named {', '.join(record.tags) or 'nothing'}")


@task(
    help={
        "keep": "how many of the newest runs stay whatever their age",
        "older-than": "remove only runs older than this: 30d, 6h, or a date",
        "dry-run": "say what would be removed, remove nothing",
        "json": _JSON,
    }
)
def gc(
    ctx: invoke.Context, keep: int = 100, older_than: str = "30d", dry_run: bool = False, json: bool = False
) -> None:
    """Remove old runs. Named runs, and runs that a bisection rests on, always stay.

    Example: invoke gc --older-than 14d --dry-run
    """
    from patchbisect.config import load_project
    from patchbisect.records import Store, collectable, moment
    from patchbisect.report.bisections import held_runs

    project = load_project()
    store = Store.of(project)
    documents = list(store.documents(fault=say))
    doomed = collectable(documents, keep=keep, before=moment(older_than), held=held_runs(project.bisections))
    freed = sum(store.size(identifier) for identifier in doomed)
    drafts = store.dead_drafts()
    if not dry_run:
        for identifier in doomed:
            store.remove(identifier)
        store.remove_drafts(drafts)
    if json:
        emit({"removed": [] if dry_run else doomed, "would_remove": doomed if dry_run else [], "bytes": freed})
        return
    left = len(documents) - len(doomed)
    say(f"{'would remove' if dry_run else 'removed'} {len(doomed)} runs ({freed / 1e6:.1f} MB), {left} stay")


@task(help={"run": _RUN, "out": "the file to write (default: RUN.zip here)", "json": _JSON})
def export_run(ctx: invoke.Context, run: str, out: str = "", json: bool = False) -> None:
    """Make one file of a run to attach to an issue, without secrets, host names, addresses and users.

    Example: invoke export-run last --out run.zip
    """
    from patchbisect.config import load_project
    from patchbisect.records import Store
    from patchbisect.report.bundle import exported, scrubber_for

    project = load_project()
    store = Store.of(project)
    data = exported(store, run, scrubber=scrubber_for(project.settings))
    with writing(out or f"{store.resolve(run)}.zip") as path:
        path.write_bytes(data)
    if json:
        emit({"id": store.resolve(run), "file": str(path), "bytes": len(data)})
        return
    say(f"{path}: {len(data) / 1000:.1f} kB. Look into it before you publish it.")


@task(help={"file": "a file that export-run made", "as": "a name for the run here", "json": _JSON})
def import_run(ctx: invoke.Context, file: str, as_: str = "", json: bool = False) -> None:
    """Keep a run that somebody exported among your own, to show and compare it. It never counts as a launch here.

    Example: invoke import-run run.zip --as their-baseline
    """
    from pathlib import Path

    from patchbisect.report.bundle import imported

    _kept(imported(_store(), Path(file), name=as_), json=json)


@task(help={"log": "a log file (.gz and .zst too), or - for standard input", "as": "a name for the run", "json": _JSON})
def adopt(ctx: invoke.Context, log: str, as_: str = "", json: bool = False) -> None:
    """Keep the log of a server that was started by hand as a run, to show and compare it.

    Example: invoke adopt server.log --as by-hand
    """
    from patchbisect.config import load_project
    from patchbisect.errors import UsageError
    from patchbisect.records import Store
    from patchbisect.report.adopting import adopted

    if not as_:
        raise UsageError("an adopted run needs a name", remedy=f"invoke adopt {log} --as NAME")
    project = load_project()
    record = adopted(Store.of(project), _whole(log), name=as_, secrets=project.settings.secrets)
    _kept(record, json=json)


def _kept(record: Record, *, json: bool) -> None:
    if json:
        emit({"id": record.id, "tags": list(record.tags), "outcome": record.verdict["outcome"]})
        return
    from patchbisect.report.text import outcome

    say(f"{record.id} {' '.join(record.tags)}: {outcome(record.verdict)}")


def _whole(name: str) -> bytes:
    from patchbisect.tasks.logs import chunks

    return b"".join(chunks(name))


@task(help={"a": "a run or a log file", "b": "another", "json": _JSON})
def diff_runs(ctx: invoke.Context, a: str, b: str, json: bool = False) -> None:
    """Compare two runs, or logs: what differs in cause, then in effect, then what that means.

    Example: invoke diff-runs baseline last
    """
    from patchbisect.report.compare import compare
    from patchbisect.report.sources import source

    store = _store()
    comparison = compare(source(store, a, load=_whole), source(store, b, load=_whole))
    if json:
        emit(comparison)
        return
    from patchbisect.report.text import comparison_page

    console().print(comparison_page(comparison))


@task(
    help={
        "of": "a bisection or a run: its id, the beginning of it, a run's name, 'last' (begun last) or 'demo'",
        "html": "write one self-contained page to this file",
        "markdown": "print Markdown for an issue or a pull request",
        "json": "print the JSON document it is made from",
    }
)
def report(ctx: invoke.Context, of: str = "last", html: str = "", markdown: bool = False, json: bool = False) -> None:
    """Report a bisection or a run: the answer and its proof first, then everything they rest on.

    Example: invoke report --of last --html report.html
    """
    subject = _subject(of)
    if json:
        emit(subject.document)
    elif markdown:
        from patchbisect.report import markdown as as_markdown

        sys.stdout.write(as_markdown.rendered(subject.page))
    elif not html:
        console().print(subject.text)
    if html:
        from patchbisect.report import html as as_html

        text = as_html.rendered(subject.page)
        with writing(html) as path:
            size = path.write_text(text, encoding="utf-8")
        say(f"{html}: {size / 1000:.0f} kB")


def _subject(name: str) -> Subject:
    from patchbisect.config import load_project
    from patchbisect.report.subject import subject

    found = subject(load_project(), name)
    if found.note:
        say(f"note: {found.note}")
    return found


@task(
    help={
        "run": "a run or a log file; repeat it to lay several over each other",
        "o": "the file to write, .png or .svg",
        "json": _JSON,
    },
    iterable=["run"],
)
def plot(ctx: invoke.Context, run: list[str] | None = None, o: str = "plot.png", json: bool = False) -> None:
    """Draw where the memory of each rank went, and GPU memory over time with the stages marked.

    Example: invoke plot --run baseline --run last -o memory.png
    """
    from patchbisect.report.plotting import plot as draw
    from patchbisect.report.sources import source

    store = _store()
    sources = [source(store, name, load=_whole) for name in run or ["last"]]
    with writing(o) as path:
        draw(sources, path)
    if json:
        emit({"file": o, "runs": [each.name for each in sources]})
        return
    say(f"{o}: {', '.join(each.name for each in sources)}")


@task(
    help={
        "plain": "lines instead of a screen",
        "once": "print the screen as it is now, and do not wait for more",
        "json": "print one JSON document: what runs now",
    }
)
def watch(ctx: invoke.Context, plain: bool = False, once: bool = False, json: bool = False) -> None:
    """Follow a launch or a bisection that runs in another shell. Ctrl-C leaves it alone.

    Example: invoke watch
    """
    import time

    from patchbisect.config import load_project
    from patchbisect.report import live
    from patchbisect.report.board import drawn

    running = live.running(load_project().state)
    if json:
        emit({"running": [live.now(path) for path in running]})
        return
    if not running:
        say("nothing runs: invoke runs shows what ran")
        return
    if once:
        for path in running:
            console().print(drawn(live.board_of(path), clock=time.time()))
        return
    try:
        with live.shown(plainly=plain) as show:
            for message in live.followed(running[-1]):
                show(message)
    except KeyboardInterrupt:
        what = live.now(running[-1])["what"]
        raise invoke.Exit(f"stopped watching; this goes on: {what}", code=130) from None
