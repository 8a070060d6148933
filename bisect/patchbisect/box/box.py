"""One machine that can run a server: lease it, prove it clean, put code on it, start, attach."""

from __future__ import annotations

import contextlib
import logging
import secrets as randomness
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from patchbisect.box import code
from patchbisect.box.conversation import Conversation
from patchbisect.box.failures import BoxBusy, LinkLost
from patchbisect.box.lease import Lease, holder, holder_is_dead
from patchbisect.box.link import Link, ProcessLink
from patchbisect.box.patience import Patience
from patchbisect.box.run import Run
from patchbisect.box.secrets import Redactor, masked_argv, masked_env, secret_values
from patchbisect.box.settings import BoxSettings
from patchbisect.box.values import (
    Applied,
    BoxFacts,
    Check,
    CleanReport,
    Environment,
    EnvironmentOrder,
    Installed,
    Launch,
    LaunchSpec,
    LeaseHeld,
    PlacedCode,
    WarmProcess,
)
from patchbisect.errors import BoxError, PatchbisectError, UsageError

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 2.0
"""Between two looks at a box that is not clean and is waited for."""
TOLD_EVERY_S = 60.0
FIRST_PATIENCE_S = 2.0
"""For a box that was never reached: there the way is more likely wrong than broken."""
SILENT_TRIES = 2
"""How often an agent that never spoke may be waited for although a login succeeds."""


class Box:
    """One machine, or a part of its GPUs. Methods raise BoxError; a lost link is mended where that is safe."""

    def __init__(self, name: str, settings: BoxSettings, link: Link, *, directory: str) -> None:
        self.name = name
        self.settings = settings
        self._directory = directory
        self._link = link
        self._lock = threading.Lock()
        self._control: Conversation | None = None
        self._fence = 0
        self._reached = False
        self.patience = Patience(name, self._patience_s)
        """With the link. One for all who use it: a loss is waited out once."""

    # .. talking to the agent

    def request(self, verb: str, **args: Any) -> dict[str, Any]:
        """A request as the agent wants it, with what it has to know of this box."""
        settings = self.settings
        about = {
            "python": settings.python,
            "gpus": None if settings.cpu_only else list(settings.gpus),
            "gpu_residents": list(settings.gpu_residents),
            "lease_dir": settings.lease_directory,
            "checkout": settings.checkout,
            "build": list(settings.build),
            "build_sources": list(settings.build_sources),
            "min_free_gb": settings.min_free_gb,
            "environments_gb": settings.environments_gb,
            "gpu_idle_gb": settings.gpu_idle_gb,
            "gpu_slack_gb": settings.gpu_slack_gb,
            "gpu_budget_s": settings.gpu_budget_s,
            "abandon_s": settings.abandon_s,
        }
        return {"verb": verb, "args": args, "fence": self._fence, "box": about}

    def _converse(self) -> Conversation:
        settings = self.settings
        conversation = Conversation(
            self._link,
            name=self.name,
            python=settings.agent_python or settings.python,
            directory=self._directory,
            timeout_s=settings.link_timeout_s,
        )
        self._reached = True
        return conversation

    @contextlib.contextmanager
    def conversation(self) -> Iterator[Conversation]:
        """A conversation of the caller's own."""
        conversation = self._converse()
        try:
            yield conversation
        finally:
            conversation.close()

    def _patience_s(self) -> float:
        if self._reached:
            return self.settings.link_patience_s
        return SILENT_TRIES * self.settings.link_timeout_s if self._link.proven else FIRST_PATIENCE_S

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        """One request and its answer; asked again after a lost link (every verb may be repeated)."""
        return self._ask(self.request(verb, **args))

    def _ask(self, request: Mapping[str, Any], payload: Callable[[], Iterable[bytes]] = tuple) -> dict[str, Any]:
        while True:
            try:
                with self._lock:
                    self._control = self._control or self._converse()
                    answer = self._control.ask(request, payload())
                self.patience.renew()
                return answer
            except LinkLost as lost:
                self._hang_up()
                self.patience.wait(lost)
            except PatchbisectError:  # the agent's own answer: the conversation goes on
                raise
            except BaseException:  # its answer is still to come, and would be taken for that of the next request
                self._hang_up()
                raise

    def _hang_up(self) -> None:
        with self._lock:
            control, self._control = self._control, None
            if control is not None:
                control.close()

    def close(self) -> None:
        self._hang_up()
        self._link.close()

    # .. the machine

    def hello(self) -> BoxFacts:
        return BoxFacts.of(self.ask("hello"))

    def free_port(self) -> int:
        """A port on which nobody listens now."""
        return int(self.ask("free_port")["port"])

    def prove_clean(
        self, port: int = 0, *, wait_s: float = 0.0, say: Callable[[str], None] | None = None
    ) -> CleanReport:
        """Whether a launch would find the box as it should be. Sweeps what our own earlier launches left.

        Who or what is in the way has ``wait_s`` seconds to go; ``say`` is told of it once a minute. Needs the lease.
        Raises LeaseLost.
        """
        report = self._look(port)
        if report.clean or not wait_s:
            return report
        began = time.monotonic()
        to_be_told = began
        while not report.clean and (left := began + wait_s - time.monotonic()) > 0:
            if say and time.monotonic() >= to_be_told:
                say(f"waiting up to {left:.0f} s for the box: {'; '.join(report.faults)}")
                to_be_told += TOLD_EVERY_S
            time.sleep(min(LOOK_AGAIN_S, left))
            report = self._look(port)
        return replace(report, waited_s=time.monotonic() - began)

    def _look(self, port: int) -> CleanReport:
        answer = self.ask("prove_clean", port=port)
        return CleanReport(
            clean=answer["clean"],
            faults=tuple(answer["faults"]),
            swept=tuple(answer["swept"]),
            seconds=answer["seconds"],
        )

    def launches(self) -> tuple[Launch, ...]:
        """What this tool started on the box and has not yet proven ended, servers kept on purpose included."""
        return tuple(Launch(**entry) for entry in self.ask("launches")["launches"])

    def warm(self) -> tuple[WarmProcess, ...]:
        """The warm processes on the box."""
        return tuple(WarmProcess(**entry) for entry in self.ask("warm")["warm"])

    def doctor(self) -> tuple[Check, ...]:
        """Everything that a trial needs, checked; a box that cannot be reached is one failed check."""
        began = time.monotonic()
        try:
            with self.conversation() as conversation:
                seconds = time.monotonic() - began
                answer = conversation.ask(self.request("doctor"))
        except BoxError as problem:
            return (*self._link_checks(), Check("link", False, problem.message, problem.remedy))
        reached = Check("link", True, f"the agent answered after {seconds:.2f} s")
        return (reached, *self._link_checks(), *(Check(**entry) for entry in answer["checks"]))

    def _link_checks(self) -> Iterator[Check]:
        if self.settings.host:
            from patchbisect.box.ssh_config import not_applied

            for sentence in not_applied(self.settings.host):
                remedy = f"if this host needs it: `prefix: [ssh, {self.settings.host}]` instead of `host`"
                yield Check("ssh settings", False, sentence, remedy)

    # .. the lease

    @contextlib.contextmanager
    def lease(self, reason: str, wait_s: float = 0.0, *, steal: bool = False) -> Iterator[Lease]:
        """Have the box to ourselves. Raises BoxBusy, naming the holder, when it is not free within ``wait_s``."""
        self._fence = self.acquire(reason, wait_s=wait_s, steal=steal)
        lease = Lease(self, self._fence)
        try:
            yield lease
        finally:
            lease.end()
            try:
                self.ask("lease_release")
            except LinkLost as lost:  # what was done under it is done
                log.warning("%s; the lease was not given back: it expires by itself", lost.message)
            finally:
                self._fence = 0

    @contextlib.contextmanager
    def reserved(self, fence: int) -> Iterator[None]:
        """Act under a lease that was taken before, with :meth:`acquire`, and is kept afterwards."""
        self._fence = fence
        try:
            yield
        finally:
            self._fence = 0

    def acquire(self, reason: str, *, wait_s: float = 0.0, steal: bool = False, lease_s: float = 0.0) -> int:
        """Take the lease and return its fencing number. Raises BoxBusy.

        With ``lease_s`` it is a reservation: it lasts so long, whatever becomes of this process. Without, it has the
        box's own length and has to be renewed.
        """
        deadline = time.monotonic() + wait_s
        about = holder(reason, outlives_us=bool(lease_s))
        wanted = {"holder": about, "token": randomness.token_hex(8), "ttl_s": lease_s or self.settings.lease_s}
        replace = 0
        while True:
            answer = self.ask("lease_acquire", **wanted, steal=steal, replace=replace)
            if "fence" in answer:
                return int(answer["fence"])
            held = LeaseHeld.of(answer["busy"])
            if holder_is_dead(held) and replace != held.fence:
                replace = held.fence
                continue
            if time.monotonic() >= deadline:
                raise BoxBusy(
                    f"box {self.name} is in use: {held}",
                    remedy="wait for it (--wait-for-box 600: seconds), or take it with box.steal if that work is dead",
                )
            time.sleep(min(1.0, max(0.05, deadline - time.monotonic())))

    def release(self, fence: int) -> bool:
        """Give back the lease with that number; False when it was no longer ours."""
        request = self.request("lease_release")
        return bool(self._ask({**request, "fence": fence})["released"])

    def leases(self) -> tuple[LeaseHeld, ...]:
        return tuple(LeaseHeld.of(entry) for entry in self.ask("lease_status")["leases"])

    # .. code

    def put_code(self, mirror: Path, commit: str) -> PlacedCode:
        """The code of ``commit`` on the box, in a tree of the tool's own. Only what the box lacks travels."""
        began = time.monotonic()
        answer = self._with_code("place", mirror, commit, tree=code.tree_of(mirror, commit))
        return PlacedCode(commit=commit, seconds=time.monotonic() - began, **answer)

    def apply(
        self, mirror: Path, commit: str, *, patches: Sequence[str] = (), rescue: bool = False, in_place: bool = False
    ) -> PlacedCode:
        """Bring ``applied/`` on the box, or with ``in_place`` the user's own checkout, to ``commit``; read it back.

        Needs the lease. Raises CodeChanged when files were changed there by hand; ``rescue`` keeps them under
        ``refs/patchbisect/rescued/`` and goes on.
        """
        began = time.monotonic()
        answer = self._with_code("apply", mirror, commit, patches=list(patches), rescue=rescue, in_place=in_place)
        return PlacedCode(seconds=time.monotonic() - began, patches=tuple(patches), **answer)

    def applied(self) -> Applied | None:
        """What ``apply`` put there last, as it is now; None when it never did."""
        answer = self.ask("applied")
        lists = {name: tuple(answer[name]) for name in ("patches", "changed")} if answer else {}
        return Applied(**{**answer, **lists}) if answer else None

    def _with_code(self, verb: str, mirror: Path, commit: str, **args: Any) -> dict[str, Any]:
        """Ask for something that needs ``commit`` on the box; send what it lacks and ask again."""
        answer = self.ask(verb, commit=commit, **args)
        if answer.get("missing"):
            with code.bundle(mirror, commit, answer["tips"]) as file:
                request = {
                    **self.request("receive", commit=commit, shallow=code.shallow(mirror)),
                    "payload": file.stat().st_size,
                }
                self._ask(request, lambda: code.parts(file))
            answer = self.ask(verb, commit=commit, **args)
        return answer

    # .. environments

    def installed(self) -> Installed:
        """What the server's own Python has. Raises CannotLaunch where it does not even start."""
        return Installed.of(self.ask("installed"))

    def environments(self) -> tuple[Environment, ...]:
        """Those that were built on the box and are whole, the one used last first."""
        return tuple(Environment.of(entry) for entry in self.ask("environments")["environments"])

    def environment(self, order: EnvironmentOrder, *, progress: Callable[[Mapping[str, Any]], None]) -> Environment:
        """The environment of that order, built where it is not there. Needs the lease.

        ``progress`` hears ``detail`` (with ``done`` of ``of``), or ``bytes`` of ``of_bytes`` of a download. Whoever
        stops listening stops the build; it goes on with what had been downloaded. Raises CannotEquip where pip cannot
        have the wheels, LeaseLost.
        """
        more = {"pip_args": list(self.settings.pip_args), "min_free_gb": self.settings.min_free_gb}
        request = self.request("environment", order={**asdict(order), **more})
        while True:
            try:
                with self.conversation() as conversation:
                    for frame, _ in conversation.frames(request):
                        self.patience.renew()
                        if "ok" in frame:
                            return Environment.of({"key": order.key, **frame["ok"]})
                        progress(frame["progress"])
            except LinkLost as lost:
                self.patience.wait(lost)

    def drop_environments(self, *, limit_gb: float = 0.0) -> tuple[str, ...]:
        """Drop the ones not used for longest until the rest takes at most ``limit_gb``; none that is in use.

        Returns the keys that were dropped.
        """
        return tuple(self.ask("environments_drop", limit_gb=limit_gb)["dropped"])

    # .. launches

    def start(self, spec: LaunchSpec) -> Run:
        """Start a server and return at once. Raises WrongCode, CannotLaunch, LeaseLost; NotWarm for a warm one."""
        settings = self.settings
        env = with_gpus({**settings.env, **spec.env, **spec.secret_env}, settings.gpus)
        also = (*settings.secrets, *spec.secret_env)
        secrets = self._secrets(spec)
        in_front = (spec.code.path,) if spec.code else ()
        hide = Redactor(secrets).text
        shown = {
            "argv": [hide(word) for word in masked_argv(spec.argv, also=also)],
            "env": masked_env(env, also=also),
            "port": spec.port,
        }
        self.ask(
            "start",
            spec={
                "launch_id": spec.launch_id,
                "argv": list(spec.argv),
                "env": env,
                "pythonpath": [*in_front, *spec.pythonpath, *settings.pythonpath],
                "port": spec.port,
                "python": spec.environment.python if spec.environment else settings.python,
                "tree": spec.code.tree if spec.code else "",
                "keep": spec.keep,
                "warm": spec.warm,
                "shown": shown,
            },
        )
        return Run(self, spec.launch_id, secrets=secrets)

    def rejoin(self, spec: LaunchSpec) -> Run:
        """The launch of ``spec``, which an earlier client started. Raises NoSuchLaunch."""
        return self.attach(spec.launch_id, secrets=self._secrets(spec))

    def _secrets(self, spec: LaunchSpec) -> tuple[str, ...]:
        """What must not be shown of that launch."""
        env = {**self.settings.env, **spec.env, **spec.secret_env}
        return secret_values(spec.argv, env, also=(*self.settings.secrets, *spec.secret_env))

    def attach(self, launch_id: str, *, secrets: Iterable[str] = ()) -> Run:
        """A launch that an earlier client started. ``secrets`` are the values to keep out of its log.

        Raises NoSuchLaunch.
        """
        self.ask("launch_state", launch_id=launch_id)
        return Run(self, launch_id, secrets=secrets)


def with_gpus(env: Mapping[str, str], gpus: Sequence[int]) -> dict[str, str]:
    """``env`` with the box's own GPUs to be seen alone, unless it says itself which of them are.

    CUDA counts the fastest first; told to count by PCI bus, its numbers are those of NVML.
    """
    if not gpus:
        return dict(env)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if "CUDA_VISIBLE_DEVICES" in env:
        return {**order, **env}
    return {**env, **order, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}


def _link(name: str, settings: BoxSettings) -> Link:
    if settings.host and settings.prefix:
        raise UsageError(f"box {name} has both `host` and `prefix`", remedy="keep one of them")
    if settings.host:
        from patchbisect.box.ssh import SshLink  # Paramiko costs 0.1 s that a local box need not pay

        return SshLink(settings.host, name=name, timeout_s=settings.link_timeout_s)
    return ProcessLink(settings.prefix, name=name)


@contextlib.contextmanager
def open_box(name: str, settings: BoxSettings, *, state: Path) -> Iterator[Box]:
    """The box ``name``. Nothing is reached before it is first asked. ``state`` is the tool's state directory here."""
    local = not settings.host and not settings.prefix
    directory = settings.directory or (str(state.absolute() / "box") if local else "~/.patchbisect-box")
    box = Box(name, settings, _link(name, settings), directory=directory)
    try:
        yield box
    finally:
        box.close()
