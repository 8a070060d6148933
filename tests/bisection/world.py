"""A bench without a box: a rule says how each point ends; every launch leaves a record as a real one does."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchbisect.bisection import Question, bisect
from patchbisect.bisection.finding import Finding
from patchbisect.errors import PointUnbuildable
from patchbisect.model import (
    Base,
    Milestone,
    Outcome,
    Patch,
    Persistence,
    Pin,
    Point,
    Role,
    Signature,
    Stage,
    Verdict,
    content_id,
)
from patchbisect.records import Attachments, PatchEntry, PointEntry, Record, Store
from patchbisect.timeline import timeline
from patchbisect.trial import SETTLE_S, Trial
from patchbisect.wire import verdict_to_json

PIN = Pin("https://example.org/sglang.git", "1" * 40, "v0.5.9")
READY = Verdict(
    outcome=Outcome.READY,
    stage=Stage.SERVING,
    role=Role.TARGET,
    reached_ready=True,
    signature=Signature(outcome=Outcome.READY, stage=Stage.SERVING, role=Role.TARGET),
    passed=frozenset(Milestone(Role.TARGET, stage) for stage in Stage),
    final=True,
)


def failing(stage: Stage = Stage.KV_PROFILE, cause: str = "unbound-name", **more: object) -> Verdict:
    """A crash in that stage; every stage before it was passed."""
    before = list(Stage)[: list(Stage).index(stage)]
    verdict = Verdict(
        outcome=Outcome.CRASH,
        stage=stage,
        role=Role.TARGET,
        cause=cause,
        signature=Signature(outcome=Outcome.CRASH, stage=stage, role=Role.TARGET, cause=cause),
        passed=frozenset(Milestone(Role.TARGET, one) for one in before),
        final=True,
    )
    return replace(verdict, **more)  # type: ignore[arg-type]


FAILS = failing()
ELSEWHERE = failing(Stage.DIST_INIT, "nccl-error")
LATER = failing(Stage.WARMUP, "cuda-error")
DIRTY = Verdict(outcome=Outcome.VOID, persistence=Persistence.TRANSIENT, why="the box is not clean", final=True)
WRONG_CODE = Verdict(outcome=Outcome.VOID, persistence=Persistence.PERMANENT, why="wrong code found", final=True)

Rule = Callable[[Point], Verdict]


def patch(number: int, slug: str = "", text: str = "") -> Patch:
    slug = slug or f"p{number}"
    return Patch(number, slug, "a <a@b>", "", f"Change {slug}", "", (), "", text or f"text of {slug}", ())


def queue(count: int) -> tuple[Patch, ...]:
    return tuple(patch(number) for number in range(1, count + 1))


def point(name: str, patches: Iterable[Patch] = (), **more: object) -> Point:
    return Point(**{"name": name, "base": Base(PIN), "patches": tuple(patches), "profile": "tiny", **more})  # type: ignore[arg-type]


def slugs(at: Point) -> set[str]:
    return {one.slug for one in at.patches}


def broken_by(*guilty: str, otherwise: Verdict = READY, failure: Verdict = FAILS) -> Rule:
    """Fails where every one of these patches is in."""
    return lambda at: failure if set(guilty) <= slugs(at) else otherwise


def question(count: int = 8, **more: object) -> Question:
    """``clean`` .. ``HEAD`` with that many patches."""
    ends = timeline(point("clean"), point("HEAD", queue(count)), applies=lambda base, patches: True)
    return Question(**{"timeline": ends, "until": Stage.SERVING, **more})  # type: ignore[arg-type]


def without_effect(*slugs: str) -> Callable[[Point], str]:
    """What a point runs, where these patches alter nothing."""
    return lambda at: contents(replace(at, patches=tuple(one for one in at.patches if one.slug not in slugs)))


def contents(at: Point) -> str:
    text = "|".join([str(at.base), *(one.text for one in at.patches)])
    arguments = [f"--{name}={value}" for name, value in at.flags.items()]
    return content_id(tree=hashlib.sha1(text.encode()).hexdigest(), arguments=arguments, env=at.env)


_LAUNCHING = threading.Lock()


@dataclass
class World:
    """``rule`` decides how a launch ends; ``builds`` raises PointUnbuildable for what has no code."""

    rule: Rule
    store: Store
    contents: Callable[[Point], str] = contents
    unbuildable: Callable[[Point], str] = lambda at: ""
    width: int = 1
    launched: list[str] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    running: set[str] = field(default_factory=set)
    """Launches that an earlier client started and that can be joined."""
    box: str = "simulated"
    machine: dict[str, object] = field(default_factory=lambda: {"hostname": "sim", "boot_id": "1", "driver": "570.1"})
    logs: Callable[[Point], bytes] = lambda at: b""
    preparation: dict[str, float] = field(default_factory=dict)
    """Seconds until a launch of a content id can begin."""
    warm: bool = False
    """Starts come from a warm process."""
    interpreter: str = "/venv/bin/python"
    packages: dict[str, str] = field(default_factory=lambda: {"torch": "2.9.1"})

    @classmethod
    def at(cls, path: Path, rule: Rule, **more: object) -> World:
        return cls(rule=rule, store=Store(path / "runs"), **more)  # type: ignore[arg-type]

    def content(self, at: Point) -> str:
        if why := self.unbuildable(at):
            raise PointUnbuildable(why)
        return f"{self.contents(at)}, warm" if self.warm else self.contents(at)

    def preparation_s(self, content: str) -> float:
        return self.preparation.get(content, 0.0)

    def rest(self, seconds: float) -> None:
        self.rested.append(seconds)

    def forgo(self, box: str) -> bool:
        return False

    def cancel(self) -> None:
        self.cancelled.set()

    def log(self, trial: Trial) -> bytes:
        return self.store.log(trial.record)

    def difference(self, before: Base, after: Base) -> Patch:
        raise PointUnbuildable("no history here")

    def rejoin(self, at: Point, *, record: str, settle: bool = False) -> Trial | None:
        return self.launch(at, purpose="", record=record) if record in self.running else None

    def launch(self, at: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        with _LAUNCHING:
            self.launched.append(f"{at.name}, warm" if self.warm else at.name)
            known = self.store.ids()
            trial = Trial(
                record=record if record and record not in known else f"20260101-000000-{len(known):04x}",
                point=at,
                content_id=self.content(at),
                verdict=self.rule(at),
                timings={"total": 10.0, "settled": SETTLE_S if settle else 0.0},
                machine=self.machine,
                box=self.box,
                warm=self.warm,
            )
            kept = _record(trial, box=self.box, interpreter=self.interpreter, packages=self.packages)
            self.store.save(kept, Attachments(log=self.logs(at)))
            return trial


def _record(trial: Trial, *, box: str, interpreter: str, packages: Mapping[str, str]) -> Record:
    at = trial.point
    entry = PointEntry(
        name=at.name,
        profile=at.profile,
        until=Stage.SERVING.value,
        upstream=PIN.upstream,
        pin=PIN.commit,
        patches=tuple(PatchEntry(name=one.name, subject=one.subject, sha256="") for one in at.patches),
        flags=dict(at.flags),
        env=dict(at.env),
    )
    return Record(
        id=trial.record,
        created="2026-01-01T00:00:00+00:00",
        box=box,
        point=entry,
        content_id=trial.content_id,
        machine=trial.machine,
        command=(interpreter, "-m", "sglang.launch_server"),
        provenance={"packages": dict(packages)},
        verdict=verdict_to_json(trial.verdict),
        timings=trial.timings,
        warm=trial.warm,
    )


def scripted(endings: Mapping[str, list[Verdict]], otherwise: Rule) -> Rule:
    """The first launches of named points end as listed, further ones as ``otherwise`` says."""
    left = {name: list(verdicts) for name, verdicts in endings.items()}
    return lambda at: left[at.name].pop(0) if left.get(at.name) else otherwise(at)


def flaky(rule: Rule, *, chance: float, seed: int, ending: Verdict = FAILS) -> Rule:
    """Ends so with that chance, whatever the rule says."""
    dice = random.Random(seed)
    return lambda at: ending if dice.random() < chance else rule(at)


def found(world: World, asked: Question, **more: object) -> Finding:
    return bisect(asked, world, **more)  # type: ignore[arg-type]
