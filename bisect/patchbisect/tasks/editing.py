"""The queue edited, one task a verb; each happens as a whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks import workshop
from patchbisect.tasks.face import emit, say, task

if TYPE_CHECKING:
    pass


@task(
    help={
        "slug": "name of the patch's file, after its number",
        "kind": "instrumentation, fix, experiment or backport",
        "subject": "first line of its message; default: made of the slug",
        "after": "the number of the patch that it goes behind (0: before all); default: at the end",
        "json": workshop.JSON,
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

    workshop.require_kind(kind)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug):
        raise UsageError(f"{slug!r} is no slug", remedy="Letters, digits, - . _")
    shop = workshop.shop()
    author, date = workshop.me(shop.project.root)
    title = subject or slug.replace("-", " ").capitalize()
    opened = Opened(parent="", after=after, slug=slug, kind=kind, subject=title, author=author, date=date)
    workshop.opened(Bench(shop).open_new(opened), json=json)


@task(help={"number": "the patch to edit", "json": workshop.JSON})
def edit(ctx: invoke.Context, number: str, json: bool = False) -> None:
    """Open a patch as a work tree of SGLang; change files there, then `invoke refresh`.

    Commits that you make on top become patches of their own: so a patch is split.

    Example: invoke edit 3
    """
    from patchbisect.maintain.bench import Bench

    shop = workshop.shop()
    workshop.opened(Bench(shop).open(workshop.which(shop, number)), json=json)


@task(help={"json": workshop.JSON})
def refresh(ctx: invoke.Context, json: bool = False) -> None:
    """Take the open edit into the queue; without one, make every patch exact again.

    Example: invoke refresh
    """
    from patchbisect.maintain.bench import Bench

    shop = workshop.shop()
    outcome = Bench(shop).refresh()
    workshop.done(outcome, json=json)
    workshop.say_faults(shop, outcome)


@task(help={"json": workshop.JSON})
def abandon(ctx: invoke.Context, json: bool = False) -> None:
    """Close the open edit without taking it in. What was done there is kept under a ref of the mirror.

    Example: invoke abandon
    """
    from patchbisect.maintain.bench import Bench

    shop = workshop.shop()
    ref = Bench(shop).abandon()
    if json:
        emit({"kept": ref, "mirror": str(shop.mirror.path)})
    else:
        say(f"closed; kept as {ref} in {shop.mirror.path}")


@task(help={"number": "the patch", "to": "the number it gets", "json": workshop.JSON})
def move(ctx: invoke.Context, number: str, to: str, json: bool = False) -> None:
    """Give a patch another place; the patches in between make room. Each is made exact there, or nothing is done.

    Example: invoke move 5 --to 2
    """
    shop = workshop.shop()
    which, target = workshop.which(shop, number), workshop.which(shop, to)
    title = f"move {which:04d} to {target:04d}"
    workshop.done(shop.edit(title, lambda editor: editor.move(which, to=target)), json=json)


@task(help={"number": "the patch", "json": workshop.JSON})
def drop(ctx: invoke.Context, number: str, json: bool = False) -> None:
    """Take a patch out of the queue. Its number stays free, so that old records still say which patch they mean.

    Example: invoke drop 4
    """
    shop = workshop.shop()
    which = workshop.which(shop, number)
    workshop.done(shop.edit(f"drop {which:04d}", lambda editor: editor.drop(which)), json=json)


@task(help={"number": "the patch that goes", "into": "the patch that takes its changes", "json": workshop.JSON})
def fold(ctx: invoke.Context, number: str, into: str, json: bool = False) -> None:
    """Make one patch of two.

    Example: invoke fold 5 --into 4
    """
    shop = workshop.shop()
    which, keeper = workshop.which(shop, number), workshop.which(shop, into)
    title = f"fold {which:04d} into {keeper:04d}"
    workshop.done(shop.edit(title, lambda editor: editor.fold(which, into=keeper)), json=json)


@task(
    help={
        "number": "the patch",
        "files": "files whose changes become a patch of their own, separated by commas; endings are enough",
        "slug": "the new patch's name",
        "json": workshop.JSON,
    }
)
def split(ctx: invoke.Context, number: str, files: str, slug: str, json: bool = False) -> None:
    """Make two patches of one, by files. By hunks: `invoke edit N`, several commits there, `invoke refresh`.

    Example: invoke split 3 --files model_runner.py --slug count-passes
    """
    paths = [path.strip() for path in files.split(",") if path.strip()]
    shop = workshop.shop()
    which = workshop.which(shop, number)
    title = f"split {which:04d}"
    workshop.done(shop.edit(title, lambda editor: editor.split(which, paths=paths, slug=slug)), json=json)


@task(help={"json": workshop.JSON})
def undo(ctx: invoke.Context, json: bool = False) -> None:
    """Take back the last edit of the queue; again, the one before it. An edit that was interrupted is put right first.

    Example: invoke undo
    """
    title = workshop.shop().undo()
    if json:
        emit({"undone": title})
    else:
        say(f"undone: {title}")


TASKS = (
    new_patch,
    edit,
    refresh,
    abandon,
    move,
    drop,
    fold,
    split,
    undo,
)
