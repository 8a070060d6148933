"""Patches that went through quilt and git am come back without a loss."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchbisect.maintain.branching import with_disabled
from patchbisect.maintain.exporting import mbox, patch_of_commit, quilt_series
from patchbisect.maintain.importing import Defaults, Imported, import_series
from patchbisect.maintain.returning import come_back
from patchbisect.model import Base
from patchbisect.patchqueue import diff_of, parse_patch
from patchbisect.upstream import Git
from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.tiny_upstream import git

pytestmark = pytest.mark.ci

DEFAULTS = Defaults(author="Me <me@example.org>", date="Sun, 29 Nov 2026 10:00:00 +0000")
NASTY = "0005-nasty.patch"
HOME = "python/sglang"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """The usual four, the second disabled, and one with modes, a link, CRLF, Latin-1 and no last line end."""
    lab = Lab(tmp_path)
    two = lab.root / "patches" / "0002-two.patch"
    two.write_bytes(two.read_bytes().replace(b"Forwarded: no", b"Forwarded: no\nEnabled: no"))
    bench = lab.upstream.bench
    (bench / LOADER).chmod(0o755)
    (bench / HOME / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (bench / HOME / "latin.py").write_bytes(b"# coding: latin-1\n# caf\xe9 \x0c\n")
    (bench / HOME / "open_end.py").write_bytes(b"end = 1")
    (bench / HOME / "link.py").symlink_to("loader.py")
    git(bench, "add", "-A")
    body = "From here on\nFrom the start\n---- a rule"
    message = f"Nasty\n\n{body}\n\nKind: experiment\nForwarded: no\nSigned-off-by: A <a@b.c>"
    git(bench, "commit", "-q", "-m", message)
    done = subprocess.run(["git", "-C", str(bench), "format-patch", "-1", "--stdout"], capture_output=True, check=True)
    (lab.root / "patches" / NASTY).write_bytes(done.stdout)
    lab.shop().edit("refresh", lambda editor: editor.refresh())
    return lab


def back(lab: Lab, imported: list[Imported]) -> dict[str, tuple[str, ...]]:
    """Take the patches in as the queue; gives what was told of each."""
    shop = lab.shop()
    imported = come_back(shop.mirror, Base(pin=shop.pin), shop.queue(), imported)
    patches = [one.patch for one in imported]
    shop.edit("import", lambda editor: editor.become(with_disabled(patches, editor.queue), doing="import"))
    return {one.patch.slug: one.account for one in imported if one.account}


class Quilted:
    """The upstream's files with the queue exported for quilt."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.tree = folder
        shutil.copytree(lab.upstream.path, folder, ignore=shutil.ignore_patterns(".git"))
        git(lab.upstream.path, "archive", "-o", str(folder / "first.tar"), lab.upstream.first)
        shutil.unpack_archive(folder / "first.tar", folder)
        self.patches = folder / "patches"
        self.patches.mkdir()
        for name, data in quilt_series(lab.shop().queue().patches).items():
            (self.patches / name).write_bytes(data)

    def quilt(self, *words: str) -> None:
        env = {"PATH": os.environ["PATH"], "QUILTRC": "-", "HOME": str(self.tree)}
        done = subprocess.run(["quilt", *words], cwd=self.tree, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def imported(self) -> list[Imported]:
        files = {path.name: path.read_bytes() for path in self.patches.iterdir()}
        patches, notes = import_series(files, defaults=DEFAULTS)
        assert notes == []
        return patches


needs_quilt = pytest.mark.skipif(shutil.which("quilt") is None, reason="quilt is not installed: .ci/run does it")


@needs_quilt
def test_untouched_through_quilt_is_byte_for_byte(lab: Lab, tmp_path: Path) -> None:
    before = lab.files()
    quilted = Quilted(lab, tmp_path / "quilt")
    quilted.quilt("push", "-a")
    assert os.access(quilted.tree / LOADER, os.X_OK)
    assert (quilted.tree / HOME / "link.py").readlink() == Path("loader.py")
    assert back(lab, quilted.imported()) == {}
    assert lab.files() == before


@needs_quilt
def test_refreshed_in_quilt_keeps_message_modes_and_links(lab: Lab, tmp_path: Path) -> None:
    before = lab.files()
    quilted = Quilted(lab, tmp_path / "quilt")
    quilted.quilt("push", "-a")
    (quilted.tree / HOME / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\nc = 3\r\n")
    quilted.quilt("refresh")
    assert b"old mode" not in (quilted.patches / NASTY).read_bytes()
    told = back(lab, quilted.imported())
    assert list(told) == ["nasty"]
    after = lab.files()
    assert {name for name in before if before[name] != after[name]} == {NASTY}
    assert after[NASTY].partition(b"\ndiff --git")[0] == before[NASTY].partition(b"\ndiff --git")[0]
    files = {file.path: file for file in diff_of(parse_patch(after[NASTY], filename=NASTY)).files}
    assert files[LOADER].new_mode == "100755"
    assert files[f"{HOME}/link.py"].new_mode == "120000"
    assert b"+# caf\xe9 \x0c\n" in after[NASTY]
    assert b"+c = 3\r\n" in after[NASTY]
    assert b"+end = 1\n\\ No newline" in after[NASTY]


@needs_quilt
def test_an_edit_of_an_earlier_patch_in_quilt(lab: Lab, tmp_path: Path) -> None:
    quilted = Quilted(lab, tmp_path / "quilt")
    quilted.quilt("push", "0001-one.patch")
    engine = quilted.tree / ENGINE
    engine.write_text(engine.read_text().replace("engine_10 = 10 + 100", "engine_10 = 10 + 7"))
    quilted.quilt("refresh")
    back(lab, quilted.imported())
    assert "engine_10 = 10 + 7\n" in lab.result()
    assert lab.names() == ["0001-one.patch", "0002-two.patch", "0003-three.patch", "0004-four.patch", NASTY]


def test_through_git_am_nothing_changes(lab: Lab, tmp_path: Path) -> None:
    before = lab.files()
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(lab.upstream.path), str(clone))
    git(clone, "checkout", "-q", "-b", "am", lab.upstream.first)
    box = tmp_path / "queue.mbox"
    box.write_bytes(mbox(lab.shop().queue().patches))
    git(clone, "am", "-q", "--patch-format=mboxrd", "--keep-cr", str(box))
    store = Git(clone / ".git")
    commits = git(clone, "rev-list", "--reverse", f"{lab.upstream.first}..am").split()
    patches = [patch_of_commit(store, commit, number=at) for at, commit in enumerate(commits, start=1)]
    assert back(lab, [Imported(patch=patch, account=()) for patch in patches]) == {}
    assert lab.files() == before
