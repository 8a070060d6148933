from typing import Any

import pytest

from patchbisect.model import Role, Stage
from patchbisect.report import drawing
from patchbisect.report.drawing import Bars, Series
from patchbisect.report.reading import Part, Span


def trial(position: int | None, observation: str | None) -> dict[str, Any]:
    return {"position": position, "observation": observation, "purpose": "search"}


def test_bars_are_as_long_as_their_gibibytes() -> None:
    bars = [Bars("TP0", "culprit", (Part("weights", 60.0), Part("free", 30.0)))]
    picture = drawing.waterfall(bars, title="t")
    assert picture is not None
    weights, free = picture.rects
    assert weights.width == pytest.approx(2 * free.width)
    assert free.x == pytest.approx(weights.x + weights.width)
    assert [word for _, word in picture.legend] == ["weights", "free"]
    assert picture.summary == "TP0 culprit: weights 60.00 GiB, free 30.00 GiB"


def test_nothing_told_is_no_picture() -> None:
    assert drawing.waterfall([Bars("", "", ())], title="t") is None
    assert drawing.stages([], title="t") is None
    assert drawing.over_time([Series("GPU 0", "line-0", [(0.0, 1.0)])], title="t") is None
    assert drawing.narrowing([], changes=3, culprit=None) is None


def test_what_a_step_gave_back_is_not_drawn_backwards() -> None:
    picture = drawing.waterfall([Bars("", "a", (Part("KV pools", -0.5), Part("free", 10.0)))], title="t")
    assert picture is not None
    assert all(rect.width > 0 for rect in picture.rects)
    assert len(picture.rects) == 1


def test_stages_stand_where_they_happened() -> None:
    spans = (Span(Role.TARGET, Stage.IMPORT, 0.0, 5.0), Span(Role.DRAFT, Stage.WEIGHT_LOAD, 5.0, 10.0))
    picture = drawing.stages([Bars("", "a", spans)], title="t")
    assert picture is not None
    assert picture.rects[1].x == pytest.approx(picture.rects[0].x + picture.rects[0].width)
    assert "draft:weight-load 5.0 s" in picture.summary


def test_the_suspects_narrow_down_to_the_culprit() -> None:
    trials = [
        trial(8, "bad"),
        trial(0, "good"),
        trial(4, "good"),
        trial(None, "good"),
        trial(6, "bad"),
        trial(5, "bad"),
    ]
    picture = drawing.narrowing(trials, changes=8, culprit=5)
    assert picture is not None
    assert [label.text for label in picture.labels if label.text.endswith(" left")] == [
        "8 left",
        "8 left",
        "4 left",
        "2 left",
        "1 left",
    ]
    assert picture.rects[-1].width == pytest.approx(picture.rects[0].width / 8)


def test_where_a_launch_may_err_nothing_is_said_to_be_excluded() -> None:
    picture = drawing.narrowing(
        [trial(8, "bad"), trial(3, "bad"), trial(5, "good")], changes=8, culprit=3, certain=False
    )
    assert picture is not None
    assert picture.rects == []
    assert not [label for label in picture.labels if label.text.endswith(" left")]
    assert "could still be it" not in str(picture.legend)


def test_the_search_s_own_confidence_is_shown_where_it_is_known() -> None:
    picture = drawing.narrowing([{**trial(1, "bad"), "confidence": 0.875}], changes=2, culprit=None, certain=False)
    assert picture is not None
    assert "88% sure" in [label.text for label in picture.labels]


@pytest.mark.parametrize("longest", [0.3, 1.0, 7.0, 22.0, 94.97, 273.0, 3600.0])
def test_an_axis_has_a_handful_of_round_ticks(longest: float) -> None:
    picture = drawing.waterfall([Bars("", "a", (Part("free", longest),))], title="t")
    assert picture is not None
    ticks = [label.text.removesuffix(" GiB") for label in picture.labels if label.anchor in ("middle", "end")][1:]
    assert 3 <= len(ticks) <= 11
    assert float(ticks[-1]) <= longest
