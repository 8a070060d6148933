from patchbisect.patchqueue import misfits
from patchbisect.patchqueue.diff import parse_diff, split_lines

TEXT = "".join(f"{n}\n" for n in range(1, 31))
HUNK = "--- a/x\n+++ b/x\n@@ -10,3 +10,3 @@\n 10\n-11\n+elf\n 12\n"


def found(text, diff=HUNK):
    [file] = parse_diff(split_lines(diff), start=0, filename="x.patch").files
    return misfits(file, text)


def test_a_hunk_that_stands_where_it_says():
    assert found(TEXT) == ()


def test_a_moved_hunk_and_where_it_would_fit():
    [misfit] = found("0\n" + TEXT)
    assert (misfit.path, misfit.hunk, misfit.expected, misfit.places) == ("x", 1, 10, (11,))
    assert str(misfit) == "x, hunk 1: wanted at line 10, fits at line 11"


def test_more_than_one_place_nearest_first():
    [misfit] = found("0\n" + TEXT + TEXT)
    assert misfit.places == (11, 41)
    assert "also at 41" in str(misfit)


def test_a_changed_line_is_shown_with_what_was_wanted():
    [misfit] = found(TEXT.replace("11\n", "eleven\n"))
    assert misfit.places == ()
    assert (misfit.line, misfit.wanted, misfit.found) == (11, "11", "eleven")


def test_a_file_that_is_too_short():
    [misfit] = found("1\n2\n")
    assert misfit.found == "(end of file)"


def test_a_missing_line_end_is_a_difference():
    diff = "--- a/x\n+++ b/x\n@@ -30 +30 @@\n-30\n+dreissig\n"
    assert found(TEXT, diff) == ()
    assert len(found(TEXT.removesuffix("\n"), diff)) == 1


def test_an_insertion_into_an_empty_file():
    assert found("", "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+1\n") == ()
