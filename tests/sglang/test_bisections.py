"""Whole bisections on a real server: each kind of change, each kind of trouble. One kind in CI, the others ``full``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchbisect.bisection import Asked, Finding, begin, finding_to_json
from patchbisect.config import PIN_FILE, Project
from patchbisect.model import Base, Outcome, Patch, Pin
from patchbisect.patchqueue import Queue, compose, format_patch, format_pin, parse_pin
from patchbisect.records import Store
from patchbisect.tasks.bisecting import run_through, understood
from patchbisect.upstream import Mirror
from patchbisect.upstream.needs import needs_of_wheel
from tests.sglang.upstream_range import (
    BROKEN,
    BUMP,
    GUILTY_LINE,
    MOVED,
    MOVES,
    PRINT,
    Range,
    build_range,
    build_range_with_needs,
)
from tests.sglang.upstream_range import GUILTY as GUILTY_COMMIT

pytestmark = pytest.mark.real

Bisect = Callable[..., Finding]
QUEUES = Path(__file__).parents[1] / "queues"


@pytest.fixture
def bisect(count_launch: Callable[[str], None]) -> Iterator[Bisect]:
    """Conduct a bisection of a queue repository and count its launches."""

    def run(home: Project, **asked: Any) -> Finding:
        question = Asked(**{"good": "clean", "bad": "HEAD", "fresh": True, **asked})
        finding = run_through(
            home, question, understood(home, question), journal=begin(question, project=home), plain=True
        )
        for trial in finding_to_json(finding)["trials"]:
            if trial["reused"]:
                continue
            count_launch(f"bisect: {trial['purpose']} {trial['point']} {trial['seconds']} s")
        print(finding.reason)
        return finding

    yield run


def repository(
    project: Project, folder: Path, patches: Sequence[Patch], *, pin: Pin | None = None, **settings: Any
) -> Project:
    """A queue repository of its own, that shares this project's state; ``settings`` replace its own."""
    root = folder / "queue"
    (root / "patches").mkdir(parents=True, exist_ok=True)
    for old in (root / "patches").glob("*"):
        old.unlink()
    content = format_pin(pin) if pin else (project.root / PIN_FILE).read_bytes()
    (root / PIN_FILE).write_bytes(content)
    for patch in patches:
        (root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
    if not (root / ".git").exists():
        git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "queue")
    return replace(project, root=root, settings=project.settings.model_copy(update=settings))


RUNNER = "python/sglang/srt/model_executor/model_runner.py"
SIZING = "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
GUILTY = (SIZING, GUILTY_LINE, PRINT + GUILTY_LINE)
"""Prints a local that only hybrid models bind."""


class Workshop:
    """A work tree of the pinned code in which patches are made, each on top of those before it."""

    def __init__(self, path: Path, source: Path, commit: str) -> None:
        self.path = path
        path.mkdir()
        git(path, "init", "--quiet", "--initial-branch=main")
        fetch = ["fetch", "--quiet", "--update-shallow", "--update-head-ok"]
        git(path, *fetch, str(source), f"{commit}:refs/heads/main")
        git(path, "checkout", "--quiet", "main")

    def patch(self, number: int, slug: str, *edits: tuple[str, str, str]) -> Patch:
        """A patch of edits: file, the text that stands there once, the text in its place."""
        for name, old, new in edits:
            text = (self.path / name).read_text()
            assert text.count(old) == 1, (name, old)
            (self.path / name).write_text(text.replace(old, new))
        git(self.path, "add", "--all")
        diff = git(self.path, "diff", "--cached", "--full-index")
        git(self.path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", slug)
        return compose(
            number=number,
            slug=slug,
            author="Rig Owner <rig@rig.example>",
            date="Mon, 23 Nov 2026 11:30:00 +0000",
            subject=slug.replace("-", " ").capitalize(),
            body="",
            trailers=[("Kind", "experiment"), ("Forwarded", "no")],
            diff=diff,
        )

    def note(self, number: int) -> Patch:
        """A patch that does no harm."""
        return self.patch(number, f"note-{number}", (RUNNER, MOVED, f"{MOVED}        logger.info('note {number}')\n"))


@pytest.fixture
def workshop(project: Project, mirror: Mirror, tmp_path: Path) -> Workshop:
    return Workshop(tmp_path / "workshop", mirror.path, mirror.base(Base(pin=pin_of(project))).commit)


def queue(name: str) -> tuple[Patch, ...]:
    return Queue.read({path.name: path.read_bytes() for path in (QUEUES / name).glob("*.patch")}, where=name).enabled


def git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blamed(finding: Finding) -> list[str]:
    return [change.subject for change in finding.candidates]


def statuses(finding: Finding) -> set[str]:
    return {step.status for step in finding.proof}


@pytest.mark.ci
def test_a_flag_among_the_patches_of_the_shipped_queue(project: Project, bisect: Bisect) -> None:
    asked = {"bad": "HEAD", "profile": "big", "bad_sets": ("flag:mem-fraction-static={fraction-too-low}",)}
    finding = bisect(project, **asked)
    assert blamed(finding) == ["mem-fraction-static"]
    assert statuses(finding) == {"confirmed"}
    assert finding.launches <= 6
    again = bisect(project, **asked, fresh=False)
    assert blamed(again) == ["mem-fraction-static"]
    launched = [step.purpose for step in again.steps if not step.trial.reused]
    assert launched == ["bad end", "good end"], "what the first bisection found out counts; the ends show today"


@pytest.mark.full
def test_an_environment_variable(project: Project, bisect: Bisect) -> None:
    finding = bisect(project, bad_sets=("env:SGLANG_LOGGING_CONFIG_PATH=/nowhere.json", "flag:log-level=info"))
    assert blamed(finding) == ["SGLANG_LOGGING_CONFIG_PATH"]
    assert statuses(finding) == {"confirmed"}


@pytest.mark.full
def test_a_variable_between_two_releases_that_need_other_wheels(
    project: Project, tmp_path: Path, bisect: Bisect
) -> None:
    """0.5.10 runs in an environment of its own, with transformers 5; it starts there, and is innocent."""
    _, box = project.settings.box_named("local")
    settings = {"boxes": {"local": box.model_copy(update={"other_wheels": "build", "dir": str(tmp_path / "box")})}}
    finding = bisect(
        repository(project, tmp_path, [], **settings),
        good="upstream:v0.5.9",
        bad="upstream:v0.5.10",
        bad_sets=("env:SGLANG_LOGGING_CONFIG_PATH=/nowhere.json",),
    )
    assert blamed(finding) == ["SGLANG_LOGGING_CONFIG_PATH"]
    assert statuses(finding) == {"confirmed"}
    store = Store(project.state / "runs")
    ready = [store.load(step.trial.record) for step in finding.steps if step.trial.verdict.outcome is Outcome.READY]
    assert {record.provenance["packages"]["transformers"] for record in ready} == {"4.57.1", "5.3.0"}


@pytest.mark.full
def test_a_pair_of_patches_of_which_neither_breaks_it(project: Project, tmp_path: Path, bisect: Bisect) -> None:
    finding = bisect(repository(project, tmp_path, queue("guilty-pair")), profile="big")
    assert finding.together
    assert blamed(finding) == ["keep-half-for-the-draft", "halve-the-fraction"]
    assert statuses(finding) == {"confirmed"}


@pytest.mark.full
def test_a_guilty_patch_among_twelve(project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect) -> None:
    patches = [workshop.patch(k, "guilty", GUILTY) if k == 9 else workshop.note(k) for k in range(1, 13)]
    finding = bisect(repository(project, tmp_path, patches))
    assert blamed(finding) == ["guilty"]
    assert statuses(finding) == {"confirmed"}


@pytest.mark.full
def test_a_guilty_patch_among_twelve_with_short_starts(
    project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect
) -> None:
    patches = [workshop.patch(k, "guilty", GUILTY) if k == 9 else workshop.note(k) for k in range(1, 13)]
    finding = bisect(repository(project, tmp_path, patches), fast=True)
    assert blamed(finding) == ["guilty"]
    assert statuses(finding) == {"confirmed"}
    assert finding.reason.endswith("from a warm process, confirmed by whole starts")
    whole = [step for step in finding.steps if not step.trial.warm]
    assert {step.purpose for step in whole} == {"search"}, "the traceback names it: its two points are started once"
    assert {step.trial.record for step in whole} == {step.trial.record for step in finding.proof[:2]}


@pytest.mark.full
def test_a_hunk_inside_a_patch_of_three(project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect) -> None:
    prints = (
        (RUNNER, MOVED, f"{MOVED}        logger.info('one')\n"),
        (SIZING, "        return cell_size\n", "        logger.info('two')\n        return cell_size\n"),
        GUILTY,
    )
    patches = [workshop.note(1), workshop.patch(2, "three-prints", *prints), workshop.note(3)]
    finding = bisect(repository(project, tmp_path, patches), depth="hunk")
    assert blamed(finding) == ["three-prints"]
    assert finding.inside is not None
    assert blamed(finding.inside) == ["three-prints-hunk-3"]


@pytest.mark.full
def test_a_baseline_whose_recorded_flag_differs(project: Project, tmp_path: Path, bisect: Bisect) -> None:
    """The story that this project was made from: the answer is the flag, not the debug print."""
    home = repository(project, tmp_path, queue("observer-effect")[:1])
    profiles = dict(home.settings.profiles)

    def with_profile(profile: object) -> Project:
        changed = home.settings.model_copy(update={"profiles": {**profiles, "mine": profile}})
        return replace(home, settings=changed)

    good = bisect(
        with_profile(profiles["big"]), profile="mine", bad_sets=("flag:mem-fraction-static={fraction-too-low}",)
    )
    assert blamed(good) == ["mem-fraction-static"]
    flags = {**profiles["big"].flags, "mem-fraction-static": "{fraction-too-low}"}
    mine = profiles["big"].model_copy(update={"flags": flags})
    finding = bisect(with_profile(mine), profile="mine", follow_baseline=True, repeats=1)
    assert "the change is not in this range" in finding.reason
    assert blamed(finding) == ["mem-fraction-static"]
    assert finding.baseline is not None


@pytest.mark.full
def test_a_band_that_fails_for_another_reason(
    project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect
) -> None:
    """Patch 2 leaves a bracket open, patch 5 closes it; the culprit is patch 7."""
    broken = "        logger.info('open'\n        return cell_size\n"
    patches = [
        workshop.note(1),
        workshop.patch(2, "left-open", (SIZING, "        return cell_size\n", broken)),
        workshop.note(3),
        workshop.note(4),
        workshop.patch(5, "closed", (SIZING, "logger.info('open'\n", "logger.info('closed')\n")),
        workshop.note(6),
        workshop.patch(7, "guilty", GUILTY),
        workshop.note(8),
    ]
    finding = bisect(repository(project, tmp_path, patches))
    assert blamed(finding) == ["guilty"]


DICE = "        import random\n\n        if random.random() < 0.2:\n            raise RuntimeError('no reason')\n"
"""Fails one time in five, in the sizing of the pool."""


@pytest.mark.full
def test_a_culprit_on_a_server_that_fails_one_time_in_five(
    project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect
) -> None:
    """Patch 1 is in both ends and fails at random; patch 5 always does: it is named, or nothing is."""
    patches = [workshop.patch(1, "dice", (SIZING, GUILTY_LINE, DICE + GUILTY_LINE))]
    patches += [workshop.patch(k, "guilty", GUILTY) if k == 5 else workshop.note(k) for k in range(2, 9)]
    finding = bisect(repository(project, tmp_path, patches), good="1", rates="unknown", budget_launches=30)
    if finding.answer.value in ("found", "set"):
        assert blamed(finding) == ["guilty"]
    else:
        assert finding.answer.value in ("none", "inconclusive")


@pytest.mark.full
def test_a_server_that_fails_one_time_in_five(
    project: Project, tmp_path: Path, workshop: Workshop, bisect: Bisect
) -> None:
    """Patch 1 is in both ends and fails at random; patches 2 to 6 are innocent: no change is blamed."""
    patches = [workshop.patch(1, "dice", (SIZING, GUILTY_LINE, DICE + GUILTY_LINE))]
    patches += [workshop.note(k) for k in range(2, 7)]
    finding = bisect(repository(project, tmp_path, patches), good="1", rates="unknown", budget_launches=20)
    assert finding.answer.value in ("none", "endpoint-failed", "inconclusive")


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory, project: Project, mirror: Mirror) -> Range:
    return build_range(tmp_path_factory.mktemp("range"), mirror, pin_of(project))


def pin_of(project: Project) -> Pin:
    return parse_pin((project.root / PIN_FILE).read_bytes(), filename="pin.toml")


def from_clone(project: Project, commits: Range) -> Mapping[str, Any]:
    changed = {"source": "git", "clone": str(commits.path)}
    return {"upstream": project.settings.upstream.model_copy(update=changed)}


@pytest.mark.full
def test_a_guilty_commit_among_forty(project: Project, commits: Range, tmp_path: Path, bisect: Bisect) -> None:
    carried = queue("guilty-pair")[0]
    home = repository(project, tmp_path, [carried], pin=commits.pin, **from_clone(project, commits))
    mirror = Mirror.of(home)
    takes = [mirror.applies(commits.base(k), [carried]) for k in range(len(commits.commits))]
    assert [k for k, taken in enumerate(takes) if not taken] == [MOVES, MOVES + 1, MOVES + 2]
    finding = bisect(home, good="clean", bad=f"upstream:{commits.commits[-1]}", carry=("1",))
    assert finding.culprit is not None
    assert finding.culprit.after.rev == commits.commits[GUILTY_COMMIT]
    assert statuses(finding) == {"confirmed"}
    assert finding.launches <= 12


@pytest.mark.full
def test_two_revisions_of_the_queue_with_a_moved_pin(
    project: Project, commits: Range, tmp_path: Path, bisect: Bisect
) -> None:
    settings = from_clone(project, commits)
    one = queue("guilty-pair")[0]
    home = repository(project, tmp_path, [one], pin=commits.pin, **settings)
    before = git(home.root, "rev-parse", "HEAD").strip()
    new = Workshop(tmp_path / "workshop", commits.path, commits.commits[-1])
    two = new.patch(
        2, "two", (SIZING, "        return cell_size\n", "        logger.info('two')\n        return cell_size\n")
    )
    home = repository(project, tmp_path, [one, two], pin=replace(commits.pin, commit=commits.commits[-1]), **settings)
    finding = bisect(home, good=before, bad="HEAD")
    assert finding.culprit is not None
    assert finding.culprit.after.rev == commits.commits[GUILTY_COMMIT]


@pytest.mark.full
def test_a_culprit_behind_a_commit_that_needs_other_wheels(
    project: Project, mirror: Mirror, tmp_path: Path, bisect: Bisect
) -> None:
    """The upstream is a URL; its middle moves a dependency that both sides insist on; the culprit comes after it."""
    wheel = next((project.state / "wheels" / "0.5.9").glob("*.whl"))
    needs = ["einops" if need.package == "einops" else need.text for need in needs_of_wheel(wheel)]
    commits = build_range_with_needs(tmp_path, mirror, pin_of(project), needs=needs)
    _, box = project.settings.box_named("local")
    settings = {
        "boxes": {"local": box.model_copy(update={"other_wheels": "build", "dir": str(tmp_path / "box")})},
        "upstream": project.settings.upstream.model_copy(update={"source": "git"}),
    }
    home = repository(project, tmp_path, [], pin=commits.pin, **settings)
    finding = bisect(home, good="clean", bad=f"upstream:{commits.commits[-1]}")
    assert finding.culprit is not None
    assert finding.culprit.after.rev == commits.commits[BROKEN]
    assert statuses(finding) == {"confirmed"}
    assert finding.launches <= 9
    store = Store(project.state / "runs")
    seen = {step.position: store.load(step.trial.record).provenance["packages"]["einops"] for step in finding.steps}
    assert all(einops == ("0.8.1" if k >= BUMP else "0.8.2") for k, einops in seen.items() if k is not None)
    assert set(seen.values()) == {"0.8.1", "0.8.2"}
