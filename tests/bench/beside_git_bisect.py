"""The demo's question beside plain ``git bisect run`` with a good script, in one run, on the real server.

    python -m tests.bench.beside_git_bisect

The script does what a careful person writes: it starts the server in a session of its own, looks at the log twice a
second, calls a started server good and an ended one bad, gives up after 120 s, and kills the session. git bisect gets
the same queue as commits. It checks no endpoint, proves nothing, and takes any failure for the one that is sought.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchbisect import embedded
from patchbisect.config import load_project
from patchbisect.points import PointResolver
from patchbisect.tasks.lab import story
from patchbisect.trial import open_rig, prepare
from patchbisect.upstream import Mirror

ROOT = Path(__file__).parents[2]

SCRIPT = """#!/bin/bash
port=$((20000 + RANDOM % 10000)); log=$(mktemp)
echo launch >> {count}
setsid env {env} PYTHONPATH=$PWD/python:{standins} {argv} --host 127.0.0.1 --port $port > "$log" 2>&1 &
server=$!
code=1
for i in $(seq 240); do
    if grep -q "fired up and ready to roll" "$log"; then code=0; break; fi
    if ! kill -0 $server 2>/dev/null; then break; fi
    sleep 0.5
done
kill -9 -- -$server 2>/dev/null
wait $server 2>/dev/null
exit $code
"""


def main() -> None:
    project = load_project(ROOT)
    home = story(project, "observer-effect")
    mirror = Mirror.of(project)
    box = embedded.find(project.state)
    if box is None:
        raise SystemExit("invoke setup first")
    resolver = PointResolver.of(home, mirror=mirror)
    with open_rig(home, mirror=mirror, box="local", embedded=box, reason="tests", wait_s=600) as rig:
        bad, good = (prepare(rig, resolver.resolve(name).point) for name in ("HEAD", "clean"))
    with tempfile.TemporaryDirectory() as place:
        plain = _git_bisect(Path(place), mirror=mirror, bad=bad, good=good, box=box)
    ours = _ours(project.root)
    print(f"{'':26}{'launches':>10}{'seconds':>10}{'s per launch':>14}   answer")
    for name, (launches, seconds, answer) in (("git bisect run", plain), ("patchbisect demo", ours)):
        print(f"{name:26}{launches:10d}{seconds:10.1f}{seconds / launches:14.1f}   {answer}")


def _git_bisect(place: Path, *, mirror: Mirror, bad: object, good: object, box: object) -> tuple[int, float, str]:
    work, script, count = place / "work", place / "script", place / "count"
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in bad.env.items())  # type: ignore[attr-defined]
    script.write_text(
        SCRIPT.format(
            count=count,
            env=env,
            standins=":".join(map(str, box.pythonpath)),  # type: ignore[attr-defined]
            argv=shlex.join([str(box.python), "-m", "sglang.launch_server", *bad.arguments]),  # type: ignore[attr-defined]
        )
    )
    script.chmod(0o755)
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    quiet.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", mirror.path, work], check=True, env=quiet)
    begun = time.monotonic()
    for words in (("checkout", "--quiet", bad.code.commit), ("bisect", "start", bad.code.commit, good.code.commit)):  # type: ignore[attr-defined]
        subprocess.run(["git", "-C", work, *words], check=True, env=quiet, capture_output=True)
    said = subprocess.run(
        ["git", "-C", work, "bisect", "run", script], check=False, env=quiet, capture_output=True, text=True
    ).stdout
    seconds = time.monotonic() - begun
    first_bad = next((line for line in said.splitlines() if "is the first bad commit" in line), "no answer")
    title = subprocess.run(
        ["git", "-C", work, "log", "-1", "--format=%s", first_bad.split()[0]],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return len(count.read_text().splitlines()), seconds, title


def _ours(root: Path) -> tuple[int, float, str]:
    begun = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).with_name("patchbisect"), "demo", "--json"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(done.stdout)
    return document["launches"], time.monotonic() - begun, document["culprit"]["title"] + ", proven"


if __name__ == "__main__":
    main()
