"""The pin, the queue that is shipped, and the queues of the tests, on the real release of SGLang."""

from pathlib import Path

import pytest

from patchbisect.model import Base
from patchbisect.patchqueue import Queue, parse_pin
from patchbisect.upstream import Mirror
from tests.tiny_upstream import git

ROOT = Path(__file__).parents[2]
PIN = parse_pin((ROOT / "patches" / "pin.toml").read_bytes(), filename="patches/pin.toml")
QUEUES = [ROOT / "patches", *sorted(path for path in (ROOT / "tests" / "queues").iterdir() if path.is_dir())]

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    return Mirror(tmp_path_factory.mktemp("state"), source="release")


def test_the_release_of_the_pin(mirror):
    code = mirror.materialize(Base(PIN), [])
    # SGLang 0.5.9's wheel has 1,936 files, one of them generated; the commit id follows from wheel and layout alone.
    names = git(mirror.path, "ls-tree", "-r", "--name-only", code.commit).splitlines()
    assert len(names) == 1935
    assert {name.split("/")[:2] == ["python", "sglang"] for name in names} == {True}
    assert "python/sglang/_version.py" not in names
    assert code.commit == "694975dc4e3bd85e21d4a88f241cf0681d8cd4b1"
    source = mirror.read(code.commit, "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py")
    assert b"Please try to increase --mem-fraction-static" in source


@pytest.mark.parametrize("folder", QUEUES, ids=lambda folder: folder.name)
def test_a_queue_applies_exactly(mirror, folder):
    queue = Queue.read({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})
    assert queue.patches
    assert queue.warnings == ()
    code = mirror.materialize(Base(PIN), queue.enabled, exact=True)
    assert code.patches == tuple(patch.name for patch in queue.enabled)
    assert code.shifted == ()
