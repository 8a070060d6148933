"""What stands together in a picture, and what stands apart."""

from typing import Any

import pytest

from patchbisect.report import picturing
from patchbisect.report.reading import Part, RankReading, read
from patchbisect.report.sources import Source


def rank(label: str, *gigabytes: float) -> RankReading:
    parts = tuple(Part(name, gb) for name, gb in zip(("weights", "KV pools", "free"), gigabytes, strict=False))
    return RankReading(label=label, spans=(), memory=parts, free_gb=(), took_gb={}, began_with_gb=None)


def run(*ranks: RankReading, samples: tuple[Any, ...] = ()) -> Source:
    from dataclasses import replace

    reading = replace(read(b""), ranks=ranks)
    return Source(name="r", log=b"", record=None, reading=reading, samples=samples)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["TP0"], "TP0"),
        (["TP0", "TP1", "TP2"], "TP0–2"),
        (["TP0", "TP2"], "TP0 and 1 more"),
        (["DP0 TP0", "DP0 TP1"], "DP0 TP0–1"),
        (["DP0 TP0", "DP1 TP0"], "DP0 TP0 and 1 more"),
        ([""], ""),
    ],
)
def test_a_group_says_who_is_in_it(labels: list[str], name: str) -> None:
    assert picturing.group_name(labels) == name


def test_ranks_that_are_alike_are_one_bar_and_a_stranger_stands_out() -> None:
    ranks = [rank(f"TP{n}", 60.0 + 0.02 * n, 20.0, 5.0) for n in range(3)] + [rank("TP3", 60.0, 24.0, 1.0)]
    picture = picturing.memory([("", run(*ranks))])
    assert picture is not None
    assert [label.text for label in picture.labels if label.text.startswith("TP")] == ["TP0–2", "TP3"]
    assert picture.note.startswith("Ranks that agree to 0.25 GiB")


def test_in_a_pair_ranks_stand_together_only_where_they_are_alike_in_both() -> None:
    alike = run(rank("TP0", 60.0, 20.0), rank("TP1", 60.0, 20.0))
    apart = run(rank("TP0", 60.0, 20.0), rank("TP1", 60.0, 9.0))
    groups = [group for group, _, _ in picturing.grouped([("a", alike), ("b", apart)], picturing.same_memory)]
    assert groups == ["TP0", "TP0", "TP1", "TP1"]
    missing = run(rank("TP0", 60.0, 20.0))
    groups = [group for group, _, _ in picturing.grouped([("a", alike), ("b", missing)], picturing.same_memory)]
    assert groups == ["TP0", "TP0", "TP1"]


def test_where_nothing_stands_together_nothing_is_said_of_it() -> None:
    picture = picturing.memory([("", run(rank("TP0", 60.0)))])
    assert picture is not None
    assert picture.note == ""


def test_the_band_lies_between_the_fullest_and_the_emptiest_gpu() -> None:
    high, low = picturing.envelope({"GPU 0": [(0.0, 1.0), (1.0, 5.0)], "GPU 1": [(0.0, 2.0), (1.0, 3.0)]})
    assert (high, low) == ([(0.0, 2.0), (1.0, 5.0)], [(0.0, 1.0), (1.0, 3.0)])


def test_one_run_shows_every_gpu_and_several_show_bands() -> None:
    samples = tuple({"t": float(t), "gpus": [[0, 1.0 * t, 1], [1, 2.0 * t, 1]]} for t in range(3))
    one = picturing.gpus([("", run(samples=samples))])
    two = picturing.gpus([("a", run(samples=samples)), ("b", run(samples=samples))])
    assert one is not None
    assert two is not None
    assert [path.css for path in one.paths] == ["series line-0", "series line-1"]
    assert [word for _, word in two.legend] == ["a, fullest of 2 GPUs", "b, fullest of 2 GPUs"]
