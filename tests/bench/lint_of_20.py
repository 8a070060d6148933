"""How long lint takes for the shipped queue and harmless probes on top, 20 patches in all.

    python -m tests.bench.lint_of_20

SGLang's real files; the first run downloads the release. Only times are printed, nothing is asserted.
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import resource
import time

from patchbisect.config import load_project
from patchbisect.maintain.lint.effects import Texts
from patchbisect.maintain.reviewing import files_at, lint_files, reader
from patchbisect.patchqueue import Queue, compose, diff_of, format_patch
from patchbisect.upstream import Mirror
from tests.maintain.conftest import PIN, ROOT
from tests.maintain.lint_cases import GOOD

PATCHES = 20


def queue_of_20(mirror: Mirror) -> dict[str, bytes]:
    files = files_at(load_project(ROOT), "HEAD")
    texts = Texts(reader(mirror, PIN))
    patches = Queue.read(files).patches
    for patch in patches:
        for file in diff_of(patch).files:
            texts.apply(file)
    number = patches[-1].number
    for case in GOOD:
        path, anchor = case.at
        before = texts.get(path) or ""
        if number == PATCHES or before.count(anchor) != 1:
            continue
        after = case.apply(before)
        lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
        patch = compose(
            number=number + 1,
            slug=re.sub("[^a-z0-9]+", "-", case.name.lower()).strip("-"),
            author="Ada <ada@example.org>",
            date="Sun, 29 Nov 2026 10:00:00 +0000",
            subject=case.name,
            body="To see.",
            trailers=[("Kind", "instrumentation"), ("Forwarded", "not-needed")],
            diff="".join(difflib.unified_diff(*lines, fromfile=f"a/{path}", tofile=f"b/{path}")),
        )
        for file in diff_of(patch).files:
            texts.apply(file)
        files[f"{patch.name}.patch"] = format_patch(patch)
        number += 1
    return files


def main() -> None:
    mirror = Mirror(load_project(ROOT).state, source="release")
    files = queue_of_20(mirror)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {len(files) - 1} patches")
    for turn in range(1, 4):
        began = time.perf_counter(), _cpu_s()
        found = lint_files(files, mirror=mirror)
        wall, cpu = time.perf_counter() - began[0], _cpu_s() - began[1]
        wrong = sum(one.counts for one in found)
        print(f"run {turn}: {wall:.2f} s, {cpu:.2f} s of CPU with ruff and ty, {wrong} wrong")


def _cpu_s() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


if __name__ == "__main__":
    main()
