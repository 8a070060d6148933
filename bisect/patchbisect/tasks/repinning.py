"""The queue moved to another pin, and the newest one that it would still fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks import workshop
from patchbisect.tasks.face import console, emit, negative, say, task

if TYPE_CHECKING:
    from patchbisect.maintain.rebasing import Moved, Stopped
    from patchbisect.maintain.shop import Shop


@task(
    name="rebase-queue",
    help={
        "onto": "the new pin: a tag, branch or commit of SGLang, or release:0.5.10",
        "commit": "the full commit id of a release, where no git source tells it",
        "dry-run": "only show how each patch fits",
        "continue_": "go on after a conflict was resolved",
        "abort": "leave queue and pin as they were",
        "json": workshop.JSON,
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

    shop = workshop.shop()
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
    fitted = fit_all(shop.mirror, base, shop.queue().patches, clone=shop.clone)
    if json:
        emit({"onto": onto, "patches": [{"patch": f.patch.name, "fit": str(f.fit), "why": f.why} for f in fitted]})
    else:
        workshop.table([(f.patch.name, str(f.fit), f.why) for f in fitted])
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
    workshop.table([(name, fit, "") for name, fit in result.fits])
    console().print(result.range_diff, markup=False, soft_wrap=True)
    say("Merged is not proven: invoke lint tells what a patch reads that the new pin has renamed.")


@task(
    help={
        "among": "revisions, oldest first, separated by commas: 0.5.9,0.5.10",
        "range": "A..B of the clone in the settings (upstream.clone): every commit of its first-parent line",
        "json": workshop.JSON,
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

    shop = workshop.shop()
    if bool(among) == bool(range):
        raise UsageError("say --among A,B,C or --range A..B")
    revisions = [rev for rev in reversed(among.split(",")) if rev] if among else first_parents(shop, range)
    found = search(
        shop.mirror,
        Base(pin=shop.pin),
        shop.queue().patches,
        revisions=revisions,
        clone=shop.clone if range else None,
    )
    if json:
        emit([{"what": one.name, "newest": one.rev, "why_not_newer": one.why_not_newer} for one in found])
    else:
        workshop.table([(one.name, workshop.short(one.rev) or "nowhere", one.why_not_newer) for one in found])
    if not all(one.rev for one in found):
        raise negative()


TASKS = (
    rebase_queue,
    where_applies,
)
