"""How long a queue of 100 patches, each of 20 files, takes onto a base of SGLang's size.

    python -m tests.bench.queue_of_100

Beside it, in the same run and from the same files: ``git am`` in a work tree, and ``quilt push -a`` where it is
installed. Made-up code, fixed by a seed; only times are printed, nothing is asserted.
"""

from __future__ import annotations

import platform
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from patchbisect.model import Base, Patch, Pin
from patchbisect.patchqueue import format_patch, parse_patch
from patchbisect.upstream import Mirror
from tests.tiny_upstream import commit, git, repository

PATCHES = 100
FILES_PER_PATCH = 20
FILES_IN_TREE = 1935
LINES_PER_FILE = 180


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="queue-of-100-") as scratch:
        folder = Path(scratch)
        pin, patches = _world(folder)
        print(f"{PATCHES} patches of {FILES_PER_PATCH} files onto {FILES_IN_TREE} files; {platform.platform()}")
        mirror = Mirror(folder / "state", source="git")
        mirror.base(Base(pin))
        _timed("patches read", lambda: [parse_patch(format_patch(p), filename=f"{p.name}.patch") for p in patches])
        _timed("mirror, nothing built before", lambda: mirror.materialize(Base(pin), patches, exact=True))
        _timed("mirror, built before", lambda: mirror.materialize(Base(pin), patches, exact=True))
        _timed("mirror, without patch 50", lambda: mirror.materialize(Base(pin), patches[:49] + patches[50:]))
        _timed("git am", lambda: _git_am(folder, patches))
        if shutil.which("quilt"):
            _timed("quilt push -a", lambda: _quilt(folder))
        else:
            print("quilt push -a                  not installed")


def _world(folder: Path) -> tuple[Pin, list[Patch]]:
    """A repository of SGLang's size and patches that each change a line in 20 of its files."""
    chance = random.Random(1)
    names = [f"python/sglang/part_{n % 40}/module_{n}.py" for n in range(FILES_IN_TREE)]
    text = {name: [f"value_{line} = {chance.random()}\n" for line in range(LINES_PER_FILE)] for name in names}
    upstream = repository(folder / "upstream", {name: "".join(lines) for name, lines in text.items()})
    pin = Pin(upstream=str(upstream), commit=git(upstream, "rev-parse", "HEAD"))
    patches = []
    for number in range(1, PATCHES + 1):
        for name in chance.sample(names, FILES_PER_PATCH):
            text[name][chance.randrange(LINES_PER_FILE)] = f"changed = {number}\n"
            (upstream / name).write_text("".join(text[name]))
        commit(upstream, {}, f"Change {number}\n\nWhy.\n\nKind: fix\nForwarded: no")
        data = git(upstream, "format-patch", "-1", "--stdout") + "\n"
        patches.append(parse_patch(data.encode(), filename=f"{number:04d}-change.patch"))
    git(upstream, "checkout", "-q", "-B", "am", pin.commit)
    quilt = folder / "quilt"
    shutil.copytree(upstream, quilt, ignore=shutil.ignore_patterns(".git"))
    (quilt / "patches").mkdir()
    for patch in patches:
        (quilt / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
    (quilt / "patches" / "series").write_text("".join(f"{patch.name}.patch\n" for patch in patches))
    return pin, patches


def _git_am(folder: Path, patches: list[Patch]) -> None:
    files = [str(folder / "quilt" / "patches" / f"{patch.name}.patch") for patch in patches]
    git(folder / "upstream", "am", "-q", *files)


def _quilt(folder: Path) -> None:
    subprocess.run(["quilt", "push", "-a", "-q"], cwd=folder / "quilt", check=True, stdout=subprocess.DEVNULL)


def _timed(what: str, action: Callable[[], object]) -> None:
    begun = time.perf_counter()
    action()
    print(f"{what:30} {time.perf_counter() - begun:6.2f} s")


if __name__ == "__main__":
    main()
