"""What the box measured while a server ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchbisect.box import Box
from patchbisect.box.agent.rundir import RunDir, samples_of
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import launch, leased, listen, settings_for


def test_each_gpu_is_measured_by_itself(tmp_path: Path) -> None:
    gpus = FakeGpus(tmp_path, FakeGpu(used_gb=0.5), FakeGpu(used_gb=1.25))
    settings = settings_for(tmp_path, agent_python=str(gpus.python), lease_directory=str(tmp_path / "lease"))
    with leased(settings, tmp_path) as box:
        run = launch(box, "--end", "hang")
        listen(run, until=lambda story: story.signals is not None and bool(run.samples()))
        samples = run.samples()
        run.stop(grace_s=0)
    assert [[index, used] for index, used, _ in samples[0]["gpus"]] == [[0, 0.5], [1, 1.25]]
    assert samples[0]["t"] > 1e9


@pytest.mark.ci
def test_a_box_without_gpus_has_samples_too(box: Box) -> None:
    run = launch(box, "--end", "hang")
    listen(run, until=lambda story: story.signals is not None and bool(run.samples()))
    assert run.samples()[0]["gpus"] == []
    run.stop(grace_s=0)


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = RunDir(str(tmp_path), "launch-1")
    Path(run.path).mkdir(parents=True)
    assert samples_of(run) == []
    Path(run.file("samples.jsonl")).write_text(json.dumps({"t": 1}) + '\n{"t": 2, "gp')
    assert samples_of(run) == [{"t": 1}]
