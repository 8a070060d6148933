"""What the tasks on the queue share: the shop, how an edit is told, numbers, tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from patchbisect.tasks.face import console, emit, say
from patchbisect.tasks.lab import mirror_of

if TYPE_CHECKING:
    from patchbisect.maintain.shop import Outcome, Shop


JSON = "print one JSON document"


def shop() -> Shop:
    from patchbisect.config import load_project
    from patchbisect.maintain.shop import Shop

    project = load_project()
    return Shop(project, mirror=mirror_of(project))


def done(outcome: Outcome, *, json: bool) -> None:
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


def say_faults(shop: Shop, outcome: Outcome) -> None:
    """What lint has against the patches that an edit brought, said at once and not at the next launch."""
    from patchbisect.maintain.reviewing import lint_files

    touched = {name.removesuffix(".patch") for name in (*outcome.added, *outcome.changed)}
    if not touched:
        return
    only = tuple(number(name) for name in touched)
    found = lint_files(shop.folder.read(), mirror=shop.mirror, only=only, diagnose=lambda texts: {})
    for one in found:
        if one.counts:
            say(f"lint: {one}")


def opened(tree: Path, *, json: bool) -> None:
    if json:
        emit({"tree": str(tree)})
        return
    console().print(str(tree), markup=False, soft_wrap=True)
    say("Change files there, then: invoke refresh   (or: invoke abandon)")


def require_kind(kind: str) -> None:
    """Raise UsageError for a kind of patch that there is not."""
    from patchbisect.errors import UsageError
    from patchbisect.patchqueue import KINDS, did_you_mean

    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}{did_you_mean(kind, KINDS)}", remedy=f"One of {', '.join(KINDS)}.")


def me(root: Path) -> tuple[str, str]:
    """Who the user is to git, and now in RFC 2822."""
    import subprocess
    from datetime import datetime
    from email.utils import format_datetime

    def asked(key: str) -> str:
        done = subprocess.run(["git", "-C", str(root), "config", key], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    name, address = asked("user.name") or "unknown", asked("user.email") or "unknown@localhost"
    return f"{name} <{address}>", format_datetime(datetime.now().astimezone())


def number(text: str, known: Iterable[str] = ()) -> int:
    """``3``, ``0003``, ``0003-slug``, or the slug alone of one of the ``known`` patch files. Raises UsageError."""
    from patchbisect.errors import UsageError
    from patchbisect.patchqueue import did_you_mean

    slugs = {name[5:].removesuffix(".patch"): name[:4] for name in known if name[:4].isdecimal()}
    # A slug may begin with a number, too.
    word = slugs.get(text) or text.partition("-")[0]
    if word.isdecimal():
        return int(word)
    raise UsageError(
        f"there is no patch {text!r}{did_you_mean(text, slugs)}",
        remedy="A patch is named by its number or its slug, as `invoke queue` lists them.",
    )


def which(shop: Shop, text: str) -> int:
    """The number of a patch as it is named on the command line. Raises UsageError."""
    return number(text, shop.folder.read())


def numbers(text: str, known: Iterable[str]) -> tuple[int, ...]:
    return tuple(number(word.strip(), known) for word in text.split(",") if word.strip())


def require_numbers(chosen: tuple[int, ...], files: Iterable[str]) -> None:
    """Raise UsageError for a number that no patch file has."""
    from patchbisect.errors import UsageError

    known = {int(name[:4]) for name in files if name[:4].isdecimal() and name.endswith(".patch")}
    for wanted in chosen:
        if wanted not in known:
            raise UsageError(f"there is no patch {wanted:04d}", remedy="invoke queue lists them.")


def short(rev: str) -> str:
    return rev[:12] if len(rev) >= 40 and rev.isalnum() else rev


def table(rows: list[tuple[str, str, str]]) -> None:
    from patchbisect.report import tables

    shown = tables.table("", "", "")
    shown.show_header = False
    for row in rows:
        tables.add(shown, *row)
    console().print(shown)
