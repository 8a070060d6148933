import pytest

from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.report.adopting import adopted
from tests.report.builder import case


def test_a_log_becomes_a_run_with_its_verdict(store: Store) -> None:
    record = adopted(store, case("cpu/04-unbound"), name="by-hand")
    assert record.tags == ("by-hand",)
    assert record.origin == "adopted"
    assert record.verdict["outcome"] == "crash"
    assert record.verdict["cause"] == "unbound-name"
    assert record.provenance["server_args"]["mem_fraction_static"] == "0.05"
    assert store.log("by-hand") == case("cpu/04-unbound")


def test_a_server_that_was_ready_stays_ready(store: Store) -> None:
    assert adopted(store, case("cpu/01b-success-warm"), name="good").verdict["outcome"] == "ready"


def test_secrets_in_the_log_are_not_kept(store: Store) -> None:
    log = case("cpu/04-unbound").replace(b"api_key=None", b"api_key='letmein99'")
    assert b"letmein99" in log
    record = adopted(store, log, name="x")
    assert b"letmein99" not in store.log("x")
    assert "letmein99" not in record.model_dump_json()


def test_a_name_that_is_taken_leaves_nothing_behind(store: Store) -> None:
    adopted(store, case("cpu/04-unbound"), name="x")
    with pytest.raises(UsageError, match="is the name of"):
        adopted(store, case("cpu/01b-success-warm"), name="x")
    assert len(store.ids()) == 1
