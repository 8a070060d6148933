"""A question beside plain ``git bisect run`` with a good script, in one run, on the real server.

    python -m tests.bench.beside_git_bisect             # the demo's
    python -m tests.bench.beside_git_bisect --hang 4    # twelve patches of which the fourth sleeps for ever in a rank

The script does what a careful person writes: it starts the server in a session of its own, looks at the log twice a
second, calls a started server good and an ended one bad, gives up after 120 s, and kills the session. git bisect gets
the same queue as commits. It checks no endpoint, proves nothing, and takes any failure for the one that is sought.
A hang is known by what good starts took, so one good start is made first where none is on record, and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchbisect import embedded
from patchbisect.config import PIN_FILE, SETTINGS_FILE, Project, load_project
from patchbisect.model import Base, Stage
from patchbisect.patchqueue import parse_pin
from patchbisect.points import PointResolver
from patchbisect.tasks.lab import story
from patchbisect.trial import open_rig, prepare, run_trial, usual
from patchbisect.upstream import Mirror
from tests.sglang.test_bisections import SIZING, Workshop, repository
from tests.sglang.upstream_range import GUILTY_LINE

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
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--hang", type=int, default=0, metavar="K", help="twelve patches, the K-th of which hangs")
    hang = words.parse_args().hang
    project = load_project(ROOT)
    box = embedded.find(project.state)
    if box is None:
        raise SystemExit("invoke setup first")
    with tempfile.TemporaryDirectory() as place:
        mirror = Mirror.of(project)
        home = hanging(project, Path(place), mirror, guilty=hang) if hang else story(project, "observer-effect")
        resolver = PointResolver.of(home, mirror=mirror)
        with open_rig(home, mirror=mirror, box="local", embedded=box, reason="tests", wait_s=600) as rig:
            bad, good = (prepare(rig, resolver.resolve(name).point) for name in ("HEAD", "clean"))
            if hang and not usual(rig.store, good.point, box="local"):
                print("a good start, for the record:", run_trial(rig, good, until=Stage.SERVING).verdict.outcome)
        plain = _git_bisect(Path(place), mirror=mirror, bad=bad, good=good, box=box)
        ours = _ours(home.root, state=project.state, words=["bisect", "--fresh"] if hang else ["demo"])
    print(f"{'':26}{'launches':>10}{'seconds':>10}{'s per launch':>14}   answer")
    for name, (launches, seconds, answer) in (("git bisect run", plain), ("patchbisect", ours)):
        print(f"{name:26}{launches:10d}{seconds:10.1f}{seconds / launches:14.1f}   {answer}")
    print(f"patchbisect took {ours[1] / plain[1]:.2f} of the time")


def hanging(project: Project, place: Path, mirror: Mirror, *, guilty: int) -> Project:
    """A queue of twelve patches: eleven log a line each, number ``guilty`` sleeps for ever before the pool is sized."""
    pin = parse_pin((project.root / PIN_FILE).read_bytes(), filename="pin.toml")
    workshop = Workshop(place / "workshop", mirror.path, mirror.base(Base(pin=pin)).commit)
    asleep = f"        import time\n\n        time.sleep(10**6)\n{GUILTY_LINE}"
    patches = [
        workshop.patch(k, "asleep", (SIZING, GUILTY_LINE, asleep)) if k == guilty else workshop.note(k)
        for k in range(1, 13)
    ]
    home = repository(project, place, patches)
    (home.root / SETTINGS_FILE).write_bytes((project.root / SETTINGS_FILE).read_bytes())
    return home


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
    subprocess.run(["git", "init", "--quiet", work], check=True, env=quiet)
    # Not cloned: of a mirror with shallow commits git copies nothing but branches.
    ends = [f"{point.code.commit}:refs/heads/{name}" for name, point in (("bad", bad), ("good", good))]  # type: ignore[attr-defined]
    fetch = ["fetch", "--quiet", "--update-shallow", mirror.path, *ends]
    subprocess.run(["git", "-C", work, *fetch], check=True, env=quiet)
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


def _ours(root: Path, *, state: Path, words: list[str]) -> tuple[int, float, str]:
    begun = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).with_name("patchbisect"), *words, "--json"],
        cwd=root,
        env={**os.environ, "PATCHBISECT_HOME": str(state)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - begun
    document = json.loads(done.stdout)
    inside = sum(trial["seconds"] or 0.0 for trial in document["trials"] if not trial["reused"])
    print(f"overhead: {(seconds - inside) / document['launches']:.2f} s a launch, besides the launches themselves")
    for trial in document["trials"]:
        print(f"  {trial['purpose']:10} {trial['seconds']:6.1f} s  {trial['verdict']['outcome']:6} {trial['point']}")
    return document["launches"], seconds, document["culprit"]["title"] + ", proven"


if __name__ == "__main__":
    main()
