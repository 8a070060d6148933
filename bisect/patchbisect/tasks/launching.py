"""``launch``, ``trial``, ``classify``: one launch, and what a log means."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import invoke

from patchbisect.errors import BoxError, PatchbisectError, PointUnbuildable, UsageError
from patchbisect.tasks.face import console, emit, negative, say, task
from patchbisect.tasks.face import explain as explained
from patchbisect.tasks.lab import mirror_of, rig_of

if TYPE_CHECKING:
    from patchbisect.bisection import Target
    from patchbisect.model import Signals, Stage, Verdict
    from patchbisect.trial import Trial

_LAUNCH_HELP = {
    "point": "what to launch: clean, HEAD, worktree, 3, HEAD-5, clean+7, upstream:v0.5.8, run:ID …",
    "box": "the box to launch on",
    "profile": "the launch command",
    "until": "how far it must get: kv-allocated or ready; default: the profile's",
    "set": "flag:NAME=VALUE, env:NAME=VALUE or package:NAME=VERSION; repeatable",
    "port": "HTTP port; default: a free one",
    "wait-for-box": "seconds to wait while somebody else has the box or its GPUs",
    "json": "print one JSON document",
}


@task(
    help={
        **_LAUNCH_HELP,
        "keep": "leave the server running when it got there",
        "plain": "lines instead of a screen while it runs",
    },
    iterable=["set"],
)
def launch(
    ctx: invoke.Context,
    point: str = "worktree",
    box: str = "",
    profile: str = "",
    until: str = "",
    set: list[str] | None = None,
    port: int = 0,
    keep: bool = False,
    wait_for_box: float = 0.0,
    plain: bool = False,
    json: bool = False,
) -> None:
    """Launch one point, show its stages live, and say what came of it. Nothing stays behind unless --keep.

    Exit code 0 when it got as far as wanted, 1 when not, 3 when the box was at fault and nothing was learnt.

    Example: invoke launch --point clean --until kv-allocated
    """
    from patchbisect.bisection import is_transient, reached
    from patchbisect.config import load_project
    from patchbisect.model import Outcome
    from patchbisect.records import Store
    from patchbisect.report.text import verdict_lines

    order = Order(point, box, profile, until, tuple(set or ()), port, wait_for_box)
    trial, wanted = launched(order, keep=keep, plain=plain)
    record = Store.of(load_project()).load(trial.record)
    if json:
        emit({"run": trial.record, "timings": dict(trial.timings), **record.verdict})
    else:
        seen = f"{trial.timings['total']:.1f} s; invoke show {trial.record}"
        console().print(verdict_lines(record.verdict, [("run", trial.record), ("took", seen)]))
    if trial.verdict.outcome is Outcome.VOID:
        raise invoke.Exit(code=BoxError.exit_code if is_transient(trial.verdict) else UsageError.exit_code)
    if not reached(trial.verdict, until=wanted):
        raise negative()


@dataclass(frozen=True, slots=True)
class Order:
    """What to launch and where, in the words of the command line."""

    point: str
    box: str
    profile: str
    until: str
    settings: tuple[str, ...]
    port: int
    wait_s: float


def launched(order: Order, *, keep: bool = False, plain: bool = False) -> tuple[Trial, Stage]:
    """One trial of a named point, and the stage it was asked to reach."""
    from patchbisect.bisection import UNTIL, one_of
    from patchbisect.config import load_project
    from patchbisect.points import PointResolver
    from patchbisect.report.live import watching
    from patchbisect.trial import prepare, run_trial

    project = load_project()
    # SGLang may have to be downloaded for the mirror: a slip of the pen is told before that.
    if order.until:
        one_of(order.until, UNTIL, what="--until")
    if order.profile:
        project.settings.profile_named(order.profile)
    project.settings.box_named(order.box or None)
    mirror = mirror_of(project)
    resolved = PointResolver.of(project, mirror=mirror).resolve(
        order.point, profile=order.profile or None, settings=order.settings
    )
    for warning in resolved.warnings:
        say(f"note: {warning}")
    named = order.until or project.settings.profile_named(resolved.point.profile)[1].until
    wanted = UNTIL[one_of(named, UNTIL, what="--until")]
    reason = f"launch of {order.point}"
    with rig_of(project, mirror=mirror, box=order.box, reason=reason, wait_s=order.wait_s) as rig:
        prepared = prepare(rig, resolved.point)
        code = prepared.code
        say(f"code from {code.source}, {len(code.patches)} patches, commit {code.commit[:12]}")
        what = f"launch of {resolved.point.name} on {rig.box_name}"
        with watching(project.state, what=what, plainly=plain) as watcher:
            trial = run_trial(rig, prepared, until=wanted, watcher=watcher, keep=keep, port=order.port or None)
    return trial, wanted


@task(
    help={
        "run": "the kept launch: a run's id, its beginning, a name, or last; default: the one that is running",
        "box": "the box it runs on; default: that of the run, else of the last one",
    }
)
def stop(ctx: invoke.Context, run: str = "", box: str = "") -> None:
    """End a server that `launch --keep` left running, and prove that nothing of it is left. Exits 1 if there is none.

    Example: invoke stop --box rig
    """
    from patchbisect.config import load_project
    from patchbisect.records import Store

    project = load_project()
    store = Store.of(project)
    record = store.load(run or "last")
    with rig_of(project, mirror=mirror_of(project), box=box or record.box, reason="stop of a kept server") as rig:
        running = [launch.launch_id for launch in rig.box.launches()]
        wanted = record.id if run else _only_one([one for one in running if one in store.ids()], rig.box_name)
        if wanted not in running:
            print(f"nothing to stop: {wanted or 'no server of this project'} is running on {rig.box_name}")
            raise negative()
        report = rig.box.attach(wanted).stop()
    if report.faults:
        raise BoxError("; ".join(report.faults), remedy="look at the box: something of that launch is left")
    print(f"ended: {wanted}, {len(report.killed)} processes, {report.seconds:.1f} s")


def _only_one(running: Sequence[str], box: str) -> str:
    """The one launch that runs, or nothing. Raises UsageError for several."""
    if len(running) > 1:
        raise UsageError(f"several servers run on {box}: {', '.join(running)}", remedy="say which with --run")
    return running[0] if running else ""


# What `git bisect run` makes of an exit code: 0 good, 1-124 and 126-127 bad, 125 skip, 128 and above stop.
_GOOD, _BAD, _UNTESTABLE, _USAGE, _BOX, _VOID, _UNEXPECTED = 0, 1, 125, 129, 131, 132, 135


@task(
    help={**_LAUNCH_HELP, "target": "a run or a signature: only that failure is bad, others are untestable"},
    iterable=["set"],
)
def trial(
    ctx: invoke.Context,
    point: str,
    target: str = "",
    box: str = "",
    profile: str = "",
    until: str = "",
    set: list[str] | None = None,
    port: int = 0,
    wait_for_box: float = 0.0,
    json: bool = False,
) -> None:
    """Launch one point for `git bisect run`: 0 good, 1 bad, 125 untestable.

    Without --target any end short of the wanted stage is bad. Further codes: 129 usage, 131 box or link,
    132 void (try again), 135 unexpected.

    Example: git bisect run patchbisect trial worktree --target oom/kv-profile/target/kv-profile/-/-
    """
    try:
        sought = _target(target)
        ended, wanted = launched(Order(point, box, profile, until, tuple(set or ()), port, wait_for_box), plain=True)
    except PatchbisectError as error:
        say(explained(error))
        raise invoke.Exit(code=_code_of(error)) from None
    except KeyboardInterrupt:
        raise
    except Exception as error:
        # git bisect takes 1 for bad: an accident of ours must never be counted as that.
        say(f"error: unexpected {type(error).__name__}: {error}")
        raise invoke.Exit(code=_UNEXPECTED) from error
    if json:
        from patchbisect.wire import verdict_to_json

        emit({"run": ended.record, **verdict_to_json(ended.verdict)})
    raise invoke.Exit(code=_judged(ended.verdict, sought=sought, until=wanted))


def _target(text: str) -> Target | None:
    from patchbisect.bisection import Target
    from patchbisect.config import load_project
    from patchbisect.model import Signature
    from patchbisect.records import Store

    if not text:
        return None
    if "/" in text:
        try:
            return Target(signature=Signature.parse(text))
        except ValueError as error:
            raise UsageError(f"--target: {error}", remedy="invoke show --run ID prints a run's signature") from error
    verdict = Store.of(load_project()).load(text).judged
    if verdict.signature is None:
        raise UsageError(f"run {text} has no failure to look for", remedy="name a run that failed")
    return Target(signature=verdict.signature)


def _judged(verdict: Verdict, *, sought: Target | None, until: Stage) -> int:
    from patchbisect.bisection import is_transient, reached
    from patchbisect.model import Outcome
    from patchbisect.search import Observation

    if is_transient(verdict):
        return _VOID
    if sought is None:
        if verdict.outcome is Outcome.VOID:
            return _UNTESTABLE
        return _GOOD if reached(verdict, until=until) else _BAD
    observation = sought.judge(verdict)
    if observation is Observation.GOOD:
        return _GOOD
    return _BAD if observation is Observation.BAD else _UNTESTABLE


def _code_of(error: PatchbisectError) -> int:
    if isinstance(error, PointUnbuildable):
        return _UNTESTABLE
    return _BOX if isinstance(error, BoxError) else _USAGE


@task(
    positional=["log"],
    help={
        "log": "a server's log: a file, also .gz or .zst, or - for standard input",
        "exit-code": "how the server ended: 137, -9, 1 …",
        "signals": "a JSON file with what else is known: alive, http_ready, silent_for_s …",
        "json": "print one JSON document",
    },
)
def classify(ctx: invoke.Context, log: str, exit_code: str = "", signals: str = "", json: bool = False) -> None:
    """Say what a startup log means: outcome, stage, cause, the deciding line, what to do. Exits 0 whatever it says.

    Example: invoke classify server.log --exit-code 137
    """
    from patchbisect.report.text import verdict_lines
    from patchbisect.startup import Classifier
    from patchbisect.tasks.logs import chunks
    from patchbisect.wire import verdict_to_json

    known = _signals(signals, exit_code=exit_code)
    reader = Classifier()
    for chunk in chunks(log, may_be_silent=bool(signals or exit_code)):
        reader.feed(chunk)
    reader.close()
    document = verdict_to_json(reader.verdict(known))
    if json:
        emit(document)
    else:
        console().print(verdict_lines(document))


@task(
    help={
        "of": "a log (a file, or - for standard input) or a recorded run",
        "json": "print one JSON document",
    }
)
def explain(ctx: invoke.Context, of: str, json: bool = False) -> None:
    """Show where the memory went: the waterfall per rank, the KV sizing formula with its numbers, which fraction works.

    From the log alone, in GiB. Also says when pool and fraction cannot belong together.

    Example: invoke explain --of server.log
    """
    from patchbisect.startup import Ledger

    ledger = Ledger.read(_log_or_run(of))
    if json:
        emit(ledger.document())
    else:
        print("\n".join(ledger.lines()))


def _log_or_run(name: str) -> Iterator[bytes]:
    from patchbisect.config import load_project
    from patchbisect.records import Store
    from patchbisect.tasks.logs import chunks

    if name == "-" or Path(name).exists():
        return chunks(name)
    try:
        return iter([Store.of(load_project()).log(name)])
    except UsageError as error:
        raise UsageError(f"{name} is neither a log file nor a run", remedy=error.remedy) from error


def _signals(path: str, *, exit_code: str) -> Signals:
    from dataclasses import replace

    from patchbisect.wire import signals_from_json

    try:
        known = signals_from_json(jsonlib.loads(Path(path).read_text(encoding="utf-8")) if path else {})
    except FileNotFoundError as error:
        raise UsageError(f"--signals: there is no file {path}", remedy="name a JSON file, or leave it out") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"--signals: {path}: {error}", remedy="docs/verdicts.md lists the signals") from error
    if not exit_code:
        return known
    try:
        return replace(known, exit_code=int(exit_code), alive=False)
    except ValueError as error:
        raise UsageError(f"--exit-code: {exit_code!r} is not a number", remedy="like 137, -9 or 1") from error
