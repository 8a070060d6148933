"""Patches as others keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.importing import Defaults, home_of, import_file, import_series
from patchbisect.maintain.placing import misplaced
from patchbisect.patchqueue import format_patch
from tests.maintain.lab import ENGINE, Lab

DEFAULTS = Defaults(author="Me <me@example.org>", date="Sun, 29 Nov 2026 10:00:00 +0000")
HUNK = "@@ -9,3 +9,3 @@\n engine_9 = 9\n-engine_10 = 10\n+engine_10 = 0\n engine_11 = 11\n"
PLAIN = f"--- a/{ENGINE}\n+++ b/{ENGINE}\n{HUNK}"


def one(text: str | bytes, name: str = "0003-fix-it.patch"):  # type: ignore[no-untyped-def]
    data = text.encode() if isinstance(text, str) else text
    [imported] = import_file(name, data, defaults=DEFAULTS)
    return imported


def test_a_plain_diff() -> None:
    imported = one(PLAIN)
    patch = imported.patch
    assert patch.files == (ENGINE,)
    assert (patch.subject, patch.author, patch.trailer("Kind")) == ("fix it", DEFAULTS.author, "experiment")
    told = "\n".join(imported.account)
    assert "no subject" in told
    assert "no author" in told
    assert "no date" in told
    assert "compared" not in told


def test_a_file_that_was_compared_with_its_copy_is_a_change_of_the_file() -> None:
    copy = ENGINE.replace(".py", "_before.py")
    imported = one(PLAIN.replace(f"--- a/{ENGINE}", f"--- a/{copy}"))
    assert imported.patch.files == (ENGINE,)
    assert f"{copy} was compared with {ENGINE}: taken as a change of {ENGINE}" in imported.account


def test_gits_own_form_without_a_body_keeps_the_diffstat_out_of_the_subject() -> None:
    head = "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: Ada <ada@example.org>\n"
    head += "Date: Sun, 29 Nov 2026 10:00:00 +0000\nSubject: [PATCH] Print free memory\n before the weights\n\n---\n"
    stat = f" {ENGINE} | 1 +\n 1 file changed, 1 insertion(+)\n\n"
    imported = one(f"{head}{stat}diff --git a/{ENGINE} b/{ENGINE}\n{PLAIN}-- \n2.39.5\n", name="raw.patch")
    assert imported.patch.subject == "Print free memory before the weights"
    assert imported.patch.slug == "print-free-memory-before-the-weights"
    assert "changed" not in imported.patch.body


def test_our_own_form_is_taken_byte_for_byte(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    data = (lab.root / "patches" / "0003-three.patch").read_bytes()
    imported = one(data, name="0003-three.patch")
    assert format_patch(imported.patch) == data
    assert imported.patch.slug == "three"
    assert imported.account == ()


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("a/python/sglang/srt/x.py", "python/sglang/srt/x.py"),
        ("a/sglang/srt/x.py", "python/sglang/srt/x.py"),
        ("sglang/srt/x.py", "python/sglang/srt/x.py"),
        ("b/srt/x.py", "python/sglang/srt/x.py"),
        ("/sgl-workspace/sglang/python/sglang/srt/x.py", "python/sglang/srt/x.py"),
        ("/usr/lib/python3/site-packages/sglang/srt/x.py", "python/sglang/srt/x.py"),
        ("sglang-0.5.9.orig/python/sglang/launch_server.py", "python/sglang/launch_server.py"),
        ("a/sglang/launch_server.py", "python/sglang/launch_server.py"),
        ("python\\sglang\\srt\\x.py", "python/sglang/srt/x.py"),
        ("a/test/test_x.py", "test/test_x.py"),
        ("a/sgl-kernel/csrc/x.cu", "sgl-kernel/csrc/x.cu"),
        ("a/python/sglang/srt/x.py.orig", "python/sglang/srt/x.py"),
    ],
)
def test_names_are_found_in_sglangs_repository(name: str, home: str) -> None:
    assert home_of(name) == home


def test_other_names_are_told() -> None:
    imported = one(PLAIN.replace("/python/sglang/", "/sglang/"))
    assert imported.patch.files == (ENGINE,)
    assert any("is python/sglang/engine.py in SGLang's repository" in line for line in imported.account)
    outside = one(PLAIN.replace(ENGINE, "test/x.py"))
    assert any("outside python/sglang" in line for line in outside.account)


def test_encodings() -> None:
    crlf = one(PLAIN.replace("\n", "\r\n"))
    assert "\r" not in crlf.patch.text
    assert any("CRLF" in line for line in crlf.account)
    marked = one(b"\xef\xbb\xbf" + PLAIN.encode())
    assert any("byte-order mark" in line for line in marked.account)
    wide = one(PLAIN.encode("utf-16"))
    assert any("UTF-16" in line for line in wide.account)
    latin = one(b"From: Andr\xe9 <a@example.org>\nSubject: x\n\n---\n" + PLAIN.encode())
    assert latin.patch.author == "André <a@example.org>"


def test_a_file_that_diff_n_creates_and_one_it_deletes() -> None:
    born = "--- /dev/null\n+++ b/python/sglang/n.py\n@@ -0,0 +1 @@\n+x = 1\n"
    epoch = f"--- old/python/sglang/n.py\t1970-01-01 01:00:00 +0100\n{born.split(chr(10), 1)[1]}"
    gone = "--- a/python/sglang/n.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n"
    assert "new file mode 100644" in one(born).patch.diff
    assert "new file mode 100644" in one(epoch).patch.diff
    assert "deleted file mode 100644" in one(gone).patch.diff


def test_a_mailbox_is_several_patches() -> None:
    head = "From: A <a@b.c>\nDate: Sun, 29 Nov 2026 10:00:00 +0000\nSubject: [PATCH 1/2] S{1}\n\nWhy.\n---\n"
    mail = "From {0} Mon Sep 17 00:00:00 2001\n" + head + PLAIN
    box = mail.format("0" * 40, 1) + "-- \n2.39\n\n" + mail.format("1" * 40, 2) + "-- \n2.39\n"
    first, second = import_file("two.mbox", box.encode(), defaults=DEFAULTS)
    assert (first.patch.subject, second.patch.subject) == ("S1", "S2")
    assert (first.patch.body, first.patch.author) == ("Why.", "A <a@b.c>")


def test_a_quilt_series_with_guards() -> None:
    files = {
        "series": b"# a comment\nfirst.patch\nsecond.patch -p0 #+big\nthird.patch #-big\n\n",
        "first.patch": b"Description: The first\n" + PLAIN.encode(),
        "second.patch": PLAIN.replace("a/", "", 1).replace("b/", "", 1).encode(),
        "third.patch": PLAIN.encode(),
        "stray.patch": b"",
    }
    imported, notes = import_series(files, defaults=DEFAULTS)
    assert [one.patch.enabled for one in imported] == [True, False, True]
    assert imported[0].patch.subject == "The first"
    assert any("guard (+big) is not set" in line for line in imported[1].account)
    assert notes == ["not in the series, left out: stray.patch"]
    chosen, _ = import_series(files, defaults=DEFAULTS, guards=["big"])
    assert [one.patch.enabled for one in chosen] == [True, True, False]
    with pytest.raises(UsageError, match="series:2: lists first.patch, which is not there"):
        import_series({"series": files["series"]}, defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "no diff"),
        (PLAIN.replace(" engine_11 = 11\n", ""), "does not have the lines"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "a binary file"),
        ("Only in new: x.py\n", "not in the diff"),
        (PLAIN.replace("a/python", "a/../python").replace("b/python", "b/../python"), "leaves the tree"),
        ("diff --git a/x b/x\nnew file mode 160000\n", "submodule"),
        ("*** a/x\n--- b/x\n***************\n", "context diff"),
        ("\0\0\0", "binary"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        one(text)


def test_a_patch_too_large_to_read() -> None:
    with pytest.raises(UsageError, match="50 MiB: more than anybody reads"):
        one(b"x" * (50 * 2**20))


def test_a_mega_patch() -> None:
    files = [f"python/sglang/srt/f{number}.py" for number in range(300)]
    text = "".join(
        f"--- a/{name}\n+++ b/{name}\n@@ -1,3 +1,13 @@\n a\n"
        + "".join(f"+{name} {n}\n" for n in range(10))
        + " b\n c\n"
        for name in files
    )
    assert text.count("\n") > 4000
    assert one(text).patch.files == tuple(files)


def test_every_hunk_that_stands_nowhere_is_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    shop = lab.shop()
    second = HUNK.replace("engine_9", "engine_x").replace("9,3", "40,3")
    imported = one(f"--- a/{ENGINE}\n+++ b/{ENGINE}\n{HUNK}{second}")
    told = misplaced(shop, [imported.patch], after=shop.queue().enabled)
    assert len(told) == 2
    missing = one(PLAIN.replace("engine.py", "nowhere.py"))
    told = misplaced(shop, [missing.patch], after=shop.queue().enabled)
    assert told == ["fix-it: python/sglang/nowhere.py is not there"]
    fine = one(
        PLAIN.replace("engine_10", "engine_30")
        .replace("engine_9 = 9", "engine_29 = 29")
        .replace("engine_11 = 11", "engine_31 = 31")
        .replace("= 10\n", "= 30\n")
        .replace("9,3", "29,3")
    )
    assert misplaced(shop, [fine.patch], after=shop.queue().enabled) == []
    shop.edit("import", lambda editor: editor.insert([fine.patch]))
    assert "engine_30 = 0\n" in lab.result()


def test_trailers_of_other_people_stay_and_wrong_ones_of_ours_are_told() -> None:
    text = f"Subject: Fix it\nFrom: A <a@b.c>\n\nWhy.\n\nSigned-off-by: A <a@b.c>\nKind: nonsense\n---\n{PLAIN}"
    imported = one(text)
    assert ("Signed-off-by", "A <a@b.c>") in imported.patch.trailers
    assert imported.patch.trailer("Kind") == "experiment"
    assert any(line.startswith("Kind: nonsense is dropped: ") for line in imported.account)
