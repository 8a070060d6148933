"""Two points → what differs, as an ordered list of changes; any subset of the changes → a point.

Pure but for one question that is asked through ``applies``: can this base carry these patches?
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from patchbisect.model import Axis, Base, Change, Patch, Point, Timeline
from patchbisect.patchqueue import requires

Route = Callable[[Base, Base], Sequence[Base]]
"""The bases after the first one up to the second, oldest first."""

Applies = Callable[[Base, tuple[Patch, ...]], bool]


def _directly(good: Base, bad: Base) -> Sequence[Base]:
    return [bad]


def timeline(good: Point, bad: Point, *, applies: Applies, route: Route = _directly) -> Timeline:
    """The changes that lead from ``good`` to ``bad``: base, queue, packages, flags, environment, in that order.

    Queue edits come in an order in which each queue on the way applies: the bad end's number order where that
    works, with ``Requires:`` kept. Edits that only apply together are one change with ``parts``.
    Where the base differs too, queues on the way are asked for on the bad end's base, since the base is set first.
    Common patches carry the bad end's numbers in every point of the timeline.
    """
    start = _renumbered(good, bad)
    changes: list[Change] = []
    if _base_key(start.base) != _base_key(bad.base):
        before = start.base
        for after in route(start.base, bad.base):
            subject = "base" if _base_key(after) == _base_key(bad.base) and not changes else after.short
            changes.append(Change(axis=Axis.BASE, subject=subject, before=before, after=after))
            before = after
    else:
        start = replace(start, base=bad.base)
    changes += _ordered(start, bad, applies=applies)
    for axis in (Axis.PACKAGES, Axis.FLAGS, Axis.ENV):
        changes += _settings(axis, before=getattr(start, axis), after=getattr(bad, axis))
    return Timeline(good=start, bad=bad, changes=tuple(changes))


def point_at(line: Timeline, k: int) -> Point:
    """Point ``k``: the first ``k`` changes applied; 0 is the good end, ``len(changes)`` the bad one.

    Raises ValueError.
    """
    if not 0 <= k <= len(line.changes):
        raise ValueError(f"the timeline has points 0 to {len(line.changes)}, not {k}")
    return point_with(line, range(k))


Difference = Callable[[Base, Base], Patch]
"""What leads from one base to another, as a patch."""


def point_with(line: Timeline, on: Collection[int], *, difference: Difference | None = None) -> Point:
    """The good end with some of the changes made: ``on`` holds their indexes, from 0. Its name says which.

    A base holds all that came before it, so a step of the base that is left out, or made alone, is a patch that
    undoes or makes it: ``difference`` gives it. Raises what that raises.
    """
    chosen = sorted(on)
    if len(chosen) == len(line.changes):
        return line.bad
    if not chosen:
        return line.good
    if len(chosen) < len(line.stops) and chosen == list(range(len(chosen))):
        return replace(line.stops[len(chosen)], name=_name(line, chosen))
    point = replace(applied(line.good, [line.changes[i] for i in chosen]), name=_name(line, chosen))
    return _with_base_steps(line, point, on, difference=difference) if difference else point


def _with_base_steps(line: Timeline, point: Point, on: Collection[int], *, difference: Difference) -> Point:
    """The base as far as its steps are made without a gap, or up to the last one made: what needs fewer patches."""
    steps = [i for i, change in enumerate(line.changes) if change.axis is Axis.BASE]
    made = [i for i in steps if i in on]
    if made == steps[: len(made)]:
        return point
    missing = [line.changes[i] for i in steps if i < made[-1] and i not in on]
    unbroken = next(k for k, i in enumerate(steps) if i not in on)
    beyond = [line.changes[i] for i in made if i > steps[unbroken]]
    if len(missing) <= len(beyond):
        undone = [difference(change.after, change.before) for change in reversed(missing)]
        return replace(point, patches=(*undone, *point.patches))
    base = line.changes[steps[unbroken - 1]].after if unbroken else line.good.base
    picked = [difference(change.before, change.after) for change in beyond]
    return replace(point, base=base, patches=(*picked, *point.patches))


def label(change: Change) -> str:
    """What a change is about, in a word or two; never a value, which may be secret."""
    if change.note:
        return change.note.partition(":")[0]
    if change.parts:
        return " with ".join(label(part) for part in change.parts)
    if change.axis is Axis.QUEUE:
        done = {"remove": " removed", "replace": " replaced", "move": " moved"}.get(change.verb, "")
        return f"{(change.after or change.before).name}{done}"
    if change.axis is Axis.BASE:
        return f"upstream {change.after.short}"
    return f"{_SETTINGS[change.axis]} {change.subject}"


_SETTINGS = {Axis.FLAGS: "flag", Axis.ENV: "env", Axis.PACKAGES: "package"}
# As many changes as a name spells out.
_SPELT = 3


def _name(line: Timeline, chosen: Sequence[int]) -> str:
    """``clean + 4 of 8 (0004-slug)``, ``HEAD without 0006-slug``, ``clean with 0006-slug alone`` …"""
    changes, count = line.changes, len(line.changes)
    off = [i for i in range(count) if i not in chosen]
    if whole := _whole_axes(changes, chosen):
        return f"{line.good.name} with {' and '.join(whole)} of {line.bad.name}"
    if chosen == list(range(len(chosen))):
        return f"{line.good.name} + {len(chosen)} of {count} ({label(changes[chosen[-1]])})"
    if len(off) > 1 and (partly := _part_of_one_axis(changes, chosen, off=off)):
        return f"{line.bad.name} with {partly}"
    if len(off) <= min(_SPELT, len(chosen)):
        return f"{line.bad.name} without {', '.join(label(changes[i]) for i in off)}"
    if len(chosen) <= _SPELT:
        return f"{line.good.name} with {' and '.join(label(changes[i]) for i in chosen)} alone"
    first, last = label(changes[chosen[0]]), label(changes[chosen[-1]])
    return f"{line.good.name} with {len(chosen)} of {count} changes ({first} … {last})"


def _part_of_one_axis(changes: Sequence[Change], chosen: Sequence[int], *, off: Sequence[int]) -> str:
    """``queue at 4 of 8 (0004-slug)`` where only one of several axes is not wholly on, and that one up to a change."""
    axis = changes[off[0]].axis
    mine = [i for i, change in enumerate(changes) if change.axis is axis]
    on = [i for i in mine if i in chosen]
    if len(mine) == len(changes) or any(changes[i].axis is not axis for i in off) or on != mine[: len(on)]:
        return ""
    return f"{axis} at {len(on)} of {len(mine)}" + (f" ({label(changes[on[-1]])})" if on else "")


def _whole_axes(changes: Sequence[Change], chosen: Sequence[int]) -> list[str]:
    """The axes that are wholly on, where every other one is wholly off and there is more than one."""
    touched = {changes[i].axis for i in chosen}
    whole = [i for i, change in enumerate(changes) if change.axis in touched]
    several = len({change.axis for change in changes}) > 1
    return [axis.value for axis in Axis if axis in touched] if several and whole == list(chosen) else []


def applied(point: Point, changes: Iterable[Change]) -> Point:
    """The point with these changes of one timeline made, in any number and order."""
    for change in changes:
        point = apply(point, change)
    return point


def apply(point: Point, change: Change) -> Point:
    """The point with one change made, to its ``after`` side. Patches stay in number order."""
    if change.parts:
        return applied(point, change.parts)
    if change.axis is Axis.BASE:
        return replace(point, base=change.after)
    if change.axis is Axis.QUEUE:
        return replace(point, patches=_edited(point.patches, change))
    values = dict(getattr(point, change.axis))
    if change.after is None:
        values.pop(change.subject, None)
    else:
        values[change.subject] = change.after
    return _with_values(point, change.axis, values)


def _with_values(point: Point, axis: Axis, values: Mapping[str, Any]) -> Point:
    if axis is Axis.FLAGS:
        return replace(point, flags=values)
    if axis is Axis.ENV:
        return replace(point, env=values)
    return replace(point, packages=values)


def _edited(patches: Sequence[Patch], change: Change) -> tuple[Patch, ...]:
    """Replaced in place, then sorted by number: equal numbers keep their order, the good end's patch first."""
    kept = [change.after if patch.slug == change.subject else patch for patch in patches]
    if change.before is None or all(patch.slug != change.subject for patch in patches):
        kept.append(change.after)
    return tuple(sorted((patch for patch in kept if patch is not None), key=lambda patch: patch.number))


def _settings(axis: Axis, *, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """What differs in one mapping: the bad end's names in its order, then those that only the good end has."""
    for name in dict.fromkeys([*after, *before]):
        if before.get(name) != after.get(name):
            yield Change(axis=axis, subject=name, before=before.get(name), after=after.get(name))


def _base_key(base: Base) -> str:
    return base.rev or base.pin.commit


def _renumbered(good: Point, bad: Point) -> Point:
    """The good end with the numbers of the bad end, so that number order means one thing on the whole timeline.

    Patches of both ends that keep their order take the bad end's numbers. The others keep their own where it fits
    between their neighbours, else they take that of the patch before them.
    """
    slugs = [patch.slug for patch in good.patches]
    targets = {patch.slug: patch for patch in bad.patches}
    common = _same_order(slugs, [patch.slug for patch in bad.patches])
    ceilings = _next_numbers(slugs, {slug: targets[slug].number for slug in common})
    patches: list[Patch] = []
    floor = 0
    for patch, ceiling in zip(good.patches, ceilings, strict=True):
        if patch.slug in common:
            target = targets[patch.slug]
            patch = target if target.text == patch.text else replace(patch, number=target.number)
        elif not floor <= patch.number <= ceiling:
            patch = replace(patch, number=floor)
        floor = patch.number
        patches.append(patch)
    return replace(good, patches=tuple(patches))


def _same_order(good: Sequence[str], bad: Sequence[str]) -> set[str]:
    blocks = difflib.SequenceMatcher(a=good, b=bad, autojunk=False).get_matching_blocks()
    return {good[block.a + offset] for block in blocks for offset in range(block.size)}


def _next_numbers(slugs: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    """For each patch, the number of the next common patch less one; a large one after the last."""
    ceilings: list[int] = []
    ceiling = 9999
    for slug in reversed(slugs):
        ceilings.append(ceiling)
        if slug in numbers:
            ceiling = numbers[slug] - 1
    return ceilings[::-1]


def _edits(good: Sequence[Patch], bad: Sequence[Patch]) -> list[Change]:
    """Queue edits in number order of the bad end; what is only removed comes first, the last one first."""
    before = {patch.slug: patch for patch in good}
    after = {patch.slug: patch for patch in bad}
    removed = [Change(axis=Axis.QUEUE, subject=s, before=before[s], after=None) for s in before if s not in after]
    others = [
        Change(axis=Axis.QUEUE, subject=patch.slug, before=before.get(patch.slug), after=patch)
        for patch in bad
        if not _same(before.get(patch.slug), patch)
    ]
    return [*reversed(removed), *others]


def _same(before: Patch | None, after: Patch) -> bool:
    return before is not None and (before.text, before.number) == (after.text, after.number)


def _ordered(start: Point, bad: Point, *, applies: Applies) -> list[Change]:
    """The queue edits in an order in which each queue on the way applies, inseparable ones grouped."""
    left = _edits(start.patches, bad.patches)
    patches = start.patches
    ordered: list[Change] = []
    while left:
        step = _next_step(patches, left, base=bad.base, applies=applies)
        ordered.append(step)
        taken = step.parts or (step,)
        patches = _after(patches, taken)
        left = [change for change in left if change not in taken]
    return ordered


def _next_step(patches: tuple[Patch, ...], left: Sequence[Change], *, base: Base, applies: Applies) -> Change:
    """The first edit after which the queue applies; where there is none, a group that none can be left out of."""
    if len(left) == 1:
        return left[0]

    def works(chosen: Sequence[Change]) -> bool:
        queue = _after(patches, chosen)
        return _broken(queue) <= _broken(patches) and applies(base, queue)

    for change in left:
        if works([change]):
            return change
    group = next((left[:size] for size in range(2, len(left)) if works(left[:size])), left)
    for change in reversed(group):
        smaller = [other for other in group if other is not change]
        if smaller and works(smaller):
            group = smaller
    return _group(group)


def _after(patches: tuple[Patch, ...], changes: Collection[Change]) -> tuple[Patch, ...]:
    for change in changes:
        patches = _edited(patches, change)
    return patches


def _broken(queue: Sequence[Patch]) -> set[tuple[str, str]]:
    """Patches that say they require what is not there; a step may not add to them."""
    slugs = {patch.slug for patch in queue}
    return {(patch.slug, slug) for patch in queue for slug in requires(patch) if slug not in slugs}


def _group(changes: Sequence[Change]) -> Change:
    subject = "+".join(change.subject for change in changes)
    return Change(axis=Axis.QUEUE, subject=subject, before=None, after=None, parts=tuple(changes))
