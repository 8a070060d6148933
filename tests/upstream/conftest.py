import pytest

from tests.tiny_upstream import Upstream


@pytest.fixture
def upstream(tmp_path):
    return Upstream(tmp_path)
