"""Every hunk that stands nowhere: what an importer has to know at once, not one by one."""

from __future__ import annotations

from collections.abc import Sequence

from patchbisect.errors import PointUnbuildable
from patchbisect.maintain.lint.effects import Texts
from patchbisect.maintain.shop import Shop
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import diff_of
from patchbisect.upstream import PACKAGE


def misplaced(shop: Shop, patches: Sequence[Patch], *, after: Sequence[Patch]) -> list[str]:
    """For patches behind those of ``after``: each hunk that stands nowhere or in several places, and each file that
    is missing or in the way. Empty where they can be built."""
    base = Base(pin=shop.pin)
    wanted = [patch for patch in patches if patch.enabled]
    commit = shop.mirror.materialize(base, after).commit
    if _builds(shop, base, [*after, *wanted]):
        return []

    def read(path: str) -> str | None:
        data = shop.mirror.read(commit, path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    texts = Texts(read)
    told: list[str] = []
    for patch in wanted:
        for file in diff_of(patch).files:
            effect = texts.apply(file)
            if effect.missing:
                there = "is there already" if file.old_path is None or effect.before is not None else "is not there"
                inside = file.path.startswith(f"{PACKAGE}/")
                hint = "" if inside else f"; releases hold {PACKAGE} alone, for other files set upstream.clone"
                told.append(f"{patch.slug}: {file.path} {there}{hint}")
            told += [f"{patch.slug}: {misfit}" for misfit in effect.misfits if len(misfit.places) != 1]
    return told


def _builds(shop: Shop, base: Base, patches: Sequence[Patch]) -> bool:
    try:
        shop.mirror.materialize(base, patches)
    except PointUnbuildable:
        return False
    return True
