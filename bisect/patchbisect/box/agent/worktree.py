"""Directories that the user looks at: nothing that they changed there is lost."""

from __future__ import annotations

import contextlib
import os
import time

from .base import Refused
from .git import EMPTY_TREE, blob_id, blob_mtime, git, tree_id


class WorkTree:
    """A directory that the user looks at: ``applied/``, with a repository of ours, or their own checkout."""

    def __init__(self, path: str, *, repo: str = "", index: str = "") -> None:
        self.path = path
        self._own = bool(repo)
        self._repo = repo or os.path.join(path, git("-C", path, "rev-parse", "--git-dir").strip())
        self._env = {"GIT_INDEX_FILE": index} if index else {}
        self._head = "refs/patchbisect/applied" if self._own else "HEAD"

    def _git(self, *words: str, env: dict[str, str] | None = None) -> str:
        return git("--work-tree", self.path, *words, repo=self._repo, env={**self._env, **(env or {})}, cwd=self.path)

    def commit(self) -> str:
        """The commit it is at; empty before the first time."""
        return (
            self._git("for-each-ref", "--format=%(objectname)", self._head).strip()
            if self._own
            else self._head_commit()
        )

    def _head_commit(self) -> str:
        return self._git("rev-parse", "--verify", "HEAD").strip()

    def tree(self, commit: str) -> str:
        return self._git("rev-parse", f"{commit}:python/sglang").strip()

    def proven(self) -> str:
        """The tree id of ``python/sglang`` from the bytes on disk, without what git does not track."""
        folder = "python/sglang"
        others = self._git("ls-files", "--others", "-z", "--", folder).split("\0")
        ignore = frozenset(name[len(folder) + 1 :] for name in others if name)
        return tree_id(f"{self.path}/{folder}", ignore=ignore) if os.path.isdir(f"{self.path}/{folder}") else ""

    def changed(self) -> list[str]:
        """Tracked files that differ from the commit, and in ``applied/`` files that were added to the package.

        The package is compared byte by byte: git itself trusts size and time, and ours say little (see ``_stamp``).
        """
        commit = self.commit()
        if not commit:
            return []
        self._refresh()
        found = set(self._git("diff-index", "--name-only", "-z", commit).split("\0"))
        for line in filter(None, self._git("ls-tree", "-r", "-z", commit, "--", "python/sglang").split("\0")):
            about, _, name = line.partition("\t")
            if self._blob(name) != about.split()[2]:
                found.add(name)
        return sorted(filter(None, found | set(self._added())))

    def _blob(self, name: str) -> str:
        path = f"{self.path}/{name}"
        try:
            if os.path.islink(path):
                return blob_id(os.fsencode(os.readlink(path)))
            with open(path, "rb") as file:
                return blob_id(file.read())
        except OSError:
            return ""

    def _added(self) -> list[str]:
        """Files in the package of ``applied/`` that are in no commit. In the user's checkout they are the user's."""
        if not self._own:
            return []
        words = ("ls-files", "--others", "-z", "--exclude=__pycache__", "--", "python/sglang")
        return [name for name in self._git(*words).split("\0") if name]

    def _in_the_way(self, before: str, commit: str) -> list[str]:
        """Files that are in no commit, ignored ones too, and that checking out ``commit`` would overwrite or remove."""
        if not before:
            return []
        listed = set(self._git("ls-tree", "-r", "--name-only", "-z", before).split("\0"))
        words = ("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=A", "--name-only", before, commit)
        found: set[str] = set()
        for name in filter(None, self._git(*words).split("\0")):
            parents = [name[:at] for at, letter in enumerate(name) if letter == "/"]
            for path in (*parents, name):
                if path not in listed and self._is_file(path):
                    found.add(path)
                    break
            else:
                found |= {below for below in self._files_below(name) if below not in listed}
        return sorted(found)

    def _is_in(self, commit: str, name: str) -> bool:
        """Whether the file on disk is that of the commit, byte for byte."""
        listed = self._git("ls-tree", "-z", commit, "--", name).split()
        return bool(listed) and self._blob(name) == listed[2]

    def _is_file(self, name: str) -> bool:
        path = f"{self.path}/{name}"
        return os.path.islink(path) or os.path.isfile(path)

    def _files_below(self, name: str) -> set[str]:
        top = f"{self.path}/{name}"
        return {
            os.path.relpath(os.path.join(folder, file), self.path)
            for folder, _, files in os.walk(top)
            for file in files
            if not os.path.islink(top)
        }

    def _refresh(self) -> None:
        with contextlib.suppress(Refused):  # it says so with an exit code when a file needs an update
            self._git("update-index", "-q", "--really-refresh")

    def bring_to(self, commit: str, *, rescue: bool, objects: str) -> tuple[bool, str]:
        """Check out ``commit``. Returns whether anything was written, and a note. Raises Refused(dirty)."""
        os.makedirs(self.path, exist_ok=True)
        before = self.commit()
        if not self._own and before != commit:
            self._git("fetch", "--quiet", "--no-tags", "--no-auto-gc", objects, f"refs/patchbisect/{commit}")
        in_the_way = self._in_the_way(before, commit)
        changed = sorted({*self.changed(), *(name for name in in_the_way if not self._is_in(commit, name))})
        notes = []
        if changed:
            if not rescue:
                names = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
                raise Refused(
                    "dirty",
                    f"{self.path} on the box was changed by hand: {names}",
                    "look at the change there; --rescue keeps it under refs/patchbisect/rescued/ and goes on",
                )
            notes.append(f"what was changed by hand is kept as {self._rescue(before, changed)} in {self._repo}")
        if before == commit and not changed:
            return False, ""
        for name in changed:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}/{name}")
        if self._own:
            self._git("read-tree", "--reset", "-u", commit)
            self._git("update-ref", self._head, commit)
        else:
            branch = self._git("rev-parse", "--abbrev-ref", "HEAD").strip()
            self._git("checkout", "--quiet", "--detach", *(["--force"] if changed or in_the_way else []), commit)
            notes.append(f"it was at {branch if branch != 'HEAD' else before}")
        self._stamp(before, commit)
        return True, "; ".join(notes)

    def _rescue(self, before: str, changed: list[str]) -> str:
        """Keep the files as they are now in a commit of their own."""
        scratch = {"GIT_INDEX_FILE": f"{self._repo}/rescue.{os.getpid()}"}
        try:
            self._git("read-tree", before, env=scratch)
            self._git("add", "--all", "--force", "--", *changed, env=scratch)
            tree = self._git("write-tree", env=scratch).strip()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(scratch["GIT_INDEX_FILE"])
        who = {f"GIT_{role}_{what}": "patchbisect" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        kept = self._git("commit-tree", tree, "-p", before, "-m", "Changed by hand on the box", env=who).strip()
        name = f"refs/patchbisect/rescued/{time.strftime('%Y%m%d-%H%M%S')}-{kept[:8]}"  # two within a second are two
        self._git("update-ref", name, kept)
        return name

    def _stamp(self, before: str, commit: str) -> None:
        """Give each file that changed a time that says what is in it; see blob_mtime."""
        start = before or EMPTY_TREE
        if not before:
            self._git("hash-object", "-t", "tree", "-w", os.devnull)
        fields = self._git("diff-tree", "-r", "-z", "--diff-filter=d", start, commit).split("\0")
        for about, name in zip(fields[0::2], fields[1::2]):
            path = f"{self.path}/{name}"
            if name.endswith(".py") and os.path.isfile(path):
                stamp = blob_mtime(about.split()[3])
                os.utime(path, (stamp, stamp), follow_symlinks=False)
        self._refresh()
