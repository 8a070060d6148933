import pytest

from patchbisect.bisection.judging import Target, Threshold, reached, short
from patchbisect.errors import UsageError
from patchbisect.model import Milestone, Outcome, Role, Signature, Stage, Verdict
from patchbisect.search import Observation
from tests.bisection.world import DIRTY, ELSEWHERE, FAILS, LATER, READY, WRONG_CODE, failing

GOOD, BAD, SKIP = Observation.GOOD, Observation.BAD, Observation.SKIP
OOM = Verdict(
    outcome=Outcome.OOM,
    stage=Stage.KV_PROFILE,
    role=Role.TARGET,
    signature=Signature(outcome=Outcome.OOM, stage=Stage.KV_PROFILE, role=Role.TARGET, cause="kv-profile"),
)
KV = Verdict(
    outcome=Outcome.KV_ALLOCATED,
    passed=frozenset(Milestone(Role.TARGET, stage) for stage in list(Stage)[:5]),
    facts={"kv_tokens": 1000},
)
DRAFT_PASSED = failing(Stage.KV_PROFILE, "other", passed=frozenset({Milestone(Role.DRAFT, Stage.KV_PROFILE)}))


@pytest.mark.parametrize(
    ("bad_is", "verdict", "told"),
    [
        ("signature", FAILS, BAD),
        ("signature", READY, GOOD),
        ("signature", LATER, GOOD),
        ("signature", KV, GOOD),
        ("signature", ELSEWHERE, SKIP),
        ("signature", failing(cause="another"), SKIP),
        ("signature", OOM, SKIP),
        ("signature", DRAFT_PASSED, SKIP),
        ("signature", DIRTY, None),
        ("signature", WRONG_CODE, SKIP),
        ("outcome", failing(cause="another"), BAD),
        ("outcome", ELSEWHERE, BAD),
        ("outcome", LATER, BAD),
        ("outcome", OOM, SKIP),
        ("outcome", READY, GOOD),
        ("any", OOM, BAD),
        ("any", LATER, BAD),
        ("any", KV, BAD),
        ("any", READY, GOOD),
        ("any", DIRTY, None),
        ("any", WRONG_CODE, SKIP),
    ],
)
def test_what_the_search_is_told(bad_is, verdict, told):
    assert Target(signature=FAILS.signature, bad_is=bad_is).judge(verdict) is told


def test_asked_to_stop_at_the_pool_a_pool_is_enough():
    target = Target(signature=FAILS.signature, bad_is="any", until=Stage.KV_ALLOC)
    assert target.judge(KV) is GOOD
    assert reached(KV, until=Stage.KV_ALLOC)
    assert not reached(KV, until=Stage.SERVING)


@pytest.mark.parametrize(
    ("bad_is", "stage", "late"),
    [
        ("signature", Stage.KV_PROFILE, False),
        ("signature", Stage.WARMUP, True),
        ("signature", Stage.SERVING, True),
        ("any", Stage.KV_PROFILE, True),
    ],
)
def test_only_a_late_failure_needs_a_server_that_stays_ready(bad_is, stage, late):
    assert Target(signature=Signature(outcome=Outcome.CRASH, stage=stage), bad_is=bad_is).late is late


@pytest.mark.parametrize(
    ("condition", "tokens", "told"),
    [
        ("kv_tokens < 900000", 899_999, BAD),
        ("kv_tokens < 900000", 900_000, GOOD),
        ("kv_tokens<=900_000", 900_000, BAD),
        ("kv_tokens >5", 6, BAD),
        ("kv_tokens >= 5.5", 5, GOOD),
        ("swa_tokens < 5", 4, SKIP),
    ],
)
def test_a_number_is_what_is_bad(condition, tokens, told):
    verdict = Verdict(outcome=Outcome.READY, facts={"kv_tokens": tokens})
    assert Threshold.parse(condition).judge(verdict) is told


def test_a_number_is_judged_whether_it_starts_or_not():
    threshold = Threshold.parse("avail_gb < 2")
    assert threshold.judge(failing(facts={"avail_gb": 1.5})) is BAD
    assert threshold.judge(DIRTY) is None
    assert threshold.judge(WRONG_CODE) is SKIP
    assert str(threshold) == "avail_gb < 2"


@pytest.mark.parametrize("text", ["kv_tokens", "kv_tokens == 5", "5 < kv_tokens", "kv_tokens < many", ""])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="is no condition on a fact"):
        Threshold.parse(text)


def test_short_words():
    assert short(FAILS) == "crash/unbound-name"
    assert short(READY) == "ready/serving"
