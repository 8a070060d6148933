import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchbisect.records import Store
from patchbisect.report.compare import compare
from patchbisect.report.reading import read
from patchbisect.report.sources import Source, recorded, source
from patchbisect.startup import classify
from patchbisect.wire import verdict_to_json
from tests.report import builder
from tests.startup.formats import Server


@pytest.fixture
def run(store: Store) -> Callable[..., Source]:
    """Keeps one of the handed logs as a run, with its real verdict."""

    def keep(case: str | bytes, **settings: Any) -> Source:
        log = builder.case(case) if isinstance(case, str) else case
        identifier = f"20261129-18000{len(store.ids())}-0000"
        record = builder.record(identifier, verdict=verdict_to_json(classify(log)), **settings)
        builder.save(store, record, log=log)
        return recorded(store, identifier)

    return keep


def log_of(name: str) -> Source:
    data = builder.case(name)
    return Source(name=name, log=data, record=None, reading=read(data))


def kinds(differences: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(difference["kind"], difference["subject"]) for difference in differences}


LOW, ENOUGH = "cpu/03b-patch-good-memlow", "cpu/03-patch-good"


def test_the_story_ends_with_the_fraction(run: Callable[..., Source]) -> None:
    """A debug print was added and the start fails: the print is not it, nor the machine."""
    clean = run(ENOUGH, flags={"mem-fraction-static": "0.05"}, point="clean")
    printed = run(LOW, flags={"mem-fraction-static": "0.02"}, patches=["0001-print"], point="HEAD")
    comparison = compare(clean, printed)
    assert kinds(comparison["cause"]) == {("patch", "0001-print"), ("flag", "mem-fraction-static")}
    assert comparison["conclusion"] == "same code effect, same memory, the fraction differs"
    assert comparison["explanation"] == ("fraction 0.05 leaves +0.57 GiB for the KV pool, 0.02 leaves -0.08 GiB")


def test_the_story_from_two_log_files_alone() -> None:
    conclusion = compare(log_of(LOW), log_of(ENOUGH))["conclusion"]
    assert conclusion == "same code effect, same memory, the fraction differs"


def test_the_same_code_with_another_fraction(run: Callable[..., Source]) -> None:
    comparison = compare(run(ENOUGH), run(LOW, flags={"mem-fraction-static": "0.02", "tp-size": 1}))
    assert comparison["conclusion"] == "same code effect, same memory, the fraction differs"


def test_a_patch_that_takes_the_pool_away_is_not_excused_by_the_sizing(run: Callable[..., Source]) -> None:
    """The formula leaves a pool for that fraction, so that what refused it is not the fraction."""
    log = builder.case(LOW).replace(b"mem_fraction_static=0.02", b"mem_fraction_static=0.05")
    comparison = compare(run(ENOUGH), run(log, patches=["0001-reserve"]))
    assert comparison["conclusion"].startswith("the code differs (0001-reserve), same memory")
    assert comparison["explanation"] == "ready became oom at kv-profile"


def test_a_patch_that_shrinks_the_pool_is_not_the_same_effect(run: Callable[..., Source]) -> None:
    log = builder.case("logs/r01_swa_two_pools")
    smaller = re.sub(rb"(K|V) size: \d+\.\d+ GB", rb"\1 size: 1.00 GB", log)
    assert smaller != log
    comparison = compare(run(log), run(smaller, patches=["0001-shrink"]))
    assert comparison["conclusion"].startswith("the code differs (0001-shrink)")


def test_a_patch_that_takes_tokens_of_a_tiny_pool_is_not_the_same_effect(run: Callable[..., Source]) -> None:
    """Both pools take 0.00 GiB; the numbers are told, and how many patches are not named."""
    log = builder.case("cpu/01b-success-warm")
    fewer = log.replace(b"#tokens: 4096", b"#tokens: 3072").replace(
        b"max_total_num_tokens=4096", b"max_total_num_tokens=3072"
    )
    patches = [f"000{number}-log" for number in range(7, 10)] + ["0010-cap"]
    comparison = compare(run(log), run(fewer, patches=patches))
    assert comparison["conclusion"] == "the code differs (0007-log, 0008-log, 0009-log and 1 more), same memory"
    assert comparison["explanation"] == "both end the same way: ready, kv_tokens 4096 -> 3072"


def test_pools_that_the_formula_leaves_are_the_fraction_s_doing(run: Callable[..., Source]) -> None:
    def log(fraction: float) -> bytes:
        server, pool = Server((0, 5, 9), fraction=str(fraction)), 50.0 - 60.0 * (1 - fraction)
        said = server.args() + server.dist() + server.load(before=60.0, used=10.0)
        return (said + server.pool(half=pool / 2, after=50.0 - pool)).encode()

    comparison = compare(run(log(0.5)), run(log(0.8), patches=["0001-print"]))
    assert comparison["conclusion"] == "same code effect, same memory, the fraction differs"
    capped = run(log(0.8).replace(b"size: 19.00 GB", b"size: 5.00 GB"), patches=["0001-cap"])
    assert compare(run(log(0.5)), capped)["conclusion"].startswith("the code differs (0001-cap), same memory")


def test_code_that_breaks_the_start_is_not_called_the_same_effect(run: Callable[..., Source]) -> None:
    comparison = compare(run(ENOUGH, point="4"), run("cpu/04-unbound", patches=["0005-print-rest"], point="5"))
    assert comparison["conclusion"].startswith("the code differs (0005-print-rest)")
    assert comparison["explanation"] == "ready became crash (unbound-name) at kv-profile"


def test_noise_is_no_difference(run: Callable[..., Source]) -> None:
    log = builder.case(ENOUGH)
    other = log.replace(b"port=31000", b"port=45678").replace(b"random_seed=", b"random_seed=1")
    assert other != log
    comparison = compare(run(log), run(other))
    assert (comparison["cause"], comparison["effect"]) == ([], [])
    assert comparison["conclusion"] == "nothing differs, in cause or in effect"


def test_a_failure_that_nothing_recorded_explains_is_said_to_come_and_go(run: Callable[..., Source]) -> None:
    started, failed = builder.case(ENOUGH), builder.case("cpu/04-unbound")
    same_until = started[: started.index(b"KV Cache is allocated")].rpartition(b"\n")[0]
    ending = failed[failed.rindex(b"\n", 0, failed.index(b"Scheduler hit an exception")) :]
    comparison = compare(run(started), run(same_until + ending))
    assert comparison["cause"] == []
    assert comparison["conclusion"] == "same code effect, same memory"
    assert "comes and goes by itself" in comparison["explanation"]


def test_every_kind_of_cause_is_told(run: Callable[..., Source]) -> None:
    gpus = [{"name": "RTX PRO 6000", "total_gb": 94.97}] * 8
    a = run(ENOUGH, machine={"driver": "570.1", "gpus": gpus}, env={"A": "1"}, versions={"torch": "2.9.1"})
    b = run(
        ENOUGH,
        machine={"driver": "575.2", "gpus": gpus[:4]},
        env={"B": "1"},
        versions={"torch": "2.10"},
        box="rig",
        profile="other",
        tree="f" * 40,
    )
    comparison = compare(a, b)
    assert kinds(comparison["cause"]) == {
        ("code", "tree"),
        ("profile", "profile"),
        ("env", "A"),
        ("env", "B"),
        ("package", "torch"),
        ("driver", "driver"),
        ("hardware", "gpus"),
        ("box", "box"),
    }
    hardware = next(d for d in comparison["cause"] if d["kind"] == "hardware")
    assert (hardware["a"], hardware["b"]) == ("8 x RTX PRO 6000, 94.97 GiB", "4 x RTX PRO 6000, 94.97 GiB")


def test_patches_that_are_equal_changed_or_only_in_one_are_told_apart(run: Callable[..., Source]) -> None:
    a = run(ENOUGH, patches=["0001-same", "0002-changed", "0003-gone"], tree="e" * 40)
    b = run(ENOUGH, patches=["0001-same", "0002-changed", "0004-new"], tree="f" * 40)
    assert b.record is not None
    b.record["point"]["patches"][1]["sha256"] = "5" * 64
    told = {each["subject"]: (each["a"], each["b"]) for each in compare(a, b)["cause"] if each["kind"] == "patch"}
    assert told.keys() == {"0002-changed", "0003-gone", "0004-new"}
    assert told["0003-gone"] == ("applied", None)
    assert told["0004-new"] == (None, "applied")
    before, after = told["0002-changed"]
    assert (before.startswith("sha256 "), after) == (True, "sha256 " + "5" * 12)


def test_free_memory_before_the_start_is_a_cause(run: Callable[..., Source]) -> None:
    log = builder.case("cpu/02-mem-too-low")
    fuller = log.replace(b"avail mem=22.06", b"avail mem=12.06").replace(b"avail mem=21.53", b"avail mem=11.53")
    comparison = compare(run(log), run(fuller))
    assert kinds(comparison["cause"]) == {("memory-before", "rank")}
    assert "memory differs (rank began with 22.06 and 12.06 GiB)" in comparison["conclusion"]


def test_a_model_whose_weights_are_larger_has_not_the_same_memory() -> None:
    """A tiny model's weights take 0.00 GiB: that is known, and not the same as 0.53."""
    comparison = compare(log_of("cpu/01b-success-warm"), log_of("cpu/02-mem-too-low"))
    assert comparison["conclusion"].startswith(
        "the code is not known, memory differs (weights took 0.00 and 0.53 GiB), the fraction differs"
    )
    weights = next(each for each in comparison["effect"] if each["subject"] == "weights")
    assert (weights["a"], weights["b"]) == (0.0, 0.53)


def test_memory_that_a_log_does_not_show_is_not_said_to_be_the_same() -> None:
    begins_late = log_of("logs/c14_fa3_exit_without_traceback")
    assert "memory not known of both" in compare(begins_late, begins_late_too(begins_late))["conclusion"]
    whole = builder.case("cpu/02-mem-too-low")
    early = whole[: whole.index(b"Load weight end")]
    sides = [Source(name=name, log=log, record=None, reading=read(log)) for name, log in (("a", whole), ("b", early))]
    assert "same memory before the weights" in compare(*sides)["conclusion"]


def begins_late_too(other: Source) -> Source:
    log = other.log.replace(b"avail mem=15.40", b"avail mem=14.40")
    return Source(name="late", log=log, record=None, reading=read(log))


def test_the_waterfall_is_compared_rank_by_rank(run: Callable[..., Source]) -> None:
    log = builder.case("logs/r01_swa_two_pools")
    other = re.sub(rb"(TP2\] Memory pool end\. avail mem=)\d+", rb"\g<1>40", log)
    assert other != log
    effects = compare(run(log), run(other))["effect"]
    assert {difference["subject"].split()[0] for difference in effects if difference["kind"] == "memory"} == {"TP2"}


def test_a_log_alone_claims_nothing_about_its_code() -> None:
    comparison = compare(log_of(ENOUGH), log_of("cpu/04-unbound"))
    assert not {kind for kind, _ in kinds(comparison["cause"])} & {"code", "patch", "flag", "env", "package"}
    assert comparison["conclusion"].startswith("the code is not known")
    assert "comes and goes" not in comparison["explanation"]


def test_a_secret_argument_is_not_shown() -> None:
    a = builder.case(ENOUGH)
    b = a.replace(b"api_key=None", b"api_key='letmein99'")
    sides = [Source(name=n, log=d, record=None, reading=read(d)) for n, d in (("a", a), ("b", b))]
    comparison = compare(*sides)
    assert ("argument", "api_key") in kinds(comparison["cause"])
    assert "letmein99" not in str(comparison)


def test_a_name_is_a_file_before_it_is_a_run(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(builder.case(ENOUGH))
    found = source(store, str(path), load=lambda name: Path(name).read_bytes())
    assert (found.record, found.label) == (None, "server")


def test_a_probe_is_compared_where_both_have_it() -> None:
    log = builder.case(ENOUGH)
    probed = log + b"[2026-11-29 16:30:00] PROBE kv rest_gb=1.5\n"
    other = probed.replace(b"rest_gb=1.5", b"rest_gb=1.25")

    def probes(left: bytes, right: bytes) -> list[tuple[str, Any, Any]]:
        sides = [Source(name="x", log=data, record=None, reading=read(data)) for data in (left, right)]
        effect = compare(*sides)["effect"]
        return [(each["subject"], each["a"], each["b"]) for each in effect if each["kind"] == "probe"]

    assert probes(log, probed) == [("kv", None, "fired")]
    assert probes(probed, other) == [("kv rest_gb", 1.5, 1.25)]
