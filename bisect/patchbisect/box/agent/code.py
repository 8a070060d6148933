"""Code by content: trees that are written once, checked by hash, and never go stale."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import stat
import subprocess
import time
from typing import NamedTuple

from .base import Refused, read_json, write_json
from .git import blob_mtime, borrowable_objects, git, tree_id
from .rundir import unfinished_runs

KEEP_TREES = 24


class Entry(NamedTuple):
    """One file of a tree: its path in it, its mode as git has it, and the time stamp that its content has."""

    name: str
    mode: str
    stamp: int


class CodeStore:
    """Trees of code by content. One that is there is never changed; one that was changed by hand is set aside."""

    def __init__(self, directory: str, *, checkout: str = "") -> None:
        self.repo = f"{directory}/code.git"
        self.checkout = checkout
        self._trees = f"{directory}/trees"
        self._builds = f"{directory}/builds"

    def ensure(self) -> None:
        """The bare repository; it borrows the objects of the checkout, so that only what is new travels."""
        if not os.path.isdir(f"{self.repo}/objects"):
            git("init", "--quiet", "--bare", self.repo)
            git("config", "gc.auto", "0", repo=self.repo)
            os.makedirs(self._trees, exist_ok=True)
        lenders = self._lenders()
        gone = [path for path in lenders if not os.path.isdir(path)]
        if gone:
            home = os.path.dirname(self.repo)
            remedy = f"bring it back, or move {self.repo} and {home}/applied on the box aside: both are made anew"
            raise Refused("usage", f"{self.repo} borrows objects of {gone[0]}, which is not there any more", remedy)
        objects = borrowable_objects(self.checkout) if self.checkout else ""
        if objects and objects not in lenders:
            with open(f"{self.repo}/objects/info/alternates", "a", encoding="utf-8") as file:
                file.write(objects + "\n")

    def _lenders(self) -> list[str]:
        try:
            with open(f"{self.repo}/objects/info/alternates", encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def tips(self) -> list[str]:
        """Commits that need not travel, with all that they reach."""
        borrowed = borrowable_objects(self.checkout) if self.checkout else ""
        repos = [self.repo, *([os.path.dirname(borrowed)] if borrowed else [])]
        names = (
            git("for-each-ref", "--format=%(objecttype) %(objectname) %(*objectname)", repo=repo) for repo in repos
        )
        found = {line.split()[-1] for text in names for line in text.splitlines() if "commit" in line or "tag" in line}
        return sorted(found)

    def has(self, commit: str) -> bool:
        try:
            git("cat-file", "-e", f"{commit}^{{tree}}", repo=self.repo)
        except Refused as refused:
            if refused.kind == "git":
                return False
            raise
        return True

    def unbundle(self, bundle: str, commit: str, *, shallow: list[str]) -> None:
        """``shallow`` are commits that came without their parents: git must know, or it looks for them in vain."""
        self._know_shallow(shallow)
        git("bundle", "unbundle", bundle, repo=self.repo)
        self.keep(commit)

    def _know_shallow(self, commits: list[str]) -> None:
        path = f"{self.repo}/shallow"
        known = set()
        with contextlib.suppress(FileNotFoundError):
            with open(path, encoding="ascii") as file:
                known = set(file.read().split())
        if not known.issuperset(commits):
            partial = f"{path}.{os.getpid()}"
            with open(partial, "w", encoding="ascii") as file:
                file.write("".join(f"{commit}\n" for commit in sorted(known.union(commits))))
            os.replace(partial, path)

    def keep(self, commit: str) -> None:
        git("update-ref", f"refs/patchbisect/{commit}", commit, repo=self.repo)

    def path(self, tree: str) -> str:
        return f"{self._trees}/{tree}/python"

    def proven(self, tree: str) -> str:
        """The tree id of the files as they are on disk now; empty when they are not there."""
        about = read_json(f"{self._trees}/{tree}/tree.json")
        if about is None:
            return ""
        return tree_id(f"{self.path(tree)}/sglang", ignore=frozenset(about["linked"]))

    def place(self, commit: str, tree: str, *, build: list[str], sources: list[str]) -> tuple[bool, str]:
        """Put ``tree`` on disk if it is not there. Returns whether anything was written, and a note."""
        found = git("rev-parse", f"{commit}:python/sglang", repo=self.repo).strip()
        if found != tree:
            raise Refused("wrong-code", f"commit {commit} has the tree {found} on the box, not {tree}")
        note = ""
        home = f"{self._trees}/{tree}"
        written = not os.path.isdir(home)
        if not written and self.proven(tree) != tree:
            aside = f"{home}.changed-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            os.rename(home, aside)
            note = f"the code in {home} had been changed there; it was set aside as {aside}"
            written = True
        if written:
            self._check_out(tree, home)
        self._link_built(commit, home, build=build, sources=sources)
        if written and self.proven(tree) != tree:  # what was linked had been changed by hand, its time stamp kept
            shutil.rmtree(home)
            self._check_out(tree, home, link=False)
            self._link_built(commit, home, build=build, sources=sources)
        if written and self.proven(tree) != tree:
            raise Refused("wrong-code", f"the files written to {home} do not have the tree id {tree}")
        os.utime(f"{home}/tree.json")
        self._collect(keep=tree)
        return written, note

    def _check_out(self, tree: str, home: str, *, link: bool = True) -> None:
        """Write ``tree``. Files that another tree has too are linked to it: creating 10,000 of them takes seconds."""
        partial = f"{self._trees}/.{tree}.{os.getpid()}"
        target = f"{partial}/python/sglang"
        index = {"GIT_INDEX_FILE": f"{partial}/index"}
        os.makedirs(target)
        try:
            git("read-tree", tree, repo=self.repo, env=index)
            entries = self._entries(tree)
            others = [f"{self.path(other)}/sglang" for other in self._newest(3)]
            missing = entries if not link else [one for one in entries if not link_same(one, others, target)]
            names = "".join(f"{entry.name}\0" for entry in missing).encode("utf-8", "surrogateescape")
            words = ("checkout-index", "--stdin", "-z", f"--prefix={target}/")
            git("--work-tree", target, *words, repo=self.repo, env=index, stdin=names)
            os.unlink(f"{partial}/index")
            for entry in missing:
                seal(f"{target}/{entry.name}", entry)
            for other in others:
                link_bytecode(other, target)
            write_json(f"{partial}/tree.json", {"built": "", "linked": []})
            os.rename(partial, home)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _entries(self, tree: str) -> list[Entry]:
        found = []
        for line in filter(None, git("ls-tree", "-r", "-z", tree, repo=self.repo).split("\0")):
            about, _, name = line.partition("\t")
            mode, _, blob = about.split()
            found.append(Entry(name=name, mode=mode, stamp=blob_mtime(blob)))
        return found

    def _link_built(self, commit: str, home: str, *, build: list[str], sources: list[str]) -> None:
        """Link in what git does not track: made from the same sources in the checkout, or by the build command."""
        if not self.checkout:
            return
        built = built_files(self.checkout)
        wanted = [self._object(self.repo, commit, path) for path in sources]
        key = hashlib.sha1(" ".join(wanted).encode()).hexdigest()[:16]
        about = read_json(f"{home}/tree.json") or {}
        if about.get("built") == key:
            return
        origin, names = self.checkout, built
        if any(name.endswith(".so") for name in built) and not self._made_from(wanted, sources):
            if not build:
                raise Refused(
                    "no-program",
                    f"{built[0]} in {self.checkout} was built from other sources than those of {commit[:12]}",
                    "set `build` of the box to the command that builds it",
                )
            origin = self._build(commit, key, build)
            names = built_files(origin)
        for name in names:
            target = f"{home}/{name}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
            link_or_copy(f"{origin}/{name}", target)
        linked = [name[len("python/sglang/") :] for name in names]
        write_json(f"{home}/tree.json", {"built": key, "linked": linked})

    def _made_from(self, wanted: list[str], sources: list[str]) -> bool:
        repo = f"{self.checkout}/.git"
        here = [self._object(repo, "HEAD", path) for path in sources]
        clean = not git("-C", self.checkout, "status", "--porcelain", "--untracked-files=no", "--", *sources).strip()
        return clean and here == wanted

    @staticmethod
    def _object(repo: str, commit: str, path: str) -> str:
        """The id of ``path`` in ``commit``; ``-`` where it does not exist."""
        found = git("ls-tree", "--full-tree", commit, "--", path, repo=repo).split()
        return found[2] if found else "-"

    def _build(self, commit: str, key: str, command: list[str]) -> str:
        """A full checkout of ``commit`` in which the build command has run; kept by the content of its sources."""
        home = f"{self._builds}/{key}"
        if os.path.exists(f"{home}.done"):
            return home
        shutil.rmtree(home, ignore_errors=True)
        os.makedirs(home)
        index = {"GIT_INDEX_FILE": f"{home}.index"}
        git("read-tree", commit, repo=self.repo, env=index)
        git("--work-tree", home, "checkout-index", "--all", f"--prefix={home}/", repo=self.repo, env=index)
        os.rename(f"{home}.index", f"{home}.tracked")
        with open(f"{home}.log", "wb") as log:
            done = subprocess.run(command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode:
            said = f"the build command ended with {done.returncode}; see {home}.log on the box"
            raise Refused("no-program", said, "mend `build` of the box")
        git("init", "--quiet", home)
        os.replace(f"{home}.tracked", f"{home}/.git/index")
        write_json(f"{home}.done", {"commit": commit})
        return home

    def _newest(self, count: int) -> list[str]:
        return sorted(self._all(), key=lambda tree: -self._used(tree))[:count]

    def _all(self) -> list[str]:
        return [name for name in os.listdir(self._trees) if len(name) == 40]

    def _used(self, tree: str) -> float:
        try:
            return os.stat(f"{self._trees}/{tree}/tree.json").st_mtime
        except OSError:
            return 0.0

    def _collect(self, keep: str) -> None:
        """Drop the trees that were not used for longest. A server has its own open for as long as it runs."""
        busy = {run.state().get("tree") for run in unfinished_runs(os.path.dirname(self._trees))}
        for tree in sorted(self._all(), key=self._used)[:-KEEP_TREES]:
            if tree != keep and tree not in busy:
                shutil.rmtree(f"{self._trees}/{tree}", ignore_errors=True)
        self._drop_half_made()

    def _drop_half_made(self) -> None:
        """What an agent had begun when it was killed, or the machine switched off; its pid ends the name."""
        for path in (*glob.glob(f"{self._trees}/.*.*"), *glob.glob(f"{self.repo}/incoming.*")):
            if not os.path.exists(f"/proc/{path.rpartition('.')[2]}"):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def built_files(checkout: str) -> list[str]:
    """Paths of what was built into ``python/sglang`` there and is not tracked."""
    others = git("-C", checkout, "ls-files", "--others", "-z", "--", "python/sglang").split("\0")
    return sorted(name for name in others if name.endswith(".so") or name.endswith("/_version.py"))


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def link_same(entry: Entry, others: list[str], target: str) -> bool:
    """Link the file of that content from one of the trees ``others``; False where none has it at that path."""
    if entry.mode == "120000":
        return False
    for other in others:
        try:
            about = os.lstat(f"{other}/{entry.name}")
            executable = bool(about.st_mode & stat.S_IXUSR)
            if about.st_mtime == entry.stamp and executable == (entry.mode == "100755"):
                os.makedirs(os.path.dirname(f"{target}/{entry.name}"), exist_ok=True)
                os.link(f"{other}/{entry.name}", f"{target}/{entry.name}")
                return True
        except OSError:  # not there, or a file system without links
            continue
    return False


def seal(path: str, entry: Entry) -> None:
    """Give a file the time stamp of its content, and take away the permission to write: other trees may link it."""
    if entry.mode != "120000":
        os.chmod(path, 0o555 if entry.mode == "100755" else 0o444)
    os.utime(path, (entry.stamp, entry.stamp), follow_symlinks=False)


def link_bytecode(source: str, target: str) -> None:
    """Hard-link the byte-code of every module that is the same in both trees.

    Python replaces a ``.pyc`` by renaming, so a link is never written through.
    """
    for folder, subfolders, files in os.walk(target):
        if "__pycache__" in subfolders:
            subfolders.remove("__pycache__")
        other = source + folder[len(target) :]
        try:
            compiled = os.listdir(f"{other}/__pycache__")
        except OSError:
            continue
        modules = {
            name[:-3] for name in files if name.endswith(".py") and same_stamp(f"{folder}/{name}", f"{other}/{name}")
        }
        os.makedirs(f"{folder}/__pycache__", exist_ok=True)
        for name in compiled:
            if name.split(".")[0] in modules and name.endswith(".pyc"):
                with contextlib.suppress(FileExistsError):
                    os.link(f"{other}/__pycache__/{name}", f"{folder}/__pycache__/{name}")


def same_stamp(one: str, other: str) -> bool:
    try:
        first, second = os.stat(one), os.stat(other)
    except OSError:
        return False
    return (first.st_mtime, first.st_size) == (second.st_mtime, second.st_size)
