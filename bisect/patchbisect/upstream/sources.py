"""Where the code of a base comes from: a git repository of SGLang, or its released wheels. One interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from patchbisect.errors import BoxError, PatchbisectError, UsageError
from patchbisect.model import Base, Pin
from patchbisect.upstream.git import FULL_ID, WHICH_COMMIT, Git, Ran
from patchbisect.upstream.needs import Need, needs_of_wheel
from patchbisect.upstream.ranges import by_history, by_version, version_of
from patchbisect.upstream.wheels import Wheel, fetch_wheel, import_stream

PACKAGE = "python/sglang"
"""Where SGLang's package lies in its repository, and so in every tree of the mirror."""

_PROBE_S = 20.0
"""How long a repository may take to answer at all (seconds). Arbitrary: a slow link answers in 5."""
_NOT_THERE = ("not our ref", "couldn't find remote ref", "no such remote ref", "unadvertised object")
_SHORT_ID = re.compile(r"[0-9a-f]{7,39}")

Say = Callable[[str], None]


class NotAnswering(BoxError):
    """A source that cannot be reached, or does not serve this kind of revision: another one may."""


@dataclass(frozen=True, slots=True)
class BaseCode:
    """A base as a commit of the mirror; ``source`` is what is told to the user: ``git (URL)``, ``release 0.5.9``."""

    commit: str
    source: str


class CodeSource(Protocol):
    """Gives the code of a base as a commit in the mirror. Same base, same commit id."""

    def cached(self, base: Base) -> BaseCode | None:
        """What the mirror already holds, without the network."""

    def fetch(self, base: Base) -> BaseCode:
        """Get it into the mirror.

        Raises NotAnswering where the source cannot be reached, UsageError where it answers but has no such
        revision or another checksum.
        """

    def freeze(self, base: Base) -> Base:
        """The same base with a revision that never moves: a branch or tag becomes a commit id.

        Raises NotAnswering where the source cannot be reached.
        """

    def within(self, base: Base, commits: str) -> bool | None:
        """Whether the base lies in a range ``A..B`` of upstream; None where this source cannot tell."""


@dataclass(frozen=True, slots=True)
class GitSource:
    """SGLang's repository at its URL, or a local clone of it."""

    store: Git
    past: Git
    """Where the history of a URL is kept, without the contents of files: nothing can be checked out from there, and so
    the mirror, which must serve without a network, has no part in it."""
    clone: str = ""
    say: Say = lambda text: None

    def cached(self, base: Base) -> BaseCode | None:
        rev = base.rev or base.pin.commit
        if not FULL_ID.fullmatch(rev):
            return None
        [commit] = self.store.ids([f"{_git_ref(rev)}^{{commit}}"])
        return BaseCode(commit=commit, source=self._source(base.pin)) if commit else None

    def clone_folder(self) -> Path | None:
        """The settings' clone where it is a folder of this machine. Raises UsageError for one that is not there."""
        return self._clone_folder()

    def fetch_all(self, bases: Sequence[Base]) -> None:
        """Get many commits (full ids) at once. Raises NotAnswering, UsageError."""
        pin = bases[0].pin
        commits = [base.rev or base.pin.commit for base in bases]
        self.say(f"fetching {len(commits)} commits from {self._url(pin)}")
        refs = [f"+{commit}:{_git_ref(commit)}" for commit in commits]
        ran = self.store.fetch("--depth=1", self._url(pin), *refs, say=self.say)
        if ran.status:
            raise self._failure(ran, what=f"one of {len(commits)} commits", pin=pin)

    def history(self, good: Base, bad: Base, *, whole: bool) -> Path:
        """A repository with the commits from ``good`` to ``bad``; without ``whole`` first parents are enough.

        What is there already is not asked for again. Raises NotAnswering, UsageError for a commit that is not there.
        """
        ends = [base.rev or base.pin.commit for base in (good, bad)]
        url = self._url(bad.pin)
        self._prepare_past(url)
        if self._linked(ends, whole=whole):
            return self.past.where
        self._probe(url, pin=bad.pin)
        self.say(f"fetching the history from {ends[0][:12]} to {ends[1][:12]} from {url}")
        self._fetch_past("--depth=1", ends[:1], pin=bad.pin)
        if not whole:
            since = int(self.past.text("log", "-1", "--format=%ct", ends[0])) - _EARLIER_S
            self._fetch_past(f"--shallow-since={max(since, 0)}", ends, pin=bad.pin)
        if not self._linked(ends, whole=whole):
            self._fetch_past("--unshallow" if self._is_shallow() else "--no-auto-gc", ends, pin=bad.pin)
        return self.past.where

    def _prepare_past(self, url: str) -> None:
        if not (self.past.where / "HEAD").exists():
            self.past.output("init", "--bare", "--quiet", "--template=", str(self.past.where))
        settings = {
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "upstream",
            "remote.upstream.url": url,
            "remote.upstream.promisor": "true",
            "remote.upstream.partialCloneFilter": "blob:none",
        }
        for name, value in settings.items():
            self.past.output("config", name, value)

    def _fetch_past(self, how: str, commits: Sequence[str], *, pin: Pin) -> None:
        refs = [f"+{commit}:{_PAST}/{commit}" for commit in commits]
        ran = self.past.fetch(how, "--filter=blob:none", "upstream", *refs, say=self.say)
        if ran.status:
            raise self._failure(ran, what=f"one of {', '.join(commit[:12] for commit in commits)}", pin=pin)

    def _linked(self, ends: Sequence[str], *, whole: bool) -> bool:
        """Whether the way from the first to the second commit is there. By refs: git would fetch a commit it lacks."""
        if not all(self.past.ids([f"{_PAST}/{commit}" for commit in ends])) or (whole and self._is_shallow()):
            return False
        return self.past.run("merge-base", "--is-ancestor", *ends).status == 0

    def _is_shallow(self) -> bool:
        return self.past.text("rev-parse", "--is-shallow-repository") == "true"

    def freeze(self, base: Base) -> Base:
        if not base.rev or FULL_ID.fullmatch(base.rev):
            return base
        if base.rev.startswith("release:"):
            raise NotAnswering(f"{base.rev!r} is a release", remedy="Set upstream.source to release or auto.")
        return Base(pin=base.pin, rev=self._resolve(base))

    def fetch(self, base: Base) -> BaseCode:
        rev = self.freeze(base).rev or base.pin.commit
        url = self._url(base.pin)
        self._probe(url, pin=base.pin)
        self.say(f"fetching {rev[:12]} from {url}")
        ref = _git_ref(rev)
        ran = self.store.fetch("--depth=1", url, f"+{rev}:{ref}", say=self.say)
        if ran.status:
            raise self._failure(ran, what=f"commit {rev[:12]}" if base.rev else f"the pin {rev[:12]}", pin=base.pin)
        _require_package(self.store, ref, what=f"commit {rev[:12]} of {url}")
        return BaseCode(commit=rev, source=self._source(base.pin))

    def within(self, base: Base, commits: str) -> bool | None:
        by_number = by_version(_number(base), commits)
        if by_number is None and (folder := self._clone_folder()):
            return by_history(Git(folder, worktree=True), base.rev or base.pin.commit, commits)
        return by_number

    def _resolve(self, base: Base) -> str:
        """A branch, tag or abbreviation as a full id; only a local clone knows abbreviations."""
        what = f"revision {base.rev!r}"
        if folder := self._clone_folder():
            ran = Git(folder, worktree=True).over_network(*WHICH_COMMIT, f"{base.rev}^{{commit}}")
            if FULL_ID.fullmatch(ran.text):
                return ran.text
            raise self._failure(ran, what=what, pin=base.pin)
        if known := self._known(base.rev):
            return known
        wanted = [f"refs/tags/{base.rev}^{{}}", f"refs/tags/{base.rev}", f"refs/heads/{base.rev}", base.rev]
        ran = self.store.over_network("ls-remote", "--", self._url(base.pin), *wanted, timeout=_PROBE_S)
        if ran.status:
            raise self._failure(ran, what=what, pin=base.pin)
        ids_by_name = {name: commit for commit, _, name in (line.partition("\t") for line in ran.text.splitlines())}
        for name in wanted:
            if name in ids_by_name:
                return ids_by_name[name]
        raise UsageError(
            f"{self._where(base.pin)} has no branch or tag {base.rev!r}",
            remedy="Give a branch, tag or full commit id; HEAD~N, and short ids not met before, need upstream.clone.",
        )

    def _known(self, rev: str) -> str:
        """The commit that a shortened id names among those whose history was fetched; ``""`` for none."""
        if not _SHORT_ID.fullmatch(rev) or not (self.past.where / "HEAD").exists():
            return ""
        return self.past.commit(rev)

    def _probe(self, url: str, *, pin: Pin) -> None:
        """A firewall that swallows packets would hold a fetch for minutes before anyone hears of the release."""
        if not url.startswith("file:"):
            ran = self.store.over_network("ls-remote", "--", url, "HEAD", timeout=_PROBE_S)
            if ran.status:
                raise self._failure(ran, what="HEAD", pin=pin)

    def _clone_folder(self) -> Path | None:
        """The settings' clone where it is a folder of this machine. Raises UsageError for one that is not there."""
        if not self.clone or re.match(r"[\w.+-]+://|[\w.@-]+:", self.clone):
            return None
        folder = Path(self.clone).expanduser()
        if not folder.is_dir():
            raise UsageError(
                f"upstream.clone: there is no folder {folder}", remedy="Clone SGLang there, or drop the key."
            )
        return folder.resolve()

    def _where(self, pin: Pin) -> str:
        return self.clone or pin.upstream

    def _url(self, pin: Pin) -> str:
        folder = self._clone_folder()
        # As a file: URL, so that git copies one commit and not the history.
        return folder.as_uri() if folder else self._where(pin)

    def _source(self, pin: Pin) -> str:
        return f"git ({self._where(pin)})"

    def _failure(self, ran: Ran, *, what: str, pin: Pin) -> PatchbisectError:
        where = self._where(pin)
        silent = not ran.err.strip()
        if silent or any(sign in ran.err for sign in _NOT_THERE):
            update = f"git -C {self.clone} fetch --tags" if self.clone else "check upstream in patches/pin.toml"
            return UsageError(f"{what} is not in {where}", remedy=f"Check the commit, or the repository: {update}.")
        return NotAnswering(
            f"cannot reach {where}: {ran.reason}",
            remedy="Check the network, or set upstream.clone to a local clone, or upstream.source to release.",
        )


@dataclass(frozen=True, slots=True)
class ReleaseSource:
    """Released wheels, taken with pip, laid out as in git and committed in one fixed way."""

    store: Git
    wheels: Path
    pip_args: tuple[str, ...] = ()
    say: Say = lambda text: None

    def cached(self, base: Base) -> BaseCode | None:
        version = release_of(base)
        if not version:
            return None
        sha256 = _pinned_sha256(base.pin, version)
        pattern = f"refs/patchbisect/bases/release/{version}/{sha256[:16] or '*'}"
        found = self.store.text("for-each-ref", "--format=%(objectname)", pattern).split()
        return BaseCode(commit=found[0], source=f"release {version}") if found else None

    def freeze(self, base: Base) -> Base:
        if not base.rev:
            return base
        version = release_of(base)
        if not version:
            raise self._no_release(base)
        return Base(pin=base.pin, rev=f"release:{version}")

    def fetch(self, base: Base) -> BaseCode:
        version = release_of(base)
        if not version:
            raise self._no_release(base)
        wheel = fetch_wheel(
            version=version,
            sha256=_pinned_sha256(base.pin, version),
            folder=self.wheels,
            pip_args=self.pip_args,
            say=self.say,
        )
        return BaseCode(commit=self._commit(wheel), source=f"release {version}")

    def needs(self, base: Base) -> tuple[Need, ...]:
        """What the release asks for, by its wheel, which is taken again where it is gone. Raises as ``fetch`` does."""
        version = release_of(base)
        wheel = fetch_wheel(
            version=version,
            sha256=_pinned_sha256(base.pin, version),
            folder=self.wheels,
            pip_args=self.pip_args,
            say=self.say,
        )
        return needs_of_wheel(wheel.path)

    def within(self, base: Base, commits: str) -> bool | None:
        return by_version(_number(base), commits)

    def _commit(self, wheel: Wheel) -> str:
        ref = f"refs/patchbisect/bases/release/{wheel.version}/{wheel.sha256[:16]}"
        self.store.output("fast-import", "--quiet", "--force", stdin=import_stream(wheel, ref=ref, folder="python"))
        _require_package(self.store, ref, what=wheel.path.name)
        return self.store.text("rev-parse", ref)

    def _no_release(self, base: Base) -> NotAnswering:
        if not base.rev:
            return NotAnswering("patches/pin.toml names no release", remedy="Add release and wheel_sha256, or use git.")
        return NotAnswering(
            f"{base.rev!r} is not a release: only git has it",
            remedy="Set upstream.clone to a local clone, or name a release such as v0.5.8.",
        )


def release_of(base: Base) -> str:
    """The version of a base's release, ``""`` where its name is none: ``v0.5.8`` and ``release:0.5.8`` are 0.5.8."""
    if not base.rev or base.rev in (base.pin.tag, base.pin.commit):
        return base.pin.release
    return version_of(base.rev)


def _number(base: Base) -> str:
    """The version of a base, be it released or a tag."""
    return release_of(base) or ("" if base.rev else version_of(base.pin.tag))


def _pinned_sha256(pin: Pin, version: str) -> str:
    return pin.wheel_sha256 if version == pin.release else ""


_PAST = "refs/patchbisect/history"
_EARLIER_S = 30 * 86400
"""So much before the first commit history is fetched (seconds): the dates of commits are not in their order."""


def _git_ref(commit: str) -> str:
    return f"refs/patchbisect/bases/git/{commit}"


def _require_package(store: Git, ref: str, *, what: str) -> None:
    [tree] = store.ids([f"{ref}:{PACKAGE}"])
    if not tree:
        raise UsageError(f"{what} has no {PACKAGE}: it is not SGLang", remedy="Check upstream in patches/pin.toml.")
