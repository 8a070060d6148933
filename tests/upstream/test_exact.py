"""Our exact application and ``git apply`` agree, on made-up texts with many equal lines."""

import difflib
import re
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchbisect.patchqueue import FOLDER, File, PatchFault, apply_exactly
from patchbisect.patchqueue.diff import parse_diff, split_lines

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", " \n", "d\r\n"]), max_size=9)
line_end = st.sampled_from(["", "\n"])


def unified(before, after, context):
    """What ``diff -u`` prints, with git's mark for a missing line end; ``""`` where nothing differs."""
    parts = list(difflib.unified_diff(split_lines(before), split_lines(after), "a/x", "b/x", n=context))
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)


def ours(diff_text, text):
    diff = parse_diff(split_lines(diff_text), start=0, filename="x.patch")
    changed = apply_exactly(diff, mode_of={"x": "100644"}.get, read={"x": text}.__getitem__)
    return None if changed is None else changed["x"].text


def gits(folder, diff_text, text):
    """The text that ``git apply`` makes, None where it fails or moves a hunk."""
    (folder / "x").write_bytes(text.encode())
    done = subprocess.run(
        ["git", "apply", "--verbose", "--whitespace=nowarn", "-"],
        input=diff_text.encode(),
        capture_output=True,
        cwd=folder,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )
    if done.returncode or b"offset" in done.stderr:
        return None
    return (folder / "x").read_bytes().decode()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines, lines, line_end, line_end, st.integers(0, 3), st.none() | st.tuples(st.integers(0, 9), st.just("c\n")))
def test_agrees_with_git_apply(tmp_path, before, after, end, other_end, context, disturbance):
    old, new = "".join(before) + f"z{end}", "".join(after) + f"z{other_end}"
    diff_text = unified(old, new, context)
    if not diff_text:
        return
    if disturbance:
        before.insert(*disturbance)
    target = "".join(before) + f"z{end}"
    assert ours(diff_text, target) == gits(tmp_path, diff_text, target)


def snapshot(*names):
    modes = dict.fromkeys(names, "100644")
    for name in names:
        modes.update((name[:at], FOLDER) for at, character in enumerate(name) if character == "/")
    return modes


def changed_by(header, *, modes, text="a\n"):
    diff = parse_diff(split_lines(header), start=0, filename="x.patch")
    return apply_exactly(diff, mode_of=modes.get, read=lambda path: text)


NEW = "diff --git a/{0} b/{0}\nnew file mode 100755\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"
DELETED = "diff --git a/p/a b/p/a\ndeleted file mode 100644\n--- a/p/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
RENAMED = "diff --git a/p/a b/q/b\nsimilarity index 100%\n{0} from p/a\n{0} to q/b\n"
MODE = "diff --git a/p/a b/p/a\nold mode 100644\nnew mode 100755\n"


@pytest.mark.parametrize(
    ("header", "changed"),
    [
        (NEW.format("q/new"), {"q/new": File("100755", "x\n")}),
        (DELETED, {"p/a": None}),
        (RENAMED.format("rename"), {"p/a": None, "q/b": File("100644", "a\n")}),
        (RENAMED.format("copy"), {"q/b": File("100644", "a\n")}),
        (MODE, {"p/a": File("100755", "a\n")}),
    ],
)
def test_whole_files(header, changed):
    assert changed_by(header, modes=snapshot("p/a", "README")) == changed


@pytest.mark.parametrize(
    "header",
    [
        NEW.format("p/a"),
        NEW.format("p"),
        NEW.format("README/x"),
        NEW.format("p/a/x/y"),
        RENAMED.format("rename").replace("q/b", "README"),
        DELETED.replace("-a\n", "-b\n"),
        DELETED.replace("p/a", "p"),
        MODE.replace("p/a", "nope"),
    ],
)
def test_what_is_in_the_way(header):
    assert changed_by(header, modes=snapshot("p/a", "README")) is None


def test_a_deletion_that_would_leave_lines_is_refused():
    assert changed_by(DELETED, modes=snapshot("p/a"), text="a\nb\n") is None


def test_a_link_is_not_patched_as_a_file():
    diff = "--- a/p/a\n+++ b/p/a\n@@ -1 +1 @@\n-a\n+b\n"
    assert changed_by(diff, modes={"p/a": "120000"}) is not None
    assert changed_by(DELETED, modes={"p/a": "120000"}) is None


def test_a_header_that_no_reader_takes_is_refused_before():
    with pytest.raises(PatchFault):
        changed_by(re.sub("p/a", "../a", MODE), modes={})
