"""Which upstream commit took the context of a patch away: asked of a clone's history, and only when it is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from patchbisect.errors import BoxError
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import FileDiff, apply_exactly, diff_of, misfits
from patchbisect.patchqueue.diff import Diff
from patchbisect.upstream.git import Git
from patchbisect.upstream.merging import Clash, merged
from patchbisect.upstream.sources import release_of

_NAMED = 3
"""How many commits are named where none alone can be blamed. Arbitrary: what fits in a line."""
_MODE = "100644"
_MOVERS = "refs/patchbisect/movers"


@dataclass(frozen=True, slots=True)
class _Step:
    """A file after one step on the way from the pin to a base: ``blob`` is ``""`` where it is not there.

    ``undone``: the base does not have that commit, so that its way there goes back over it.
    """

    blob: str
    commit: str = ""
    undone: bool = False


@dataclass(slots=True)
class ContextHistory:
    """What a clone of SGLang knows of the way from one commit to another. ``store`` has the blobs of the patches."""

    store: Git
    clone: Git
    _fits: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def told(self, patch: Patch, *, path: str, starts: Sequence[str], target: str) -> str:
        """As ``mover``, worked out once for a patch and a base; ``""`` where the clone cannot tell."""
        asked = "\0".join([patch.text, path, target, *starts]).encode("utf-8", "surrogateescape")
        ref = f"{_MOVERS}/{hashlib.sha256(asked).hexdigest()}"
        known = self.store.run("cat-file", "blob", ref)
        if known.status == 0:
            return known.out.decode("utf-8", "surrogateescape")
        try:
            mover = self.mover(patch, path=path, starts=starts, target=target)
        except BoxError:
            # A clone that is damaged, or partial and offline, names no commit; the verdict stands without it.
            return ""
        content = mover.encode("utf-8", "surrogateescape")
        self.store.update_refs([(ref, self.store.text("hash-object", "-w", "--stdin", stdin=content))])
        return mover

    def mover(self, patch: Patch, *, path: str, starts: Sequence[str], target: str) -> str:
        """What to say of the commit that moved the context of ``patch`` in ``path``; ``""`` where none did.

        ``starts`` are pins: at the one that the patch was made for it fits, at ``target`` it does not, and the commit
        is the one in between at which that changes, by the same 3-way merge that the patch is applied with. Where
        that cannot be told, the newest commits that changed the file are named. Raises BoxError where git fails.
        """
        file = next((file for file in diff_of(patch).files if path in (file.old_path, file.new_path)), None)
        ways = [steps for start in starts if len(steps := self._steps(path, start=start, target=target)) > 1]
        if file is None or not ways:
            return ""
        for steps in ways:
            first = self._first_fit(patch, file, steps)
            if first is not None:
                return self._told(patch, file, steps[first:], start=steps[first])
        return self._changers(path, ways[0])

    def _told(self, patch: Patch, file: FileDiff, steps: Sequence[_Step], *, start: _Step) -> str:
        """``steps`` begin where the patch fits."""
        if self._fits_on(patch, file, start, steps[-1]):
            # Not upstream's doing: a patch that this one builds on is missing.
            return ""
        fits, not_any_more = 0, len(steps) - 1
        while not_any_more - fits > 1:
            middle = (fits + not_any_more) // 2
            if self._fits_on(patch, file, start, steps[middle]):
                fits = middle
            else:
                not_any_more = middle
        found = steps[not_any_more]
        commit = self._named(found.commit)
        if found.undone:
            return f"its context came with upstream commit {commit}, which is not in there"
        if file.old_path is None:
            return f"upstream commit {commit} added the file"
        return f"upstream commit {commit} {'moved its context' if found.blob else 'took the file away'}"

    def _steps(self, path: str, *, start: str, target: str) -> list[_Step]:
        """The file at ``start``, then back to where the two part, then on to ``target``."""
        fork = self.clone.run("merge-base", start, target)
        if fork.status:
            return []
        listing = ("log", "--first-parent", "--format=%H")
        back = self.clone.text(*listing, f"{fork.text}..{start}", "--", path).split()
        forth = self.clone.text(*listing, "--reverse", f"{fork.text}..{target}", "--", path).split()
        revisions = [start, *(f"{commit}^" for commit in back), *forth]
        blobs = self.clone.ids([f"{revision}:{path}" for revision in revisions])
        undone = len(back)
        return [
            _Step(blob=blob, commit=commit, undone=0 < at <= undone)
            for at, (blob, commit) in enumerate(zip(blobs, ["", *back, *forth], strict=True))
        ]

    def _first_fit(self, patch: Patch, file: FileDiff, steps: Sequence[_Step]) -> int | None:
        """Where to count from: the newest place that has the very file which the patch was made on, or the start."""
        made_on = [at for at, step in enumerate(steps) if file.old_blob and step.blob.startswith(file.old_blob)]
        if made_on and made_on[-1] < len(steps) - 1:
            return made_on[-1]
        return 0 if self._fits_on(patch, file, steps[0], steps[0]) else None

    def _fits_on(self, patch: Patch, file: FileDiff, start: _Step, step: _Step) -> bool:
        key = (patch.text, file.path, start.blob, step.blob)
        if key not in self._fits:
            self._fits[key] = self._merges(file, start=start.blob, there=step.blob)
        return self._fits[key]

    def _merges(self, file: FileDiff, *, start: str, there: str) -> bool:
        if file.old_path is None or not there:
            return file.old_path is None and not there
        text = _text(self.clone, there)
        if not (start and self.store.ids([file.old_blob])[0]):
            return all(len(misfit.places) == 1 for misfit in misfits(file, text))
        made_on = _text(self.store, file.old_blob)
        after = apply_exactly(
            Diff(files=(file,), end=0),
            mode_of=lambda path: _MODE if path == file.old_path else None,
            read=lambda _: made_on,
        )
        changed = after.get(file.path) if after else None
        # What earlier patches of the queue did to the file comes first.
        prepared = self._merged(text, path=file.path, base=_text(self.clone, start), other=made_on)
        if prepared is None or changed is None:
            return prepared is not None
        return self._merged(prepared, path=file.path, base=made_on, other=changed.text) is not None

    def _merged(self, text: str, *, path: str, base: str, other: str) -> str | None:
        """``text`` with what leads from ``base`` to ``other``; None where they are in conflict."""
        if text == base or base == other:
            return other if text == base else text
        there, before, wanted = (side.encode("utf-8", "surrogateescape") for side in (text, base, other))
        found = merged(self.store, path=path, there=there, before=before, wanted=wanted)
        return None if isinstance(found, Clash) else found.decode("utf-8", "surrogateescape")

    def _changers(self, path: str, steps: Sequence[_Step]) -> str:
        newest = [commit for commit, _ in groupby(step.commit for step in reversed(steps[1:]))][:_NAMED]
        return f"{path.rpartition('/')[2]} was changed by {'; '.join(map(self._named, newest))}"

    def _named(self, commit: str) -> str:
        subject = self.clone.text("log", "-1", "--format=%s", commit)
        return f"{commit[:12]} ({subject})" if subject else commit[:12]


def commit_in(clone: Git, base: Base) -> str:
    """The commit of a base in a clone; a release by its tag. ``""`` where the clone does not have it."""
    rev = base.rev or base.pin.commit
    name = f"v{release_of(base)}" if rev.startswith("release:") else rev
    return clone.commit(name)


def _text(git: Git, blob: str) -> str:
    return git.blobs([blob])[0].decode("utf-8", "surrogateescape")
