"""A released wheel of SGLang: taken with pip, its checksum verified, told to git as one commit."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchbisect.errors import BoxError, UsageError
from patchbisect.patchqueue import did_you_mean
from patchbisect.patchqueue.diff import leaves_tree
from patchbisect.upstream.exact import data, quoted

PROJECT = "sglang"

_GENERATED = ("sglang/_version.py",)
"""Made by setuptools-scm when the wheel is built; a clone has none, so neither has the tree (SGLang 0.5.9)."""
_WHO = "SGLang release <release@patchbisect.invalid>"
_WHEN = "946684800 +0000"
"""2000-01-01: fixed, so that the same wheel is the same commit everywhere."""
_VERSIONS = re.compile(r"\(from versions: (.*?)\)")
"""What pip found instead; "none" when no index could be reached, since all of SGLang's releases are wheels."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on disk whose checksum was verified (or, for a release that no pin names, taken as it came)."""

    path: Path
    version: str
    sha256: str


def fetch_wheel(
    *, version: str, sha256: str, folder: Path, pip_args: Sequence[str], say: Callable[[str], None]
) -> Wheel:
    """The wheel of a release, from ``folder`` or with pip. One caller at a time: what a killed one left is swept.

    Raises UsageError for another checksum than ``sha256`` or a release that does not exist, BoxError for no network.
    """
    place = folder / version
    kept = sorted(place.glob("*.whl")) if place.is_dir() else []
    if kept:
        return _verified(kept[0], version=version, sha256=sha256)
    say(f"downloading {PROJECT} {version}")
    folder.mkdir(parents=True, exist_ok=True)
    for abandoned in folder.glob(".download-*"):
        shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        _pip_download(version=version, into=scratch, pip_args=pip_args)
        [downloaded] = Path(scratch).glob("*.whl")
        _verified(downloaded, version=version, sha256=sha256)
        place.mkdir(exist_ok=True)
        downloaded.replace(place / downloaded.name)
    return _verified(place / downloaded.name, version=version, sha256=sha256)


def import_stream(wheel: Wheel, *, ref: str, folder: str) -> bytes:
    """The wheel's package as one commit for ``git fast-import``; ``folder`` is where it lies in the tree.

    Author, date and message are fixed by the wheel alone. Raises UsageError for a file that is no sound wheel.
    """
    message = f"{PROJECT} {wheel.version}\n\nThe released wheel, sha256 {wheel.sha256}.\n"
    head = f"commit {ref}\nauthor {_WHO} {_WHEN}\ncommitter {_WHO} {_WHEN}\n"
    parts = [head.encode(), data(message.encode()), b"deleteall\n"]
    for name, mode, content in _members(wheel.path):
        parts += [b"M %s inline %s\n" % (mode.encode(), quoted(f"{folder}/{name}")), data(content)]
    return b"".join([*parts, b"done\n"])


def _members(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Name, mode and content of each file of the package, in name order."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.filename):
                name = info.filename
                if info.is_dir() or not name.startswith(f"{PROJECT}/") or name in _GENERATED:
                    continue
                if why := leaves_tree(name):
                    raise UsageError(f"{path.name}: {name!r} {why}", remedy="Do not use this wheel.")
                executable = (info.external_attr >> 16) & 0o111
                yield name, "100755" if executable else "100644", archive.read(info)
    except zipfile.BadZipFile as error:
        raise UsageError(f"{path} is not a wheel: {error}", remedy="Delete it and try again.") from error


def _verified(path: Path, *, version: str, sha256: str) -> Wheel:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 and actual != sha256:
        raise UsageError(
            f"{path.name} has the checksum sha256 {actual}, but patches/pin.toml says {sha256}",
            remedy=f"Somebody changed the file or the pin is wrong. Delete {path} and try again, or mend the pin.",
        )
    return Wheel(path=path, version=version, sha256=actual)


def _pip_download(*, version: str, into: str, pip_args: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", into, *pip_args, f"{PROJECT}=={version}"]
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if "No module named pip" in output:
        raise UsageError("this Python has no pip, which releases are downloaded with", remedy="python -m ensurepip")
    found = _VERSIONS.search(output)
    if "connection broken by" in output or (found and found[1] == "none"):
        raise BoxError(
            f"cannot download {PROJECT} {version}: pip reaches no index that has {PROJECT}",
            remedy="Check the network, and pip's settings: python -m pip config list.",
        )
    if found:
        versions = found[1].split(", ")
        raise UsageError(
            f"there is no wheel of {PROJECT} {version} for this machine{did_you_mean(version, versions)}",
            remedy=f"The newest that pip finds is {versions[-1]}.",
        )
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else output.strip()[-300:]
    raise BoxError(f"pip download {PROJECT}=={version} failed: {reason}", remedy="Check the disk and pip's settings.")
