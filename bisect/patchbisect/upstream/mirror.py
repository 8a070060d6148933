"""The mirror: a bare repository in which every point's code is a real commit."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from patchbisect.config import Project
from patchbisect.errors import BoxError, PointUnbuildable
from patchbisect.model import Base, CodeCommit, Patch, Pin
from patchbisect.patchqueue import PatchFault, compose, format_patch
from patchbisect.upstream.context import ContextHistory, commit_in
from patchbisect.upstream.exact import commit_object, import_exactly
from patchbisect.upstream.git import Git
from patchbisect.upstream.history import Way, commits_between, releases_between
from patchbisect.upstream.ladder import Workbench
from patchbisect.upstream.needs import PROJECT_FILE, Need, Needs, needs_of_project
from patchbisect.upstream.sources import (
    PACKAGE,
    BaseCode,
    CodeSource,
    GitSource,
    NotAnswering,
    ReleaseSource,
    release_of,
)

_POINTS = "refs/patchbisect/points"
_SHIFTS = "refs/patchbisect/shifts"

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Step:
    """One commit of a chain: its point id, and what every patch up to it had to be moved."""

    point: str
    commit: str
    shifted: tuple[str, ...]


class Mirror:
    """SGLang's code for any point, below ``state``: ``mirror.git`` and the ``wheels`` it was made from.

    ``source`` is ``git``, ``release`` or ``auto``. Auto takes what the mirror already holds (git first), so that
    a base keeps its commit id from one command to the next; else git if it answers; else the release.
    ``say`` is told what takes long. Safe for several processes at once.
    """

    def __init__(
        self,
        state: Path,
        *,
        source: str = "auto",
        clone: str = "",
        pip_args: Sequence[str] = (),
        say: Say = lambda text: None,
    ) -> None:
        self.path = state / "mirror.git"
        self._store = Git(self.path)
        git = GitSource(self._store, past=Git(state / "history.git"), clone=clone, say=say)
        release = ReleaseSource(self._store, wheels=state / "wheels", pip_args=tuple(pip_args), say=say)
        sources: dict[str, tuple[CodeSource, ...]] = {"git": (git,), "release": (release,), "auto": (git, release)}
        self._sources = sources[source]
        self._git, self._release, self._pip_args = git, release, tuple(pip_args)
        self._needs: dict[str, tuple[Need, ...]] = {}
        self._bases: dict[Base, BaseCode] = {}
        self._pins: dict[str, None] = {}

    @classmethod
    def of(cls, project: Project, *, say: Say = lambda text: None) -> Mirror:
        """The mirror of a project, as its settings say."""
        upstream = project.settings.upstream
        return cls(
            project.state, source=upstream.source, clone=upstream.clone or "", pip_args=upstream.pip_args, say=say
        )

    def base(self, base: Base) -> BaseCode:
        """A base as a commit of the mirror, fetched if need be.

        Raises BoxError when no source can be reached; UsageError for a revision that is not there, and for a
        checksum that differs.
        """
        # Patches were made for one of the pins that were seen.
        self._pins[base.pin.commit] = None
        if base not in self._bases:
            with self._alone():
                cached = (source.cached(base) for source in self._sources)
                self._bases[base] = next(filter(None, cached), None) or self._first(lambda source: source.fetch(base))
        return self._bases[base]

    def freeze(self, base: Base) -> Base:
        """The same base by a name that never moves: a commit id, or ``release:0.5.8``. Raises as ``base`` does."""
        if base.rev in ("", base.pin.tag, base.pin.commit):
            return Base(pin=base.pin)
        with self._alone():
            return self._first(lambda source: source.freeze(base))

    def route(self, good: Base, bad: Base, *, way: Way | None = None) -> tuple[Base, ...]:
        """The bases after ``good`` up to ``bad``, oldest first: commits of a clone or of the URL, else releases.

        All commits are in the mirror then: what follows needs no network.

        Raises UsageError where they do not lie on one line, BoxError where nothing can tell.
        """
        if self._git not in self._sources or bad.rev.startswith("release:"):
            return releases_between(good, bad, pip_args=self._pip_args)
        way = way or Way()
        try:
            with self._alone():
                history = self._git.clone_folder() or self._git.history(good, bad, whole=not way.first_parent)
        except NotAnswering as silent:
            if len(self._sources) > 1 and release_of(good) and release_of(bad):
                return releases_between(good, bad, pip_args=self._pip_args)
            raise BoxError(silent.message, remedy=silent.remedy) from silent
        bases = commits_between(history, good, bad, way)
        with self._alone():
            missing = [base for base in bases if self._git.cached(base) is None]
            if missing:
                self._git.fetch_all(missing)
        return bases

    def needs(self, base: Base, code: CodeCommit, *, pin: Pin) -> Needs:
        """What a point's code asks for, beside what ``pin`` does. Raises as ``base`` does."""
        wanted = self._needs_at(base, commit=code.commit, source=code.source)
        if not wanted:
            return Needs()
        at_pin = self.base(Base(pin=pin))
        before = self._needs_at(Base(pin=pin), commit=at_pin.commit, source=at_pin.source)
        return Needs(pin=before, base=wanted) if before else Needs()

    def _needs_at(self, base: Base, *, commit: str, source: str) -> tuple[Need, ...]:
        if commit not in self._needs:
            text = self.read(commit, PROJECT_FILE)
            if text is not None:
                self._needs[commit] = needs_of_project(text)
            elif source.startswith("release "):
                with self._alone():
                    self._needs[commit] = self._release.needs(base)
            else:
                self._needs[commit] = ()
        return self._needs[commit]

    def difference(self, before: Base, after: Base) -> Patch:
        """What leads from one base to another in what runs, as a patch. Raises PointUnbuildable, BoxError."""
        trees = [self.base(base).commit for base in (before, after)]
        diff = self._store.output(
            "diff", "--full-index", "--no-color", "--no-ext-diff", *trees, "--", PACKAGE, PROJECT_FILE
        )
        names = [_short_name(base) for base in (before, after)]
        try:
            return compose(
                number=1,
                slug=f"from-{names[0]}-to-{names[1]}",
                author="patchbisect <patchbisect@patchbisect.invalid>",
                date="Thu, 01 Jan 1970 00:00:00 +0000",
                subject=f"From {names[0]} to {names[1]}",
                body=after.subject,
                trailers=[("Kind", "backport"), ("Forwarded", "not-needed")],
                diff=diff.decode("utf-8", "surrogateescape"),
            )
        except PatchFault as fault:
            raise PointUnbuildable(f"what leads from {before} to {after} is no patch: {fault}") from fault

    def materialize(self, base: Base, patches: Sequence[Patch], *, exact: bool = False) -> CodeCommit:
        """The code of a point as a commit: the base, then one commit per patch. The same input is the same commit.

        With ``exact`` (the queue in order at the pin) each hunk must stand where its patch says. Otherwise a patch
        may be merged 3-way or, where its text stands in one place only, moved; ``shifted`` tells it.
        Patches whose ``Upstream:`` range the base is outside of are left out; ``shifted`` tells that too.
        What was built before costs nothing. Raises PointUnbuildable, which names patch, hunk and, where a clone tells
        it, the upstream commit that moved the context; and what ``base`` raises.
        """
        try:
            return self._materialized(base, patches, exact=exact)
        except PointUnbuildable as error:
            raise self._blamed(error, base, patches) from error

    def _materialized(self, base: Base, patches: Sequence[Patch], *, exact: bool) -> CodeCommit:
        code = self.base(base)
        left_out = self._out_of_range(base, patches)
        patches = [patch for patch in patches if patch.name not in left_out]
        points = _point_ids(code.commit, patches)
        step = self._built(points, commit=code.commit)
        if points and step.point != points[-1]:
            with self._alone():
                step = self._built(points, commit=code.commit)
                step = self._build(step, patches, points=points, onto=_shown(base), exact=exact)
        if exact and step.shifted:
            raise PointUnbuildable(
                f"applies only with an offset to {base}: {step.shifted[0]}", patch=step.shifted[0].partition(":")[0]
            )
        [tree] = self._store.ids([f"{step.commit}:{PACKAGE}"])
        return CodeCommit(
            commit=step.commit,
            tree=tree,
            base_commit=code.commit,
            source=code.source,
            patches=tuple(patch.name for patch in patches),
            shifted=(*left_out.values(), *step.shifted),
        )

    def applies(self, base: Base, patches: Sequence[Patch]) -> bool:
        """Whether a point's code can be built."""
        try:
            self._materialized(base, patches, exact=False)
        except PointUnbuildable:
            return False
        return True

    def remember(self, pin: Pin, patches: Sequence[Patch]) -> None:
        """Build a queue at its pin as far as it applies, so that the blobs are there which 3-way merges start from."""
        self.applies(Base(pin=pin), patches)

    def read(self, commit: str, path: str) -> bytes | None:
        """A file of a point's code, None where it is not there."""
        ran = self._store.run("cat-file", "blob", f"{commit}:{path}")
        return ran.out if ran.status == 0 else None

    def line_owner(self, code: CodeCommit, path: str, line: int) -> str:
        """The patch that wrote ``line`` (from 1) of ``path`` (in the repository), ``""`` where the base did."""
        chain = f"{code.base_commit}..{code.commit}"
        ran = self._store.run("blame", "--porcelain", f"-L{line},{line}", chain, "--", path)
        commit = ran.text.partition(" ")[0] if ran.status == 0 else ""
        commits = self._store.text("rev-list", "--reverse", chain).split()
        return dict(zip(commits, code.patches, strict=True)).get(commit, "")

    def _blamed(self, error: PointUnbuildable, base: Base, patches: Sequence[Patch]) -> PointUnbuildable:
        """The error, and which upstream commit moved the context that it is about."""
        patch = next((patch for patch in patches if patch.name == error.patch), None)
        own = base.pin.commit if base.rev in ("", base.pin.tag) else base.rev
        pins = [pin for pin in self._pins if pin != own]
        if patch is None or not error.place or not pins:
            return error
        folder = self._git.clone_folder()
        if folder is None:
            remedy = f"{error.remedy} With upstream.clone set, the upstream commit behind it is named."
            return PointUnbuildable(error.message, patch=error.patch, place=error.place, remedy=remedy)
        clone = Git(folder, worktree=True)
        path = error.place.partition(", hunk ")[0]
        with self._alone():
            mover = ContextHistory(self._store, clone).told(
                patch, path=path, starts=pins, target=commit_in(clone, base)
            )
        message = f"{error.message}; {mover}" if mover else error.message
        return PointUnbuildable(message, patch=error.patch, place=error.place, remedy=error.remedy)

    def _out_of_range(self, base: Base, patches: Sequence[Patch]) -> dict[str, str]:
        """What is told of each patch that is not for this base, by its name."""
        told: dict[str, str] = {}
        for patch in patches:
            commits = patch.trailer("Upstream")
            answers = (source.within(base, commits) for source in self._sources) if commits else ()
            if next((answer for answer in answers if answer is not None), True) is False:
                told[patch.name] = f"{patch.name}: left out, {base} is not in its Upstream: {commits}"
        return told

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The repository is there, and no other process writes to it: git gives up at once on a lock that is held."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.path / "HEAD").exists():
                self._store.output("init", "--bare", "--quiet", "--template=", str(self.path))
            yield

    def _first(self, ask: Callable[[CodeSource], T]) -> T:
        """The answer of the first source that answers."""
        silent: list[NotAnswering] = []
        for source in self._sources:
            try:
                return ask(source)
            except NotAnswering as error:
                silent.append(error)
        raise BoxError("; ".join(error.message for error in silent), remedy=silent[0].remedy)

    def _built(self, points: Sequence[str], *, commit: str) -> _Step:
        """The longest prefix that is there already; with no point id, the base itself."""
        found = self._store.ids([f"{_POINTS}/{point}" for point in points])
        for point, built in reversed(list(zip(points, found, strict=True))):
            if built:
                told = self._store.run("cat-file", "blob", f"{_SHIFTS}/{point}")
                return _Step(point=point, commit=built, shifted=tuple(json.loads(told.out)) if not told.status else ())
        return _Step(point="", commit=commit, shifted=())

    def _build(self, step: _Step, patches: Sequence[Patch], *, points: Sequence[str], onto: str, exact: bool) -> _Step:
        """Commit each patch after ``step``. What was built before a failure is kept: it is another point's code."""
        done = points.index(step.point) + 1 if step.point else 0
        while True:
            commits = self._import(step, patches[done:], points=points[done:])
            if commits:
                done += len(commits)
                step = _Step(point=points[done - 1], commit=commits[-1], shifted=step.shifted)
            if done == len(patches):
                return step
            step = self._climb(step, patches[done], point=points[done], onto=onto, exact=exact)
            done += 1

    def _import(self, step: _Step, patches: Sequence[Patch], *, points: Sequence[str]) -> list[str]:
        """The commits of the patches that apply exactly, up to the first that does not."""
        if not patches:
            return []
        # Before the points: one that is there without its shifts would pass for exact.
        self._store.update_refs(self._shifts(points, step.shifted))
        refs = [f"{_POINTS}/{point}" for point in points]
        done = import_exactly(self._store, patches, parent=step.commit, refs=refs)
        return self._store.ids(refs[:done])

    def _climb(self, step: _Step, patch: Patch, *, point: str, onto: str, exact: bool) -> _Step:
        """One patch that does not apply exactly, down the ladder. Raises PointUnbuildable."""
        with tempfile.TemporaryDirectory(prefix="patchbisect-") as scratch:
            tree = self._store.text("rev-parse", f"{step.commit}^{{tree}}")
            bench = Workbench(self._store, index=Path(scratch) / "index", tree=tree, onto=onto)
            applied = bench.apply(patch, exact=exact)
        content = commit_object(patch, tree=applied.tree, parent=step.commit)
        commit = self._store.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=content)
        shifted = (*step.shifted, *applied.shifted)
        self._store.update_refs([*self._shifts([point], shifted), (f"{_POINTS}/{point}", commit)])
        return _Step(point=point, commit=commit, shifted=shifted)

    def _shifts(self, points: Sequence[str], shifted: tuple[str, ...]) -> list[tuple[str, str]]:
        """Refs that keep what was shifted."""
        if not shifted:
            return []
        blob = self._store.text("hash-object", "-w", "--stdin", stdin=json.dumps(shifted).encode())
        return [(f"{_SHIFTS}/{point}", blob) for point in points]


def _shown(base: Base) -> str:
    """A release or tag whole, a commit id short."""
    name = str(base)
    return name[:12] if re.fullmatch(r"[0-9a-f]{40}", name) else name


def _short_name(base: Base) -> str:
    """Fit for a slug, and different for different bases."""
    return re.sub(r"[^a-z0-9]+", "-", _shown(base).lower()).strip("-")


def _point_ids(commit: str, patches: Sequence[Patch]) -> list[str]:
    """An id for each prefix of the patches: sha256 (hex) over the base commit and the patch files in turn."""
    ids: list[str] = []
    last = commit
    for patch in patches:
        last = hashlib.sha256(last.encode() + hashlib.sha256(format_patch(patch)).digest()).hexdigest()
        ids.append(last)
    return ids
