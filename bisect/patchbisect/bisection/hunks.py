"""Inside a guilty patch: each of its hunks as a change of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from patchbisect.model import Axis, Change, Patch, Point, Timeline
from patchbisect.patchqueue import Hunk, compose, diff_of

_WHOLE = re.compile(r"^(new file mode|deleted file mode|rename from|copy from|old mode) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a diff that can be applied by itself; ``place`` is ``srt/x.py:146``."""

    place: str
    diff: str


def hunk_timeline(parent: Point, culprit: Point, patch: Patch) -> Timeline | None:
    """From the point without ``patch`` to the one with it, hunk by hunk; None where there is only one.

    A file that is created, deleted, renamed or changes its mode is one piece.
    """
    pieces = list(_pieces(patch))
    if len(pieces) < 2:
        return None
    changes = tuple(
        Change(axis=Axis.QUEUE, subject=part.slug, before=None, after=part)
        for part in (_part(patch, piece, k=k, of=len(pieces)) for k, piece in enumerate(pieces, start=1))
    )
    return Timeline(good=parent, bad=replace(culprit, name=f"{culprit.name} (all of {patch.name})"), changes=changes)


def _part(patch: Patch, piece: _Piece, *, k: int, of: int) -> Patch:
    return compose(
        number=patch.number,
        slug=f"{patch.slug}-hunk-{k}",
        author=patch.author,
        date=patch.date,
        subject=f"hunk {k} of {of}, {piece.place}",
        body="",
        trailers=[(key, value) for key, value in patch.trailers if key.lower() in ("kind", "forwarded")],
        diff=piece.diff,
    )


def _pieces(patch: Patch) -> Iterator[_Piece]:
    lines = patch.text.split("\n")
    diff = diff_of(patch)
    starts = [file.line - 1 for file in diff.files] + [diff.end]
    for file, begin, end in zip(diff.files, starts, starts[1:], strict=False):
        section = lines[begin:end]
        heads = [hunk.line - 1 - begin for hunk in file.hunks] + [len(section)]
        header = section[: heads[0]]
        place = file.path.removeprefix("python/sglang/")
        if len(file.hunks) < 2 or _WHOLE.search("\n".join(header)):
            line = f":{file.hunks[0].first_new_line}" if file.hunks else ""
            yield _Piece(place=f"{place}{line}", diff="\n".join(section) + "\n")
            continue
        for hunk, first, last in zip(file.hunks, heads, heads[1:], strict=False):
            text = "\n".join([*header, _alone(hunk, section[first]), *section[first + 1 : last]]) + "\n"
            yield _Piece(place=f"{place}:{hunk.first_new_line}", diff=text)


def _alone(hunk: Hunk, header: str) -> str:
    """The header of a hunk that no other hunk comes before: it stands where it stood in the old file."""
    new_start = hunk.first_old_line if hunk.new_count else hunk.first_old_line - 1
    place = f"@@ -{hunk.old_start},{hunk.old_count} +{new_start},{hunk.new_count} @@"
    return place + header.partition(" @@")[2]
