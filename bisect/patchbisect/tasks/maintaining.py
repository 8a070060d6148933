"""The queue edited, checked, moved to another pin, reviewed, taken from others and given to them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import invoke

from patchbisect.tasks.face import console, emit, negative, say, task
from patchbisect.tasks.lab import mirror_of

if TYPE_CHECKING:
    from patchbisect.maintain.importing import Imported
    from patchbisect.maintain.lint import Finding
    from patchbisect.maintain.rebasing import Moved, Stopped
    from patchbisect.maintain.shop import Outcome, Shop

_JSON = "print one JSON document"


def _shop() -> Shop:
    from patchbisect.config import load_project
    from patchbisect.maintain.shop import Shop

    project = load_project()
    return Shop(project, mirror=mirror_of(project))


# Lint


@task(
    help={
        "only": "numbers of patches to look at, as 3,5",
        "at": "a revision of this repository instead of the files on disk",
        "rules": "list the rules instead",
        "json": _JSON,
    }
)
def lint(ctx: invoke.Context, only: str = "", at: str = "", rules: bool = False, json: bool = False) -> None:
    """Does each patch stand where it says, compile, and, if it only looks, change nothing? No launch is needed.

    Exit 1 where something is wrong. `Waive: RULE reason` in a patch allows what a rule forbids.

    Example: invoke lint
    """
    from patchbisect.config import load_project
    from patchbisect.maintain.lint import RULES
    from patchbisect.maintain.reviewing import files_at, lint_files

    if rules:
        _tell_rules(RULES, json=json)
        return
    project = load_project()
    files = files_at(project, at)
    found = lint_files(files, mirror=mirror_of(project), only=_numbers(only))
    wrong = [one for one in found if one.counts]
    if json:
        emit({"findings": [_finding(one) for one in found], "wrong": len(wrong)})
    else:
        for one in found:
            _show(one)
        patches = sum(name.endswith(".patch") for name in files)
        waived = sum(1 for one in found if one.waived)
        console().print(
            f"{patches} patches: {len(wrong)} wrong, {waived} waived, {len(found) - len(wrong) - waived} warnings",
            markup=False,
        )
    if wrong:
        raise negative()


def _tell_rules(rules: Any, *, json: bool) -> None:
    if json:
        emit(dict(rules))
        return
    for name, text in rules.items():
        console().print(f"{name:14} {text}", markup=False)


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "patch": found.patch,
        "line": found.line,
        "rule": found.rule,
        "severity": str(found.severity),
        "why": found.why,
        "remedy": found.remedy,
        "path": found.path,
        "path_line": found.path_line,
        "waived": found.waived,
    }


def _show(found: Finding) -> None:
    mark = "waived" if found.waived else str(found.severity)
    console().print(f"{mark}: {found}", markup=False)
    extra = f"because {found.waived}" if found.waived else found.remedy
    if extra:
        console().print(f"  {extra}", markup=False)


# Edits


@task(
    help={
        "slug": "name of the patch's file, after its number",
        "kind": "instrumentation, fix, experiment or backport",
        "subject": "first line of its message; default: made of the slug",
        "after": "the number of the patch that it goes behind (0: before all); default: at the end",
        "json": _JSON,
    }
)
def new_patch(
    ctx: invoke.Context,
    slug: str,
    kind: str = "instrumentation",
    subject: str = "",
    after: int = -1,
    json: bool = False,
) -> None:
    """Open a work tree of SGLang with the queue applied; what you change there becomes a new patch at `refresh`.

    Example: invoke new-patch log-pool-size --kind instrumentation
    """
    import re

    from patchbisect.errors import UsageError
    from patchbisect.maintain.bench import Bench, Opened
    from patchbisect.patchqueue import KINDS, nearest

    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}{nearest(kind, KINDS)}", remedy=f"One of {', '.join(KINDS)}.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug):
        raise UsageError(f"{slug!r} is no slug", remedy="Letters, digits, - . _")
    shop = _shop()
    author, date = _me(shop.project.root)
    title = subject or slug.replace("-", " ").capitalize()
    opened = Opened(parent="", after=after, slug=slug, kind=kind, subject=title, author=author, date=date)
    _opened(Bench(shop).open_new(opened), json=json)


@task(help={"number": "the patch to edit", "json": _JSON})
def edit(ctx: invoke.Context, number: str, json: bool = False) -> None:
    """Open a patch as a work tree of SGLang; change files there, then `invoke refresh`.

    Commits that you make on top become patches of their own: so a patch is split.

    Example: invoke edit 3
    """
    from patchbisect.maintain.bench import Bench

    _opened(Bench(_shop()).open(_number(number)), json=json)


def _opened(tree: Path, *, json: bool) -> None:
    if json:
        emit({"tree": str(tree)})
        return
    console().print(str(tree), markup=False, soft_wrap=True)
    say("Change files there, then: invoke refresh   (or: invoke abandon)")


@task(help={"json": _JSON})
def refresh(ctx: invoke.Context, json: bool = False) -> None:
    """Take the open edit into the queue; without one, make every patch exact again.

    Example: invoke refresh
    """
    from patchbisect.maintain.bench import Bench

    _done(Bench(_shop()).refresh(), json=json)


@task(help={"json": _JSON})
def abandon(ctx: invoke.Context, json: bool = False) -> None:
    """Close the open edit without taking it in. What was done there is kept under a ref of the mirror.

    Example: invoke abandon
    """
    from patchbisect.maintain.bench import Bench

    shop = _shop()
    ref = Bench(shop).abandon()
    if json:
        emit({"kept": ref, "mirror": str(shop.mirror.path)})
    else:
        say(f"closed; kept as {ref} in {shop.mirror.path}")


@task(help={"number": "the patch", "to": "the number it gets", "json": _JSON})
def move(ctx: invoke.Context, number: str, to: str, json: bool = False) -> None:
    """Give a patch another place; the patches in between make room. Each is made exact there, or nothing is done.

    Example: invoke move 5 --to 2
    """
    which, target = _number(number), _number(to)
    title = f"move {which:04d} to {target:04d}"
    _done(_shop().edit(title, lambda editor: editor.move(which, to=target)), json=json)


@task(help={"number": "the patch", "json": _JSON})
def drop(ctx: invoke.Context, number: str, json: bool = False) -> None:
    """Take a patch out of the queue. Its number stays free, so that old records still say which patch they mean.

    Example: invoke drop 4
    """
    which = _number(number)
    _done(_shop().edit(f"drop {which:04d}", lambda editor: editor.drop(which)), json=json)


@task(help={"number": "the patch that goes", "into": "the patch that takes its changes", "json": _JSON})
def fold(ctx: invoke.Context, number: str, into: str, json: bool = False) -> None:
    """Make one patch of two.

    Example: invoke fold 5 --into 4
    """
    which, keeper = _number(number), _number(into)
    title = f"fold {which:04d} into {keeper:04d}"
    _done(_shop().edit(title, lambda editor: editor.fold(which, into=keeper)), json=json)


@task(
    help={
        "number": "the patch",
        "files": "files whose changes become a patch of their own, separated by commas; endings are enough",
        "slug": "the new patch's name",
        "json": _JSON,
    }
)
def split(ctx: invoke.Context, number: str, files: str, slug: str, json: bool = False) -> None:
    """Make two patches of one, by files. By hunks: `invoke edit N`, several commits there, `invoke refresh`.

    Example: invoke split 3 --files model_runner.py --slug count-passes
    """
    paths = [path.strip() for path in files.split(",") if path.strip()]
    which = _number(number)
    title = f"split {which:04d}"
    _done(_shop().edit(title, lambda editor: editor.split(which, paths=paths, slug=slug)), json=json)


@task(help={"json": _JSON})
def undo(ctx: invoke.Context, json: bool = False) -> None:
    """Take back the last edit of the queue; again, the one before it. An edit that was interrupted is put right first.

    Example: invoke undo
    """
    title = _shop().undo()
    if json:
        emit({"undone": title})
    else:
        say(f"undone: {title}")


def _done(outcome: Outcome, *, json: bool) -> None:
    if json:
        emit(
            {
                "title": outcome.title,
                "added": outcome.added,
                "removed": outcome.removed,
                "changed": outcome.changed,
                "notes": outcome.notes,
            }
        )
        return
    for mark, names in (("+", outcome.added), ("-", outcome.removed), ("~", outcome.changed)):
        for name in names:
            console().print(f"{mark} {name}", markup=False)
    for note in outcome.notes:
        say(f"note: {note}")
    if not (outcome.added or outcome.removed or outcome.changed):
        say("nothing to change")


# In and out


@task(
    name="import",
    help={
        "source": "a patch, mailbox or quilt folder; a branch made by export; a commit or A..B",
        "branch": "SOURCE is a branch of the mirror: it becomes the queue",
        "commit": "SOURCE is a commit or A..B",
        "clone": "the clone of SGLang that has the commit; default: the mirror",
        "kind": "kind of patches that name none",
        "guards": "quilt guards that are set, separated by commas",
        "json": _JSON,
    },
)
def import_(
    ctx: invoke.Context,
    source: str,
    branch: bool = False,
    commit: bool = False,
    clone: str = "",
    kind: str = "experiment",
    guards: str = "",
    json: bool = False,
) -> None:
    """Take patches in: files of any make (behind the queue's end), commits, or a branch that was exported.

    All or nothing; what had to be changed to get there is told.

    Example: invoke import ../their-patches/
    """
    shop = _shop()
    path = Path(source)
    if branch or (not commit and not path.exists() and _is_branch(shop, source)):
        _done(_import_branch(shop, source), json=json)
        return
    imported, notes = _imported(shop, source, commit=commit, clone=clone, kind=kind, guards=guards)
    _check_places(shop, imported)
    outcome = shop.edit(f"import {source}", lambda editor: editor.insert([one.patch for one in imported]))
    account = {one.patch.slug: list(one.account) for one in imported}
    if json:
        emit(
            {"added": outcome.added, "changed": outcome.changed, "account": account, "notes": [*notes, *outcome.notes]}
        )
        return
    _done(outcome, json=False)
    for slug, told in account.items():
        for line in told:
            say(f"{slug}: {line}")
    for note in notes:
        say(f"note: {note}")


def _is_branch(shop: Shop, name: str) -> bool:
    from patchbisect.upstream import Git

    return bool(Git(shop.mirror.path).ids([f"refs/heads/{name}"])[0]) if shop.mirror.path.exists() else False


def _import_branch(shop: Shop, name: str) -> Outcome:
    from patchbisect.maintain.branching import import_branch
    from patchbisect.model import Base

    patches = import_branch(shop.mirror, Base(pin=shop.pin), shop.editor().queue, name=name)
    title = f"import branch {name}"
    return shop.edit(title, lambda editor: editor.become(patches, doing=title))


def _imported(
    shop: Shop, source: str, *, commit: bool, clone: str, kind: str, guards: str
) -> tuple[list[Imported], list[str]]:
    from patchbisect.errors import UsageError
    from patchbisect.maintain.importing import Defaults, import_file, import_series

    author, date = _me(shop.project.root)
    defaults = Defaults(author=author, date=date, kind=kind)
    path = Path(source)
    if source == "-":
        return import_file("standard input", sys.stdin.buffer.read(), defaults=defaults), []
    if not commit and path.is_dir():
        files = {entry.name: entry.read_bytes() for entry in sorted(path.iterdir()) if entry.is_file()}
        if "series" in files:
            chosen = [guard for guard in guards.split(",") if guard]
            return import_series(files, defaults=defaults, guards=chosen, where=str(path / "series"))
        patches = [name for name in files if name.endswith((".patch", ".diff"))]
        if not patches:
            raise UsageError(f"{path} holds neither a series nor patches")
        return [one for name in patches for one in import_file(name, files[name], defaults=defaults)], []
    if not commit and path.is_file():
        return import_file(path.name, path.read_bytes(), defaults=defaults), []
    return _commits(shop, source, clone=clone, kind=kind), []


def _commits(shop: Shop, rev: str, *, clone: str, kind: str) -> list[Imported]:
    from patchbisect.maintain.branching import commits_of
    from patchbisect.maintain.exporting import patch_of_commit
    from patchbisect.maintain.importing import Imported
    from patchbisect.model import Base
    from patchbisect.upstream import Git

    where = clone or shop.project.settings.upstream.clone
    folder = Path(where).expanduser() if where else None
    commits = commits_of(shop.mirror, Base(pin=shop.pin), rev=rev, clone=folder)
    trailers = [("Kind", kind), ("Forwarded", "no")]
    store = Git(shop.mirror.path)
    return [
        Imported(patch=patch_of_commit(store, commit, number=at, trailers=trailers), account=())
        for at, commit in enumerate(commits, start=1)
    ]


def _check_places(shop: Shop, imported: list[Imported]) -> None:
    """Raise UsageError that names every hunk that stands nowhere, not only the first."""
    from patchbisect.errors import UsageError
    from patchbisect.maintain.placing import misplaced

    told = misplaced(shop, [one.patch for one in imported])
    if told:
        shown = [f"  {line}" for line in told[:20]] + ([f"  ... and {len(told) - 20} more"] if told[20:] else [])
        raise UsageError(
            "it does not apply; nothing was taken in:\n" + "\n".join(shown),
            remedy="It was made for other code: apply it there, rebase with git, and import the commits.",
        )


@task(
    help={
        "target": "a folder for --quilt, a new branch's name for --branch, a file for --mbox (- is standard output)",
        "quilt": "write the patches and a series",
        "branch": "make a branch of the mirror, one commit a patch",
        "mbox": "write one mailbox for git am",
        "to": "with --branch: a folder to check it out in",
        "json": _JSON,
    }
)
def export(
    ctx: invoke.Context,
    target: str,
    quilt: bool = False,
    branch: bool = False,
    mbox: bool = False,
    to: str = "",
    json: bool = False,
) -> None:
    """Give the queue to other tools. `--branch`, any git command there, `import --branch` loses nothing.

    Example: invoke export --branch mine --to ../sglang-mine
    """
    from patchbisect.errors import UsageError
    from patchbisect.maintain.branching import export_branch
    from patchbisect.maintain.exporting import mbox as mailbox
    from patchbisect.maintain.exporting import quilt_series
    from patchbisect.model import Base

    if quilt + branch + mbox != 1:
        raise UsageError("say one of --quilt, --branch, --mbox")
    shop = _shop()
    queue = shop.queue()
    if branch:
        folder = Path(to).resolve() if to else None
        tip = export_branch(shop.mirror, Base(pin=shop.pin), queue, name=target, to=folder)
        where = f"git clone --branch {target} {shop.mirror.path}" if folder is None else str(folder)
        document: dict[str, Any] = {"branch": target, "commit": tip, "mirror": str(shop.mirror.path), "to": to}
    elif quilt:
        folder = Path(target)
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", remedy="Give a new folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in quilt_series(queue.patches).items():
            (folder / name).write_bytes(data)
        where, document = str(folder), {"quilt": str(folder), "patches": len(queue.patches)}
    else:
        data = mailbox(queue.patches)
        if target == "-":
            sys.stdout.buffer.write(data)
            return
        Path(target).write_bytes(data)
        where, document = target, {"mbox": target, "patches": len(queue.enabled)}
    if json:
        emit(document)
    else:
        console().print(where, markup=False, soft_wrap=True)


@task(
    help={
        "file": "a file of SGLang; an ending of its path is enough",
        "after": "a line of it, without indent, that stands once: the probe goes behind its statement",
        "expr": "what to print, separated by commas",
        "name": "the probe's name in `PROBE name ...`; default: made of the file's name",
        "slug": "the patch's name",
        "dry-run": "print the patch instead of adding it",
        "json": _JSON,
    }
)
def insert_probe(
    ctx: invoke.Context,
    file: str,
    after: str,
    expr: str,
    name: str = "",
    slug: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Write a patch that prints some values, and nothing else: safe by construction, and checked by lint.

    Example: invoke insert-probe parallel_state.py --after "self.world_size = len(ranks)" --expr ranks,self.world_size
    """
    from patchbisect.maintain.probing import probe_patch

    shop = _shop()
    author, date = _me(shop.project.root)
    patch = probe_patch(shop, file=file, after=after, expressions=expr, name=name, slug=slug, author=author, date=date)
    if dry_run:
        sys.stdout.write(patch.text)
        return
    _done(shop.edit(f"insert probe {patch.slug}", lambda editor: editor.insert([patch])), json=json)


@task(
    help={
        "dir": "the folder of the new queue",
        "upstream": "SGLang's repository",
        "tag": "the pin's tag",
        "commit": "the pin's full commit id",
        "release": "the release that has the same code",
        "wheel-sha256": "the checksum of that release's wheel",
        "json": _JSON,
    }
)
def init(
    ctx: invoke.Context,
    dir: str,
    upstream: str = "",
    tag: str = "",
    commit: str = "",
    release: str = "",
    wheel_sha256: str = "",
    json: bool = False,
) -> None:
    """Start a queue in a repository of your own: pin, settings, tasks, workflow. Files that are there stay.

    Example: invoke init ../my-sglang-patches
    """
    from patchbisect.maintain.starting import SGLANG, start_queue
    from patchbisect.model import Pin
    from patchbisect.patchqueue import format_pin, parse_pin

    pin = SGLANG
    if commit:
        url = upstream or SGLANG.upstream
        pin = Pin(upstream=url, tag=tag, commit=commit, release=release, wheel_sha256=wheel_sha256)
    parse_pin(format_pin(pin), filename="the pin")
    written = start_queue(Path(dir), pin=pin)
    if json:
        emit({"dir": dir, "written": written})
        return
    for path in written:
        console().print(f"+ {Path(dir) / path}", markup=False)


# Another pin


@task(
    name="rebase-queue",
    help={
        "onto": "the new pin: a tag, branch or commit of SGLang, or release:0.5.10",
        "commit": "the full commit id of a release, where no git source tells it",
        "dry-run": "only show how each patch fits",
        "continue_": "go on after a conflict was resolved",
        "abort": "leave queue and pin as they were",
        "json": _JSON,
    },
)
def rebase_queue(
    ctx: invoke.Context,
    onto: str = "",
    commit: str = "",
    dry_run: bool = False,
    continue_: bool = False,
    abort: bool = False,
    json: bool = False,
) -> None:
    """Move the queue to another pin, patch by patch; a conflict opens a work tree. Resolutions are remembered.

    Exit 1 where a patch does not fit (dry run), or a conflict waits for you.

    Example: invoke rebase-queue --onto v0.5.10 --dry-run
    """
    from patchbisect.errors import UsageError
    from patchbisect.maintain.rebasing import Rebase
    from patchbisect.maintain.repinning import new_pin

    shop = _shop()
    rebase = Rebase(shop)
    if abort + continue_ + bool(onto) != 1:
        raise UsageError("say one of --onto REV, --continue, --abort")
    if abort:
        rebase.abort()
        say("queue and pin are as they were")
        return
    if continue_:
        _rebased(rebase.resume(), json=json)
        return
    if dry_run:
        _dry_run(shop, onto, json=json)
        return
    _rebased(rebase.start(new_pin(shop, onto, commit=commit)), json=json)


def _dry_run(shop: Shop, onto: str, *, json: bool) -> None:
    from patchbisect.maintain.fitting import Fit, fit_all
    from patchbisect.model import Base

    base = Base(pin=shop.pin, rev=onto)
    fitted = fit_all(shop.mirror, base, shop.queue().patches, clone=_clone(shop))
    if json:
        emit({"onto": onto, "patches": [{"patch": f.patch.name, "fit": str(f.fit), "why": f.why} for f in fitted]})
    else:
        _table([(f.patch.name, str(f.fit), f.why) for f in fitted])
    if any(f.fit in (Fit.CONFLICT, Fit.BUILDS_ON) for f in fitted):
        raise negative()


def _rebased(result: Moved | Stopped, *, json: bool) -> None:
    from patchbisect.maintain.rebasing import Stopped

    if isinstance(result, Stopped):
        if json:
            emit({"stopped": result.patch, "why": result.why, "tree": str(result.tree), "files": result.files})
        else:
            say(f"conflict: {result.why or result.patch}")
            say(f"Resolve {', '.join(result.files)}\n  in {result.tree}\n  then: invoke rebase-queue --continue")
        raise negative()
    if json:
        fits = [{"patch": name, "fit": fit} for name, fit in result.fits]
        emit({"moved": result.outcome.title, "patches": fits, "range_diff": result.range_diff})
        return
    _table([(name, fit, "") for name, fit in result.fits])
    console().print(result.range_diff, markup=False, soft_wrap=True)
    say("Merged is not proven: invoke lint tells what a patch reads that the new pin has renamed.")


@task(
    help={
        "among": "revisions, oldest first, separated by commas: 0.5.9,0.5.10",
        "range": "A..B of the clone in the settings (upstream.clone): every commit of its first-parent line",
        "json": _JSON,
    }
)
def where_applies(ctx: invoke.Context, among: str = "", range: str = "", json: bool = False) -> None:
    """The newest revision at which each patch, and the whole queue, still apply.

    Example: invoke where-applies --among release:0.5.9,release:0.5.10
    """
    from patchbisect.errors import UsageError
    from patchbisect.maintain.fitting import where_applies as search
    from patchbisect.maintain.repinning import first_parents
    from patchbisect.model import Base

    shop = _shop()
    if bool(among) == bool(range):
        raise UsageError("say --among A,B,C or --range A..B")
    revisions = [rev for rev in reversed(among.split(",")) if rev] if among else first_parents(shop, range)
    found = search(
        shop.mirror,
        Base(pin=shop.pin),
        shop.queue().patches,
        revisions=revisions,
        clone=_clone(shop) if range else None,
    )
    if json:
        emit([{"what": one.name, "newest": one.rev, "why_not_newer": one.why_not_newer} for one in found])
    else:
        _table([(one.name, _short(one.rev) or "nowhere", one.why_not_newer) for one in found])
    if not all(one.rev for one in found):
        raise negative()


# Facts and review


@task(help={"svg": "write what builds on what as a picture into this file", "json": _JSON})
def facts(ctx: invoke.Context, svg: str = "", json: bool = False) -> None:
    """What each patch touches, what it builds on, which run proved it last, how old it is, where it was sent.

    Example: invoke facts --svg queue.svg
    """
    from patchbisect.config import load_project
    from patchbisect.maintain.facts import graph_svg
    from patchbisect.maintain.reviewing import facts_in, files_at

    project = load_project()
    found = facts_in(project, files_at(project), mirror=mirror_of(project))
    if svg:
        Path(svg).write_text(graph_svg(found), encoding="utf-8")
        say(f"written: {svg}")
    if json:
        emit(
            [
                {
                    "patch": fact.patch.name,
                    "functions": fact.functions,
                    "builds_on": fact.builds_on,
                    "proof": None if fact.proof is None else {"run": fact.proof.run, "box": fact.proof.box},
                    "age_days": fact.age_days,
                    "forwarded": fact.patch.trailer("Forwarded"),
                }
                for fact in found
            ]
        )
        return
    for fact in found:
        proof = f"{fact.proof.outcome} in {fact.proof.run} on {fact.proof.box}" if fact.proof else "not proven"
        sent = fact.patch.trailer("Forwarded")
        console().print(f"{fact.patch.name}  {fact.age_days} days, {proof}, forwarded: {sent}", markup=False)
        for path, names in fact.functions.items():
            console().print(f"  {path.removeprefix('python/')}: {', '.join(names)}", markup=False)
        if fact.builds_on:
            console().print(f"  builds on {', '.join(fact.builds_on)}", markup=False)


@task(
    help={
        "base": "the revision to compare with: a branch, a tag, a commit of this repository",
        "head": "a revision instead of the files on disk",
        "markdown": "as a comment for a pull request",
        "json": _JSON,
    }
)
def review(ctx: invoke.Context, base: str = "main", head: str = "", markdown: bool = False, json: bool = False) -> None:
    """What a reviewer needs: patches added, changed, removed, reordered; pin; lint; whether it started; risks.

    Example: invoke review --base main --markdown
    """
    from patchbisect.config import load_project
    from patchbisect.maintain.review import markdown as as_markdown
    from patchbisect.maintain.review import risks_of
    from patchbisect.maintain.reviewing import review_against

    project = load_project()
    found = review_against(project, base, mirror=mirror_of(project), head=head)
    by_name = {fact.patch.name: fact for fact in found.facts}
    if json:
        emit(
            {
                "base": base,
                "pin_moved": found.pin_moved,
                "changes": [
                    {
                        "patch": change.name,
                        "what": str(change.what),
                        "moved_from": change.moved_from,
                        "interdiff": change.interdiff,
                        "risks": risks_of(change, by_name),
                    }
                    for change in found.changes
                ],
                "findings": [_finding(one) for one in found.findings],
                "proof": found.proof.run if found.proof else None,
            }
        )
        return
    if markdown:
        sys.stdout.write(as_markdown(found))
        return
    _table([(change.name, str(change.what), "; ".join(risks_of(change, by_name))) for change in found.changes])
    for one in found.findings:
        _show(one)
    say(f"started with it in {found.proof.run}" if found.proof else "no recorded start with this queue")


# Helpers


def _me(root: Path) -> tuple[str, str]:
    """Who the user is to git, and now in RFC 2822."""
    import subprocess
    from datetime import datetime
    from email.utils import format_datetime

    def asked(key: str) -> str:
        done = subprocess.run(["git", "-C", str(root), "config", key], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    name, address = asked("user.name") or "unknown", asked("user.email") or "unknown@localhost"
    return f"{name} <{address}>", format_datetime(datetime.now().astimezone())


def _number(text: str) -> int:
    """``3``, ``0003`` or ``0003-slug`` as a number."""
    from patchbisect.errors import UsageError

    word = text.partition("-")[0]
    if not word.isdecimal():
        raise UsageError(f"{text!r} is no patch number", remedy="As in: invoke edit 3")
    return int(word)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(word.strip()) for word in text.split(",") if word.strip())


def _clone(shop: Shop) -> Path | None:
    where = shop.project.settings.upstream.clone
    folder = Path(where).expanduser() if where else None
    return folder if folder and folder.is_dir() else None


def _short(rev: str) -> str:
    return rev[:12] if len(rev) >= 40 and rev.isalnum() else rev


def _table(rows: list[tuple[str, str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in (0, 1, 2):
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False)


def tasks() -> list[invoke.Task[Any]]:
    """All of them, for the namespace."""
    return [
        lint,
        new_patch,
        edit,
        refresh,
        abandon,
        move,
        drop,
        fold,
        split,
        undo,
        import_,
        export,
        insert_probe,
        init,
        rebase_queue,
        where_applies,
        facts,
        review,
    ]
