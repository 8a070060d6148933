"""Two revisions of the queue's own repository: its commits (pull requests) first, then inside the guilty one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from patchbisect.config import PIN_FILE
from patchbisect.errors import PointUnbuildable, UsageError
from patchbisect.model import Axis, Change, Point, Timeline
from patchbisect.points import PointResolver
from patchbisect.timeline import Applies, Route, timeline
from patchbisect.upstream import Git


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    subject: str


def revision_timeline(
    resolver: PointResolver, good: Point, bad: Point, *, names: tuple[str, str], applies: Applies, route: Route
) -> Timeline | None:
    """From one revision to a later one: each first-parent commit that touches ``patches/`` is a change.

    A commit that makes one change is that change; one that makes several is a group under the commit's name. None
    where the names are not two revisions of which the first comes before the second, with commits in between.
    Commits whose queue cannot be read or built are taken together with the next one.
    """
    commits = _commits(Git(resolver.root, worktree=True), *names)
    if len(commits) < 2:
        return None
    stops, changes = [good], []
    for commit in commits:
        point = bad if commit is commits[-1] else _point(resolver, commit, good)
        if point is None:
            continue
        point = replace(point, flags=good.flags, env=good.env, packages=good.packages, profile=good.profile)
        made = timeline(stops[-1], point, applies=applies, route=route).changes
        if made:
            changes.append(_change(commit, made))
            stops.append(point)
    settings = timeline(replace(good, base=bad.base, patches=bad.patches), bad, applies=applies).changes
    return Timeline(good=good, bad=bad, changes=(*changes, *settings), stops=tuple(stops))


def _commits(repository: Git, first: str, last: str) -> list[_Commit]:
    """Oldest first; empty where these are no two revisions on one line."""
    names = [name.partition("@")[0].removeprefix("ref:") if "@{" not in name else name for name in (first, last)]
    start, end = map(repository.commit, names)
    if not start or not end or repository.run("merge-base", "--is-ancestor", start, end).status:
        return []
    folder = PIN_FILE.parent.name
    listed = repository.text("log", "--first-parent", "--reverse", "--format=%H %s", f"{start}..{end}", "--", folder)
    return [_Commit(id=line.partition(" ")[0], subject=line.partition(" ")[2]) for line in listed.splitlines()]


def _point(resolver: PointResolver, commit: _Commit, good: Point) -> Point | None:
    try:
        return resolver.resolve(commit.id, profile=good.profile).point
    except (UsageError, PointUnbuildable):
        return None


def _change(commit: _Commit, made: tuple[Change, ...]) -> Change:
    if len(made) == 1:
        return made[0]
    note = f"commit {commit.id[:12]}: {commit.subject}"
    return Change(axis=Axis.QUEUE, subject=commit.id[:12], before=None, after=None, parts=made, note=note)
