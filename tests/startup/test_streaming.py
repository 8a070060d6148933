"""However the text arrives, the verdict is the same; and no text makes the classifier raise."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchbisect.model import Stage, Verdict
from patchbisect.startup import Classifier, classify
from tests.startup.formats import Release, Server
from tests.startup.handed import ALL, Case, differences

BRACKET = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?P<ranks>[A-Z_]+\d+(?: [A-Z_]+\d+)*))?\]")
each_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
MULTI_RANK = [case for case in ALL if len({m["ranks"] for m in BRACKET.finditer(case.text)} - {None}) > 1]


def essence(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.outcome,
        verdict.stage,
        verdict.role,
        verdict.cause,
        verdict.signature,
        verdict.reached_ready,
        dict(verdict.facts),
        verdict.passed,
    )


@each_case
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_chunking_gives_the_same_verdict(case: Case, data: st.DataObject) -> None:
    raw = case.text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=30)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    whole, pieces = classify(raw, case.signals), classify(chunks, case.signals)
    assert essence(pieces) == essence(whole)
    assert pieces.deciding == whole.deciding


@each_case
def test_byte_by_byte_gives_the_same_verdict(case: Case) -> None:
    raw = case.text.encode()[-6000:]
    assert essence(classify((raw[i : i + 1] for i in range(len(raw))), case.signals)) == essence(
        classify(raw, case.signals)
    )


def blocks_by_rank(text: str) -> list[tuple[str, str]]:
    """(rank, lines) in order: a line without a prefix belongs to the line before it."""
    blocks: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        found = BRACKET.search(line)
        if found is not None or not blocks:
            blocks.append((found["ranks"] or "" if found else "", line))
        else:
            rank, lines = blocks[-1]
            blocks[-1] = (rank, lines + line)
    return blocks


def interleaved(blocks: list[tuple[str, str]], *, seed: int, main_in_place: bool) -> str:
    """Ranks' blocks in another order, the order within a rank (and within the main process) kept."""
    rng = random.Random(seed)
    queues: dict[str, list[str]] = {}
    for rank, lines in blocks:
        queues.setdefault(rank, []).append(lines)
    movable = [i for i, (rank, _) in enumerate(blocks) if rank or not main_in_place]
    shuffled = [blocks[i][0] for i in movable]
    rng.shuffle(shuffled)
    turns = [rank for rank, _ in blocks]
    for i, rank in zip(movable, shuffled, strict=True):
        turns[i] = rank
    reading = {rank: iter(lines) for rank, lines in queues.items()}
    return "".join(next(reading[rank]) for rank in turns)


@pytest.mark.parametrize("case", MULTI_RANK, ids=lambda case: case.id)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), main_in_place=st.booleans())
def test_another_interleaving_of_ranks_gives_the_same_verdict(case: Case, seed: int, main_in_place: bool) -> None:
    text = interleaved(blocks_by_rank(case.text), seed=seed, main_in_place=main_in_place)
    assert differences(classify(text, case.signals), case.expect) == []


@pytest.mark.parametrize("release", [(0, 4, 7), (0, 5, 9), (0, 5, 17)])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_two_ranks_that_write_into_each_other(release: Release, seed: int) -> None:
    """One rank's line stands in the middle of another's, which goes on in the next line."""
    server, rng = Server(release, tp=2), random.Random(seed)
    lines = server.until(Stage.KV_ALLOC).splitlines(keepends=True)
    out, at = [], 0
    while at < len(lines):
        one, other = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        if other and " TP0]" in one and " TP1]" in other and rng.random() < 0.7:
            cut = rng.randrange(1, len(one) - 1)
            out.append(one[:cut] + other + one[cut:])
            at += 2
        else:
            out.append(one)
            at += 1
    mended, plain = classify("".join(out)), classify("".join(lines))
    assert dict(mended.facts) == dict(plain.facts)
    assert mended.passed == plain.passed


def test_two_messages_that_share_a_line_by_a_lost_newline() -> None:
    server = Server((0, 5, 9), tp=2)
    text = server.until(Stage.KV_ALLOC)
    first, second = text.splitlines()[-2:]
    glued = text.replace(f"{first}\n{second}\n", f"{first}{second}\n\n")
    assert glued != text
    assert classify(glued).passed == classify(text).passed


PREFIXES = {
    "compose": "sglang-1  | ",
    "compose with colour": "\x1b[36msglang-1  | \x1b[0m",
    "pod": "[pod/sglang-0/server] ",
    "kubernetes time": "2026-01-20T02:40:28.007919077Z ",
    "CRI": "2026-01-20T02:40:28.007919077+00:00 stderr F ",
    "journald": "Sep 04 12:12:40 rig-7 docker[2210]: ",
    "journald iso": "2026-09-04T12:12:40+0200 rig-7 sglang.service[2210]: ",
    "ray": "(SGLangActor pid=4711, ip=10.0.0.7) ",
    "wrapper": "2025-03-07 23:50:20,740 - __main__ - INFO - ",
    "loguru": "2026-03-07 23:50:20.740 | INFO     | launcher.main:relay:88 - ",
    "slurm": "0: ",
    "compose in journald": "Sep 04 12:12:40 rig-7 dockerd[2210]: node-b2 | ",
}


FAST_PREFIXES = ("compose with colour", "kubernetes time", "wrapper")


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(prefix, id=name, marks=() if name in FAST_PREFIXES else pytest.mark.ci)
        for name, prefix in PREFIXES.items()
    ],
)
@each_case
def test_a_prefix_on_every_line_changes_nothing(case: Case, prefix: str) -> None:
    text = "".join(prefix + line for line in case.lines)
    assert differences(classify(text, case.signals), case.expect) == []


SGLANG_LINE = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<ranks>(?: [A-Z_]+\d+)*)\] (?!INFO:|ERROR:)(?P<message>.*)"
)
CUSTOM_FORMATS = {
    "level, pid, place": "{time},123 INFO 4411 [{ranks} scheduler.py:1] {message}",
    "dashes": "{time},123 - sglang.srt.managers.scheduler - INFO -{ranks} - {message}",
    "iso": "{time}.123Z INFO sglang{ranks}: {message}",
    "JSON": '{{"time":"{time}","level":"INFO","ranks":"{ranks}","message":{quoted}}}',
}


@pytest.mark.parametrize("form", CUSTOM_FORMATS.values(), ids=CUSTOM_FORMATS.keys())
@each_case
def test_a_logging_configuration_of_ones_own_changes_nothing(case: Case, form: str) -> None:
    """uvicorn's lines keep their form: it has a logger of its own."""

    def other(found: re.Match[str]) -> str:
        return form.format(**found.groupdict(), quoted=json.dumps(found["message"]))

    assert differences(classify(SGLANG_LINE.sub(other, case.text), case.signals), case.expect) == []


@each_case
def test_colours_change_nothing(case: Case) -> None:
    text = "".join(f"\x1b[32m{line.rstrip(chr(10))}\x1b[0m\n" for line in case.lines)
    assert differences(classify(text, case.signals), case.expect) == []


@each_case
def test_windows_line_ends_change_nothing(case: Case) -> None:
    text = case.text.replace("\n", "\r\n")
    verdict = classify(text, case.signals)
    assert differences(verdict, case.expect) == []
    assert verdict.deciding == classify(case.text, case.signals).deciding


@pytest.mark.parametrize("case", [case for case in ALL if "server_args=" in case.text], ids=lambda case: case.id)
def test_an_earlier_life_changes_nothing_but_the_list(case: Case) -> None:
    other = next(one for one in ALL if one.id == "o01_kv_profile_current_value")
    verdict = classify(other.text + case.text, case.signals)
    assert differences(verdict, case.expect) == []
    assert "kv-profile" in verdict.lives[0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_read(chunks: list[bytes]) -> None:
    reader = Classifier()
    for chunk in chunks:
        reader.feed(chunk)
        reader.verdict()
    reader.close()
    assert not reader.verdict().reached_ready


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(ALL), seed=st.integers(0, 2**32))
def test_damaged_logs_are_read(case: Case, seed: int) -> None:
    rng = random.Random(seed)
    raw = bytearray(case.text.encode())
    for _ in range(rng.randint(1, 60)):
        at = rng.randrange(len(raw))
        raw[at : at + rng.randint(0, 30)] = rng.randbytes(rng.randint(0, 30))
    classify(bytes(raw), case.signals)


def test_memory_does_not_grow_with_the_log() -> None:
    """A line without end, a million bars, and a loop of tracebacks all stay small."""
    reader = Classifier()
    for _ in range(40):
        reader.feed("x" * 100_000)
    for n in range(20_000):
        reader.feed(f"\rDeepGEMM warmup:  48%|####     | {n}/16384 [04:10<04:31, 31.38it/s]")
    for n in range(2_000):
        reader.feed(
            "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            f'  File "/x/sglang/srt/a.py", line {n}, in f\n    f()\nRuntimeError: {n}\n\n'
        )
    life = reader.life
    assert sum(len(signs) for signs in life.signs.values()) <= 1000
    assert len(life.blocks) <= 64
    assert len(life.activity.bar) < 1000
