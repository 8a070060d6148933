import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.errors import UsageError
from patchbisect.model import Stage
from patchbisect.patchqueue import (
    PatchFault,
    Probe,
    author_of,
    commit_message,
    compose,
    diff_of,
    format_patch,
    git_date,
    parse_patch,
    probes,
    renamed,
    requires,
    survey_patch,
)

DIFF = "diff --git a/python/a.py b/python/a.py\nindex 1111111..2222222 100644\n--- a/python/a.py\n+++ b/python/a.py\n"
DIFF += "@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"

PATCH = (
    "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
    "From: Ada L <ada@example.org>\n"
    "Date: Mon, 23 Feb 2026 08:13:52 +0100\n"
    "Subject: [PATCH 3/7] Say the numbers\n"
    " in German\n"
    "\n"
    "Because it is shorter.\n"
    "\n"
    "Kind: fix\n"
    "Forwarded: https://example.org/pull/1\n"
    "Requires: kv-probe, memory\n"
    "Waive: no-sync the timer needs\n"
    " one\n"
    "---\n"
    " python/a.py | 2 +-\n"
    " 1 file changed, 1 insertion(+), 1 deletion(-)\n"
    "\n" + DIFF + "-- \n2.39.5\n\n"
)


def read(text, filename="patches/0003-numbers.patch"):
    return parse_patch(text.encode() if isinstance(text, str) else text, filename=filename)


def fault_of(text, filename="patches/0003-numbers.patch"):
    with pytest.raises(PatchFault) as caught:
        read(text, filename)
    return caught.value.fault


def test_fields():
    patch = read(PATCH)
    assert (patch.number, patch.slug, patch.name) == (3, "numbers", "0003-numbers")
    assert patch.subject == "Say the numbers in German"
    assert patch.body == "Because it is shorter."
    assert patch.trailers == (
        ("Kind", "fix"),
        ("Forwarded", "https://example.org/pull/1"),
        ("Requires", "kv-probe, memory"),
        ("Waive", "no-sync the timer needs one"),
    )
    assert patch.diff == DIFF
    assert patch.files == ("python/a.py",)
    assert requires(patch) == ("kv-probe", "memory")
    assert author_of(patch) == ("Ada L", "ada@example.org")
    assert git_date(patch) == "1771830832 +0100"
    assert commit_message(patch).startswith("Say the numbers in German\n\nBecause it is shorter.\n\nKind: fix\n")
    assert diff_of(patch).files[0].hunks[0].line == PATCH.split("@@")[0].count("\n") + 1


def test_writing_what_was_read_changes_no_byte():
    assert format_patch(read(PATCH)) == PATCH.encode()


@given(st.binary(max_size=60))
def test_no_byte_changes_whatever_the_body_and_the_code_hold(noise):
    noise = noise.replace(b"\n", b" ")
    data = PATCH.replace("Because it is shorter.", "Because MARK.").replace("+zwei", "+zMARK").encode()
    data = data.replace(b"MARK", noise)
    patch = parse_patch(data, filename="0003-numbers.patch")
    assert format_patch(patch) == data


@given(st.binary(max_size=400))
def test_any_bytes_are_a_patch_or_a_usage_error(data):
    patch, faults = survey_patch(data, filename="0001-x.patch")
    assert patch is not None or faults


@given(st.data())
def test_a_patch_damaged_anywhere_is_read_back_or_refused_with_its_place(data):
    at = data.draw(st.integers(0, len(PATCH) - 1))
    damage = data.draw(st.sampled_from(["", "\n", " ", "\x00", "@@", "+", "-", "é", "\ud800"]))
    text = (PATCH[:at] + damage + PATCH[at + 1 :]).encode("utf-8", "surrogatepass")
    patch, faults = survey_patch(text, filename="0003-numbers.patch")
    if patch is not None:
        assert format_patch(patch) == text
    for fault in faults:
        assert 0 <= fault.line <= text.count(b"\n") + 1
        assert fault.file == "0003-numbers.patch"


def test_bytes_that_are_not_utf8_are_kept_and_shown_as_latin1():
    data = PATCH.replace("Ada L", "Andr\xe9").replace("+zwei", "+zw\xe9i").encode("latin-1")
    patch = read(data)
    assert format_patch(patch) == data
    assert author_of(patch) == ("Andr\xe9", "ada@example.org")


def test_encoded_words():
    patch = read(
        PATCH.replace("Ada L", "=?UTF-8?q?Andr=C3=A9?=").replace("[PATCH 3/7] Say", "[PATCH] =?utf-8?B?w6k=?= Say")
    )
    assert patch.author == "André <ada@example.org>"
    assert patch.subject == "é Say the numbers in German"


def test_a_dash_line_in_the_body_ends_it_as_for_git_am():
    patch = read(PATCH.replace("---\n python", "---\nnotes for reviewers\n python"))
    assert patch.trailers[0] == ("Kind", "fix")


def test_trailers_are_the_last_paragraph_only():
    text = PATCH.replace("Because it is shorter.\n", "Note: this is prose.\nAnd more.\n")
    assert read(text).body == "Note: this is prose.\nAnd more."


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("Kind: fix\n", ""), 9, "has no Kind: trailer"),
        (("Forwarded: https://example.org/pull/1\n", ""), 9, "has no Forwarded: trailer"),
        (
            ("Kind: fix", "Kind: fixx"),
            9,
            "'fixx' is none of instrumentation, fix, experiment, backport (did you mean fix?)",
        ),
        (("https://example.org/pull/1", "maybe"), 10, "neither a URL nor no nor not-needed"),
        (("Waive: no-sync the timer needs\n one\n", "Waive: no-sync\n"), 12, "names a rule without a reason"),
        (("Waive: no-sync", "Enabled: nope\nWaive: no-sync"), 12, "'nope' is none of yes, no"),
        (("Waive: no-sync", "Enabeld: no\nWaive: no-sync"), 12, "unknown trailer Enabeld (did you mean Enabled?)"),
        (("Waive: no-sync", "Upstream: v0.5.9\nWaive: no-sync"), 12, "'v0.5.9' is not a range A..B"),
        (("Requires: kv-probe, memory", "Requires: kv probe!"), 11, "is not a list of slugs"),
        (("Date: Mon, 23 Feb 2026 08:13:52 +0100\n", ""), 2, "has no Date: line"),
        (("Mon, 23 Feb 2026 08:13:52 +0100", "yesterday"), 3, "'yesterday' is not a date"),
        (("Mon, 23 Feb 2026", "Mon, 23 Feb 1926"), 3, "before 1970"),
        (("Ada L <ada@example.org>", "Ada"), 2, "has no mail address"),
        (("From: Ada L <ada@example.org>\n", ""), 2, "has no From: line"),
        ((DIFF, ""), 14, "holds no diff"),
    ],
)
def test_faults_of_header_and_trailers(change, line, said):
    assert change[0] in PATCH
    fault = fault_of(PATCH.replace(*change))
    assert said in fault.message
    assert fault.line == line
    assert str(fault).startswith(f"patches/0003-numbers.patch:{line}: ")


def test_every_fault_of_header_and_trailers_is_told():
    _, faults = survey_patch(
        PATCH.replace("Kind: fix\n", "").replace("pull/1", "pull /1").encode(), filename="0001-x.patch"
    )
    assert len(faults) == 2


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("", "empty", 0),
        ("\n \n", "empty", 0),
        ("hello\n", "header", 1),
        (DIFF, "header", 1),
        ("\ufeff" + PATCH, "encoding", 1),
        (PATCH.replace("\n", "\r\n"), "encoding", 2),
        (PATCH.replace("Ada L <ada@example.org>\n", "Ada L <ada@example.org>\r\n"), "encoding", 2),
    ],
)
def test_what_is_no_patch(text, rule, line):
    fault = fault_of(text)
    assert (fault.rule, fault.line) == (rule, line)


@pytest.mark.parametrize(
    "name", ["numbers.patch", "3-x.patch", "0003.patch", "0003-.patch", "0003-a b.patch", "0003-x.diff"]
)
def test_misnamed_files(name):
    assert fault_of(PATCH, filename=name).rule == "name"


def test_a_refused_patch_is_a_usage_error_with_exit_code_2():
    with pytest.raises(UsageError) as caught:
        read("")
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_compose_and_rename():
    patch = compose(
        number=4,
        slug="new",
        author="Ada L <ada@example.org>",
        date="Mon, 23 Feb 2026 08:13:52 +0100",
        subject="Say it",
        body="Why.",
        trailers=[("Kind", "fix"), ("Forwarded", "no")],
        diff=DIFF,
    )
    assert (patch.subject, patch.body, patch.trailers) == ("Say it", "Why.", (("Kind", "fix"), ("Forwarded", "no")))
    assert patch.diff == DIFF
    assert read(format_patch(patch), "0004-new.patch") == patch
    moved = renamed(patch, number=9)
    assert (moved.name, moved.text) == ("0009-new", patch.text)


def test_compose_refuses_what_could_not_be_read():
    with pytest.raises(PatchFault, match="has no Kind"):
        compose(number=1, slug="x", author="a <a@b>", date="Mon, 23 Feb 2026 08:13:52 +0100", subject="s", body="b",
                trailers=[("Forwarded", "no")], diff=DIFF)  # fmt: skip


def test_a_large_patch_is_read_in_one_pass():
    hunk = "@@ -1,0 +2,200000 @@\n" + "+x = 1\n" * 200_000
    text = PATCH.replace(DIFF, DIFF.partition("@@")[0] + hunk)
    assert len(diff_of(read(text)).files[0].hunks[0].after) == 200_000


def promising(value):
    return read(PATCH.replace("Waive: no-sync the timer needs\n one", f"Probe: {value}"))


def test_what_a_probe_trailer_promises():
    assert probes(promising("kv")) == (Probe(name="kv", stage=Stage.GRAPH_CAPTURE),)
    [probe] = probes(promising("sums by warmup when COUNT=1"))
    assert probe == Probe(name="sums", stage=Stage.WARMUP, variable="COUNT", value="1")
    assert probe.is_on({"COUNT": "1"})
    assert not probe.is_on({"COUNT": "0"})
    assert not probe.is_on({})


@pytest.mark.parametrize("value", ["two words", "kv by warmpu", "kv when COUNT", ""])
def test_a_probe_trailer_that_cannot_be_read_is_a_fault(value):
    with pytest.raises(PatchFault):
        promising(value)
