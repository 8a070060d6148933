import pytest
from unidiff import PatchSet

from patchbisect.patchqueue.diff import leaves_tree, parse_diff, split_lines
from patchbisect.patchqueue.faults import PatchFault

GOOD = """\
diff --git a/python/a.py b/python/a.py
index 1111111..2222222 100644
--- a/python/a.py
+++ b/python/a.py
@@ -1,3 +1,4 @@ def f():
 one
-two
+zwei
+drei
 four
@@ -10,2 +11 @@
 ten
-eleven
diff --git a/new.py b/new.py
new file mode 100644
index 0000000..3333333
--- /dev/null
+++ b/new.py
@@ -0,0 +1,2 @@
+hello
+world
\\ No newline at end of file
diff --git a/old.py b/old.py
deleted file mode 100644
index 4444444..0000000
--- a/old.py
+++ /dev/null
@@ -1 +0,0 @@
MARK
""".replace("MARK", "-- ")


def parsed(text):
    return parse_diff(split_lines(text), start=0, filename="x.patch")


def fault_of(text):
    with pytest.raises(PatchFault) as caught:
        parsed(text)
    return caught.value.fault


def link(target, path="python/link"):
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 120000\nindex 0000000..3333333\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
    )


def test_files_hunks_and_places():
    files = parsed(GOOD).files
    assert [(file.old_path, file.new_path, file.line) for file in files] == [
        ("python/a.py", "python/a.py", 1),
        (None, "new.py", 14),
        ("old.py", None, 23),
    ]
    assert [(hunk.line, hunk.number, hunk.old_start, hunk.new_count) for hunk in files[0].hunks] == [
        (5, 1, 1, 4),
        (11, 2, 10, 1),
    ]
    assert files[0].hunks[0].before == ["one\n", "two\n", "four\n"]
    assert files[0].hunks[0].after == ["one\n", "zwei\n", "drei\n", "four\n"]
    assert files[1].hunks[0].after == ["hello\n", "world"]
    assert (files[0].old_blob, files[0].new_mode) == ("1111111", "100644")


def test_agrees_with_unidiff():
    ours = parsed(GOOD).files
    theirs = PatchSet(GOOD)
    assert [file.path for file in ours] == [file.path for file in theirs]
    for file, other in zip(ours, theirs, strict=True):
        assert [(h.old_start, h.old_count, h.new_start, h.new_count) for h in file.hunks] == [
            (h.source_start, h.source_length, h.target_start, h.target_length) for h in other
        ]


def test_a_removed_line_that_looks_like_a_signature_belongs_to_its_hunk():
    diff = parsed(GOOD + "-- \n2.39.5\n")
    assert diff.files[-1].hunks[0].before == ["- \n"]
    assert diff.end == len(split_lines(GOOD))


def test_an_empty_line_is_an_empty_context_line():
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n\n-a\n+b\n"
    assert parsed(text).files[0].hunks[0].before == ["\n", "a\n"]


def test_a_form_feed_or_a_carriage_return_ends_no_line():
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\x0cb\r\n-c\u2028d\n+e\n"
    assert parsed(text).files[0].hunks[0].before == ["a\x0cb\r\n", "c\u2028d\n"]


def test_names_that_git_quotes():
    text = 'diff --git "a/d\\303\\274\\t\\"x" "b/d\\303\\274\\t\\"x"\n'
    fault = fault_of(text + "old mode 100644\nnew mode 100755\n")
    assert fault.rule == "outside"
    assert "control character" in fault.message
    plain = 'diff --git "a/d\\303\\274" "b/d\\303\\274"\nold mode 100644\nnew mode 100755\n'
    assert parsed(plain).files[0].path == "dü"


def test_names_with_spaces_and_renames():
    text = "diff --git a/a b c b/a b c\nold mode 100644\nnew mode 100755\n"
    assert parsed(text).files[0].path == "a b c"
    text = "diff --git a/x y b/z b/w\nsimilarity index 100%\nrename from x y\nrename to z b/w\n"
    assert (parsed(text).files[0].old_path, parsed(text).files[0].new_path) == ("x y", "z b/w")


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (
            ("@@ -1,3 +1,4 @@", "@@ -1,3 +1,5 @@"),
            11,
            "hunk 1 of python/a.py (header at line 5) does not have the lines",
        ),
        (("@@ -1,3 +1,4 @@", "@@ -1,2 +1,3 @@"), 10, "longer than its header says"),
        (("@@ -10,2 +11 @@", "@@ -10,2 +12 @@"), 11, "hunk 2 of python/a.py says line 12 of the new file"),
        (("@@ -10,2 +11 @@", "@@ -10,2 +eleven @@"), 11, "hunk 2 of python/a.py has no readable header"),
        (("-two\n+zwei\n+drei\n", " two\n"), 9, "hunk 1 of python/a.py (header at line 5)"),
        (("+++ b/python/a.py\n", ""), 4, "without its '+++' line"),
        (("+++ b/python/a.py", "+++ b/python/b.py"), 1, "differ from the header's"),
        (("new file mode 100644", "new file mode banana"), 15, "not a file mode: 'banana'"),
        (("diff --git a/old.py", "hello\ndiff --git a/old.py"), 23, "neither a diff nor the end of one: 'hello'"),
        (("--- a/old.py", "--- old.py"), 26, "does not begin with a/ or b/"),
    ],
)
def test_corrupt(change, line, said):
    assert change[0] in GOOD
    fault = fault_of(GOOD.replace(*change, 1))
    assert said in fault.message
    assert fault.line == line


def test_a_hunk_that_changes_nothing():
    assert "changes nothing" in fault_of("--- a/x\n+++ b/x\n@@ -1 +1 @@\n same\n").message


def test_a_patch_cut_inside_a_hunk_is_corrupt_wherever_it_is_cut():
    first_hunk = GOOD.index("\n one\n")
    for end in range(first_hunk + 1, GOOD.index("@@ -10")):
        assert fault_of(GOOD[:end]).rule == "corrupt"


def test_a_file_changed_twice():
    part = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    fault = fault_of(part + part)
    assert (fault.line, fault.message) == (6, "x is changed twice, first at line 1")


@pytest.mark.parametrize("text", ["GIT binary patch\nliteral 3\nKcmZ\n", "Binary files a/x.bin and b/x.bin differ\n"])
def test_binary(text):
    fault = fault_of(f"diff --git a/x.bin b/x.bin\nindex 1111111..2222222 100644\n{text}")
    assert (fault.rule, fault.line) == ("binary", 3)


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "C:/x",
        ".git/hooks/pre-commit",
        "python/.GIT/config",
        "x/.git./config",
        "git~1/config",
        "a//b",
        "./a",
        "a\x01b",
    ],
)
def test_paths_that_leave_the_tree(path):
    assert leaves_tree(path)
    if "\x01" not in path:
        assert fault_of(f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n").rule == "outside"


@pytest.mark.parametrize("path", ["a", "a/b.py", ".github/x", "a/..b", "python/.gitignore", "x..y/z"])
def test_paths_inside_the_tree(path):
    assert not leaves_tree(path)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd", "..", "../.git/hooks", "x/../../../y"])
def test_links_out_of_the_tree(target):
    fault = fault_of(link(target))
    assert (fault.rule, fault.line) == ("symlink", 6)
    assert repr(target) in fault.message


def test_a_link_inside_the_tree_is_allowed():
    assert parsed(link("../README.md")).files[0].new_mode == "120000"


def test_a_changed_link_is_looked_at_too():
    text = (
        "diff --git a/l b/l\nindex 1111111..2222222 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-a\n"
        "\\ No newline at end of file\n+/etc\n\\ No newline at end of file\n"
    )
    assert fault_of(text).rule == "symlink"


def test_a_submodule():
    text = "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n+++ b/sub\n"
    assert fault_of(text + "@@ -0,0 +1 @@\n+Subproject commit 1111111\n").rule == "submodule"


def test_nothing_changed():
    assert fault_of("diff --git a/x b/x\nindex 1111111..1111111 100644\n").rule == "empty"
