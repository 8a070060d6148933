"""Every milestone of every release: the same start, told in the words of 34 releases."""

from __future__ import annotations

import pytest

from patchbisect.model import Milestone, Outcome, Role, Signals, Stage
from patchbisect.startup import Classifier, Ledger, classify
from tests.startup.formats import RELEASES, Release, Server, tiers

each_release = pytest.mark.parametrize("release", tiers(RELEASES))
STAGES = list(Stage)


@each_release
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "draft"])
def test_a_whole_start(release: Release, tp: int, draft: bool) -> None:
    verdict = classify(Server(release, tp=tp, draft=draft).all(), Signals(alive=True))
    assert (verdict.outcome, verdict.stage, verdict.reached_ready) == (Outcome.READY, Stage.SERVING, True)
    facts = verdict.facts
    assert (facts["kv_tokens"], facts["mem_fraction"], facts["tp"], facts["total_gb"]) == (100000, 0.85, tp, 90.0)
    if release >= (0, 4, 2):
        assert facts["kv_gb"] == 30.0
        assert facts.get("draft_kv_gb") == (2.0 if draft else None)
    if release >= (0, 4, 7):
        assert facts["avail_gb"] == 17.5
    assert Milestone(Role.TARGET, Stage.SERVING) in verdict.passed
    assert (Milestone(Role.DRAFT, Stage.KV_ALLOC) in verdict.passed) is draft


@each_release
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "draft"])
def test_stages_are_passed_one_by_one(release: Release, tp: int, draft: bool) -> None:
    """After each step the target has passed exactly the stages that all of its ranks have ended."""
    reader, ended = Classifier(), -1
    for stage, text in Server(release, tp=tp, draft=draft).steps()[:-1]:
        if text.startswith(("[2026-01-01 10:00:17", "[2026-01-01 10:00:19", "[2026-01-01 10:00:20")):
            continue  # the draft's
        reader.feed(text)
        passed = {mark.stage for mark in reader.verdict(Signals(alive=True)).passed if mark.role is Role.TARGET}
        if stage in (Stage.DIST_INIT, Stage.WEIGHT_LOAD, Stage.KV_ALLOC, Stage.GRAPH_CAPTURE):
            if stage is not Stage.DIST_INIT or release >= (0, 4, 4):
                ended = STAGES.index(stage)
            assert passed == set(STAGES[: ended + 1]) or (release < (0, 4, 4) and stage is Stage.DIST_INIT)


@each_release
def test_one_rank_short_is_not_passed(release: Release) -> None:
    server = Server(release, tp=4)
    text = "".join(line for line in server.until(Stage.KV_ALLOC).splitlines(True) if "TP2] Memory pool end" not in line)
    verdict = classify(text, Signals(alive=True))
    assert Milestone(Role.TARGET, Stage.KV_ALLOC) not in verdict.passed
    assert Milestone(Role.TARGET, Stage.WEIGHT_LOAD) in verdict.passed


@each_release
@pytest.mark.parametrize("tp", [1, 4])
def test_kv_alloc_is_enough_when_asked(release: Release, tp: int) -> None:
    server = Server(release, tp=tp)
    *early, last = server.until(Stage.KV_ALLOC).splitlines(keepends=True)
    reader = Classifier(until=Stage.KV_ALLOC)
    for line in early:
        reader.feed(line)
        assert not reader.verdict(Signals(alive=True)).final
    reader.feed(last)
    verdict = reader.verdict(Signals(alive=True))
    assert (verdict.outcome, verdict.stage, verdict.final) == (Outcome.KV_ALLOCATED, Stage.KV_ALLOC, True)


@each_release
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "draft"])
def test_the_release_is_among_those_that_the_formats_allow(release: Release, draft: bool) -> None:
    found = Ledger.read(Server(release, draft=draft).all()).releases
    assert found.low <= release <= found.high


@each_release
def test_the_waterfall_adds_up(release: Release) -> None:
    (rank,) = Ledger.read(Server(release, draft=True).all()).ranks
    assert rank.start_gb is not None and rank.rest_gb is not None
    assert rank.start_gb - sum(entry.gb for entry in rank.entries) == pytest.approx(rank.rest_gb, abs=0.01)
