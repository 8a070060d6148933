from pathlib import Path

import pytest

from patchbisect.records import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "runs")
