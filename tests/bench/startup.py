"""How fast a log is read: ``python -m tests.bench.startup [MEGABYTES]``.

The handed logs of more than one rank, repeated; verdict and facts on; one core. Beside it, in the same run, what
``grep -cE`` takes to look for the same words, which is about as little as one can do with such a log.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchbisect.startup import Classifier
from patchbisect.startup.life import WORDS
from patchbisect.startup.vocabulary import MILESTONES
from tests.startup.handed import ALL

CHUNK = 1 << 16


def sample(megabytes: float) -> bytes:
    """The multi-rank logs end to end, again and again."""
    multi = [case.text.rstrip("\n") + "\n" for case in ALL if len(set(re.findall(r"\bTP\d+(?=[\] ])", case.text))) > 1]
    once = "".join(multi).encode()
    return once * max(1, round(megabytes * 1e6 / len(once)))


def read(data: bytes) -> float:
    """CPU seconds of one pass."""
    begun = time.process_time()
    reader = Classifier()
    for start in range(0, len(data), CHUNK):
        reader.feed(data[start : start + CHUNK])
    reader.close()
    verdict = reader.verdict()
    assert verdict.facts, "a verdict without facts measures nothing"
    return time.process_time() - begun


def grep(data: bytes) -> float:
    """CPU seconds of ``grep -cE`` for the same words."""
    words = sorted({row.head for row in MILESTONES} | set(WORDS))
    pattern = "|".join(re.sub(r"([.\[\]()|*+?{}^$\\])", r"\\\1", word) for word in words)
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        Path(file.name).write_bytes(data)
        before = _child_seconds()
        # Not to /dev/null: GNU grep stops at the first match when nobody reads its output.
        subprocess.run(["grep", "-cE", pattern, file.name], check=False, capture_output=True)
        return _child_seconds() - before


def _child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    data = sample(megabytes)
    lines = data.count(b"\n")
    mine = min(read(data) for _ in range(3))
    theirs = min(grep(data) for _ in range(3))
    print(
        json.dumps(
            {
                "megabytes": round(len(data) / 1e6, 1),
                "mean_line_bytes": round(len(data) / lines, 1),
                "classifier_mb_per_cpu_s": round(len(data) / 1e6 / mine, 1),
                "classifier_us_per_line": round(mine / lines * 1e6, 2),
                "grep_mb_per_cpu_s": round(len(data) / 1e6 / theirs, 1),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
