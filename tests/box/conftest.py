"""A box on this machine, in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import Box
from patchbisect.testing.fake_sglang import FakeSglang
from tests.box.lab import leased, none_left, settings_for


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """Leased. After the test nothing that it started may be alive."""
    with leased(settings_for(tmp_path), tmp_path) as opened:
        yield opened
        opened.prove_clean()
    assert none_left(tmp_path)


@pytest.fixture
def upstream(tmp_path: Path) -> FakeSglang:
    return FakeSglang(tmp_path / "upstream")
