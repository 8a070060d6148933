from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tasks.conftest import Said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--until", "redy"), "did you mean 'ready'?"),
        (("--box", "locl"), "did you mean 'local'?"),
        (("--profile", "nope"), "unknown profile 'nope'"),
    ],
)
def test_a_slip_of_the_pen_is_told_before_anything_is_downloaded(
    invoke: Callable[..., Said], repository: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str], says: str
) -> None:
    def downloading(project: object) -> None:
        raise AssertionError("the mirror was asked for")

    monkeypatch.setattr("patchbisect.tasks.launching.mirror_of", downloading)
    said = invoke("launch", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
