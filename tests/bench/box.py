"""What a box costs: code onto it, and each step of a trial with the fake server, here and over SSH on loopback.

    python -m tests.bench.box [--files 10000] [--repeats 5]

Code: ten patches on a tree of that many files, measured inside this process after connecting, with the base commit
on the box already (wanted: under 2 s the first time, one round trip when nothing changed); beside it what
``quilt push -a`` and ``git am`` take for the same queue on this machine. Steps: medians in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchbisect.box import Box, BoxSettings, LaunchSpec, LogChunk, open_box
from patchbisect.testing.fake_sglang import FakeSglang
from tests.sshd.openssh import Proxy, Sshd, install, running

PATCHES = 10


@contextmanager
def ssh_box(folder: Path) -> Iterator[tuple[Box, Proxy]]:
    """A box behind a real sshd, with a proxy that counts round trips."""
    missing = install()
    if missing:
        raise SystemExit(missing)
    home = folder / "home" / ".ssh"
    home.mkdir(parents=True)
    with running(Sshd(folder / "sshd")) as sshd:
        proxy = Proxy(sshd.port)
        (home / "config").write_text(
            f"Host rig\n HostName 127.0.0.1\n Port {proxy.port}\n IdentityFile {sshd.client_key}\n IdentitiesOnly yes\n"
        )
        (home / "known_hosts").write_text(sshd.known_hosts_line(proxy.port))
        os.environ["HOME"] = str(folder / "home")
        with open_box("rig", settings(folder / "remote", host="rig"), state=folder) as box, box.lease("bench"):
            yield box, proxy
        proxy.close()


def settings(directory: Path, **more: str) -> BoxSettings:
    return BoxSettings(directory=str(directory), python=sys.executable, **more)


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def queue_of(folder: Path, *, files: int) -> tuple[FakeSglang, str, str]:
    """An upstream, its base, and the base with ten patches that change one file each."""
    upstream = FakeSglang(folder / "upstream")
    base = upstream.commit(["--line", "base"], filler=files)
    tip = base
    for number in range(PATCHES):
        path = f"filler/p{number}/m{number * 100}.py"
        text = (upstream.path / "python" / "sglang" / path).read_text()
        tip = upstream.commit(["--line", f"patch {number}"], files={path: text + f"PATCHED = {number}\n"})
    return upstream, base, tip


def code(box: Box, proxy: Proxy, upstream: FakeSglang, base: str, tip: str) -> None:
    box.put_code(upstream.path, base)
    box.apply(upstream.path, base)
    for name, put in (
        ("put_code (a work tree of its own)", lambda: box.put_code(upstream.path, tip)),
        ("apply (the user's directory)", lambda: box.apply(upstream.path, tip)),
    ):
        first = seconds(put)
        trips = proxy.round_trips
        again = seconds(put)
        print(f"{name:36}{first:8.2f} s first{again:8.2f} s again, round trips: {proxy.round_trips - trips}")


def others(folder: Path, upstream: FakeSglang, base: str, tip: str) -> None:
    patches = folder / "patches"
    upstream.git("format-patch", "--quiet", "--output-directory", str(patches), f"{base}..{tip}")
    names = sorted(path.name for path in patches.iterdir())
    (patches / "series").write_text("\n".join(names) + "\n")
    for tool in ("git am", "quilt push -a"):
        tree = folder / tool.replace(" ", "-")
        subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", "--detach", base], check=True)
        if tool == "git am":
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            command = ["git", "-C", str(tree), *who, "am", "--quiet", *(str(patches / name) for name in names)]
        elif shutil.which("quilt"):
            command = ["env", f"QUILT_PATCHES={patches}", "quilt", "push", "-a", "-q"]
        else:
            print("quilt push -a: not installed here")
            continue
        taken = seconds(
            lambda command=command, tree=tree: subprocess.run(command, cwd=tree, check=True, capture_output=True)
        )
        print(f"{tool:36}{taken:8.2f} s, on a tree that is there already")


def steps(box: Box, upstream: FakeSglang, commits: list[str], *, repeats: int) -> dict[str, list[float]]:
    """One trial step by step: a server that prints, is judged at once, and is stopped."""
    taken: dict[str, list[float]] = {}

    def timed(name: str, action: Callable[[], object]) -> object:
        began = time.monotonic()
        result = action()
        taken.setdefault(name, []).append((time.monotonic() - began) * 1000)
        return result

    for number in range(repeats):
        port = box.free_port()
        began = time.monotonic()
        timed("prove clean", lambda port=port: box.prove_clean(port))
        placed = timed("put code", lambda number=number: box.put_code(upstream.path, commits[number % len(commits)]))
        argv = (sys.executable, "-m", "sglang.launch_server", "--grandchildren", "3", "--end", "hang")
        spec = LaunchSpec(f"{box.name}-{number}", argv, port=port, code=placed)
        run = timed("start", lambda spec=spec: box.start(spec))
        timed("until its first line", lambda run=run: next(e for e in run.events() if isinstance(e, LogChunk)))
        timed("provenance", run.provenance)
        report = timed("stop and proof", lambda run=run: run.stop(0.0))
        assert report.faults == (), report
        taken.setdefault("  of it until all is gone", []).append(report.gone_s * 1000)
        taken.setdefault("all", []).append((time.monotonic() - began) * 1000)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        upstream, base, tip = queue_of(folder, files=asked.files)
        small = FakeSglang(folder / "small")
        commits = [small.commit([f"--line=v{number}"], filler=2000) for number in range(3)]
        with ssh_box(folder) as (remote, proxy):
            print(f"ten patches on {asked.files} files, over SSH on loopback")
            code(remote, proxy, upstream, base, tip)
            others(folder, upstream, base, tip)
            with open_box("local", settings(folder / "local"), state=folder) as local, local.lease("bench"):
                print(f"\nsteps of a trial, code of 2,000 files, median of {asked.repeats}, ms{'here':>10}{'ssh':>10}")
                here = steps(local, small, commits, repeats=asked.repeats)
                there = steps(remote, small, commits, repeats=asked.repeats)
                for step in here:
                    print(f"{step:58}{statistics.median(here[step]):10.0f}{statistics.median(there[step]):10.0f}")


if __name__ == "__main__":
    main()
