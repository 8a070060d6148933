"""The stories in ``golden/`` are what the search does: every launch, why this point, what it changed."""

from __future__ import annotations

import pytest

from tests.search.stories import GOLDEN, STORIES, told


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    assert told(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_no_story_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(STORIES)
