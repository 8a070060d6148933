"""What people really have: double numbers, modes, renames, links, odd bytes. Nothing is half done or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.bench import Bench
from patchbisect.maintain.branching import export_branch, import_branch
from patchbisect.maintain.lint import Finding, lint
from patchbisect.maintain.reviewing import pin_in, reader
from patchbisect.model import Base
from patchbisect.patchqueue import format_patch, parse_patch
from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.tiny_upstream import FILES, git, replaced

pytestmark = pytest.mark.ci


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def findings(lab: Lab) -> list[Finding]:
    files = lab.files()
    read = reader(lab.shop().mirror, Base(pin=pin_in(files)))
    patches = {name: data for name, data in files.items() if name.endswith(".patch")}
    return lint(patches, read=read, diagnose=lambda texts: {})


def add(lab: Lab, number: int, slug: str, *commands: tuple[str, ...]) -> None:
    """A patch of whatever git commands do on top of the queue's last patch."""
    bench = lab.upstream.bench
    for command in commands:
        git(bench, *command)
    git(bench, "add", "-A")
    git(bench, "commit", "-q", "-m", f"Change {slug}\n\nWhy.\n\nKind: experiment\nForwarded: no")
    text = git(bench, "format-patch", "-1", "--stdout", "--full-index") + "\n"
    (lab.root / "patches" / f"{number:04d}-{slug}.patch").write_text(text)


def there_and_back(lab: Lab) -> None:
    """Drop what is before, undo; out as a branch and back: the last patch keeps its effect."""
    before = lab.files()
    lab.shop().edit("drop", lambda editor: editor.drop(1))
    lab.shop().undo()
    assert lab.files() == before
    shop = lab.shop()
    base = Base(pin=shop.pin)
    export_branch(shop.mirror, base, shop.queue(), name="out")
    back = shop.editor().shifted(import_branch(shop.mirror, base, shop.queue(), name="out"))
    assert {f"{patch.name}.patch": format_patch(patch) for patch in back} == {
        name: data for name, data in before.items() if name.endswith(".patch")
    }


def test_two_patches_of_one_number_stop_every_edit(lab: Lab) -> None:
    data = (lab.root / "patches" / "0002-two.patch").read_bytes()
    (lab.root / "patches" / "0001-other.patch").write_bytes(data)
    before = lab.files()
    with pytest.raises(UsageError, match="has the number 0001 of"):
        lab.shop().edit("drop", lambda editor: editor.drop(1))
    with pytest.raises(UsageError, match="has the number 0001 of"):
        Bench(lab.shop()).open(1)
    assert "duplicate" in [found.rule for found in findings(lab)]
    assert lab.files() == before


def test_a_gap_is_no_fault(lab: Lab) -> None:
    lab.shop().edit("drop", lambda editor: editor.drop(2))
    assert [(found.rule, found.counts) for found in findings(lab)] == [("gap", False)]
    lab.shop().edit("move", lambda editor: editor.move(4, to=1))
    assert lab.names() == ["0001-four.patch", "0003-one.patch", "0004-three.patch"]


def test_two_patches_that_create_one_file(lab: Lab) -> None:
    add(lab, 5, "five", ("mv", LOADER, "python/sglang/fresh.py"))
    text = (lab.root / "patches" / "0005-five.patch").read_text()
    (lab.root / "patches" / "0006-six.patch").write_text(text)
    before = lab.files()
    assert [found.rule for found in findings(lab) if found.patch == "0006-six"][:1] == ["exact"]
    with pytest.raises(UsageError, match="cannot refresh the queue: 0006-six does not apply"):
        lab.shop().edit("refresh", lambda editor: editor.refresh())
    assert lab.files() == before


def test_modes(lab: Lab) -> None:
    add(lab, 5, "mode", ("update-index", "--chmod=+x", ENGINE), ("checkout", "--", ENGINE))
    assert "new mode 100755" in (lab.root / "patches" / "0005-mode.patch").read_text()
    there_and_back(lab)
    assert [found for found in findings(lab) if found.counts] == []


def test_renames(lab: Lab) -> None:
    add(lab, 5, "rename", ("mv", ENGINE, "python/sglang/motor.py"))
    assert "rename to python/sglang/motor.py" in (lab.root / "patches" / "0005-rename.patch").read_text()
    there_and_back(lab)
    lab.shop().edit("drop", lambda editor: editor.drop(1))
    assert "rename to python/sglang/motor.py" in (lab.root / "patches" / "0005-rename.patch").read_text()
    assert "engine_10 = 10\n" in lab.result("python/sglang/motor.py")


def test_links_inside_the_tree(lab: Lab) -> None:
    (lab.upstream.bench / "python/sglang/link.py").symlink_to("engine.py")
    add(lab, 5, "link")
    there_and_back(lab)
    (lab.upstream.bench / "python/sglang/out.py").symlink_to("../../../etc/passwd")
    add(lab, 6, "out")
    with pytest.raises(UsageError, match="symbolic link that leaves the tree"):
        lab.shop().edit("drop", lambda editor: editor.drop(1))
    assert "symlink" in [found.rule for found in findings(lab)]


def test_odd_bytes_survive(lab: Lab) -> None:
    path = lab.root / "patches" / "0001-one.patch"
    path.write_bytes(path.read_bytes().replace(b"From: Ada", b"From: Andr\xe9"))
    lab.shop().edit("drop", lambda editor: editor.drop(2))
    assert b"From: Andr\xe9 <" in path.read_bytes()
    assert lab.shop().queue().patch(1).author == "André <ada@example.org>"
    marked = b"\xef\xbb\xbf" + (lab.root / "patches" / "0003-three.patch").read_bytes()
    (lab.root / "patches" / "0003-three.patch").write_bytes(marked)
    with pytest.raises(UsageError, match="byte-order mark"):
        lab.shop().edit("drop", lambda editor: editor.drop(1))


def test_crlf_files_stay_crlf(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patches=[])
    path = lab.upstream.bench / "python/sglang/dos.py"
    path.write_bytes(b"a = 1\r\nb = 2\r\n")
    add(lab, 1, "dos")
    path.write_bytes(b"a = 1\r\nb = 3\r\n")
    add(lab, 2, "more")
    for patch in (lab.root / "patches").glob("*.patch"):
        data = (
            patch.read_bytes().replace(b"= 1\n", b"= 1\r\n").replace(b"= 2\n", b"= 2\r\n").replace(b"= 3\n", b"= 3\r\n")
        )
        patch.write_bytes(data)
    lab.shop().edit("fold", lambda editor: editor.fold(2, into=1))
    assert lab.result("python/sglang/dos.py") == "a = 1\r\nb = 3\r\n"


def test_files_outside_the_package(lab: Lab) -> None:
    (lab.upstream.bench / "docs").mkdir()
    (lab.upstream.bench / "docs/x.md").write_text("x\n")
    add(lab, 5, "docs")
    there_and_back(lab)
    missing = (lab.root / "patches" / "0005-docs.patch").read_text().replace("new file mode 100644\n", "")
    text = missing.replace("--- /dev/null", "--- a/docs/x.md").replace("@@ -0,0 +1 @@", "@@ -1 +1,2 @@\n y")
    (lab.root / "patches" / "0005-docs.patch").write_text(text)
    [found] = [found for found in findings(lab) if found.counts]
    assert (found.rule, "upstream.clone" in found.remedy) == ("exact", True)


def test_an_empty_queue(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patches=[])
    assert findings(lab) == []
    assert lab.shop().edit("refresh", lambda editor: editor.refresh()).changed == ()
    with pytest.raises(UsageError, match="no patch 0001"):
        lab.shop().edit("drop", lambda editor: editor.drop(1))
    assert lab.result() == FILES[ENGINE]


def test_a_patch_whose_effect_is_gone_is_said(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patches=[])
    for number, (slug, edit) in enumerate(
        [("there", replaced("engine_10 = 10")), ("back", ("engine_10 = 10 + 100", "engine_10 = 10"))], start=1
    ):
        patch = lab.upstream.patch(number, slug, {ENGINE: [edit]})
        (lab.root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
    with pytest.raises(UsageError, match="together they change nothing"):
        lab.shop().edit("fold", lambda editor: editor.fold(2, into=1))
    with pytest.raises(UsageError, match="0002-back"):
        lab.shop().edit("drop", lambda editor: editor.drop(1))
    assert lab.names() == ["0001-there.patch", "0002-back.patch"]
    assert parse_patch((lab.root / "patches" / "0001-there.patch").read_bytes(), filename="0001-there.patch")
