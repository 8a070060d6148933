"""Tasks that look at what was recorded: runs, comparison, reports, pictures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks.face import console, emit, say, task

if TYPE_CHECKING:
    from patchbisect.records import Store

# Rows of a table where nobody said how many: a screen full, and Rich stays fast.
_SHOWN = 50


def _store() -> Store:
    from patchbisect.config import load_project
    from patchbisect.records import Store

    return Store(load_project().state / "runs")


@task(
    help={
        "outcome": "only ready, kv-allocated, oom, crash, hang or void",
        "point": "only runs of this point (HEAD, clean+7 …), or with this patch (0003 or its slug)",
        "box": "only on this box",
        "profile": "only with this profile",
        "tag": "only with this name",
        "since": "only newer than this: 30m, 6h, 3d, 2w, or 2026-11-29T18:00",
        "last": "only the newest N (default: 50 in a table, all of them with --json)",
        "json": "one JSON document on standard output",
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
    json: bool = False,
) -> None:
    """List the recorded runs, newest last.

    Example: invoke runs --outcome oom --since 3d
    """
    from patchbisect.records import moment, wanted

    store = _store()
    filters = wanted(
        outcome=outcome, point=point, box=box, profile=profile, tag=tag, since=moment(since) if since else None
    )
    matching = [document for document in store.documents(fault=say) if filters.matches(document)]
    newest = matching[-(last or (len(matching) if json else _SHOWN)) :]
    rows = [store.row(document) for document in newest]
    if json:
        emit({"runs": rows, "matching": len(matching)})
        return
    from patchbisect.report.text import runs_table

    if not rows:
        say("no run matches" if store.ids() else "no run yet: invoke launch")
        return
    console().print(runs_table(rows))
    if len(rows) < len(matching):
        say(f"{len(matching) - len(rows)} earlier runs not shown: --last {len(matching)}")


@task(
    help={
        "run": "a run's id, the beginning of it, its name, or 'last'",
        "log": "print the server's log and nothing else",
        "json": "one JSON document on standard output",
    }
)
def show(ctx: invoke.Context, run: str, log: bool = False, json: bool = False) -> None:
    """Show one recorded run: point, code, verdict, facts, and how to repeat it by hand.

    Example: invoke show last
    """
    store = _store()
    if log:
        sys.stdout.buffer.write(store.log(run))
        return
    record = store.load(run)
    document = record.model_dump(mode="json")
    if json:
        emit(document)
        return
    from patchbisect.report.text import record_page

    console().print(record_page(document))
