import pytest

from patchbisect.durations import duration


@pytest.mark.parametrize(("seconds", "words"), [(45, "45 s"), (720, "12 min"), (4800, "1 h 20 min")])
def test_durations_are_short(seconds: float, words: str) -> None:
    assert duration(seconds) == words
