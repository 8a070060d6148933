"""One launch on a box: its log, its signals, its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from patchbisect.box.conversation import HEARTBEAT_S
from patchbisect.box.failures import LinkLost
from patchbisect.box.secrets import Redactor
from patchbisect.box.values import Exited, LogChunk, StopReport
from patchbisect.model import Signals

if TYPE_CHECKING:
    from patchbisect.box.box import Box

log = logging.getLogger(__name__)


class Run:
    """A launch that is running, or has run, on the box. It does not depend on the link that started it."""

    def __init__(self, box: Box, launch_id: str, *, secrets: Iterable[str] = ()) -> None:
        self._box = box
        self._secrets = tuple(secrets)
        self.launch_id = launch_id

    def events(self, from_offset: int = 0) -> Iterator[LogChunk | Signals | Exited]:
        """The log from ``from_offset`` on, signals (measured twice a second, told more often), at last ``Exited``.

        A lost link is mended and nothing is lost or told twice. Raises LinkLost when it stays away for the box's
        ``link_patience_s``. Closing the iterator leaves the server alone.
        """
        redactor = Redactor(self._secrets)
        offset = from_offset
        patience = self._box.patience
        while True:
            try:
                for frame, data in self._follow(offset):
                    patience.renew()
                    if data:
                        shown_from = offset - redactor.held
                        offset += len(data)
                        shown = redactor.feed(data)
                        if shown:
                            yield LogChunk(shown_from, shown)
                    elif "signals" in frame:
                        if frame["signals"]:
                            yield signals_of(frame["signals"])
                    elif "ok" in frame:
                        if redactor.held:
                            yield LogChunk(offset - redactor.held, redactor.flush())
                        yield exited_of(frame["ok"])
                        return
            except LinkLost as lost:
                patience.wait(lost)

    def _follow(self, offset: int) -> Iterator[tuple[dict[str, Any], bytes]]:
        request = self._box.request("follow", launch_id=self.launch_id, offset=offset)
        with self._box.conversation() as conversation:
            beat = time.monotonic()
            for frame, data in conversation.frames(request):
                if time.monotonic() - beat > HEARTBEAT_S:
                    conversation.heartbeat()
                    beat = time.monotonic()
                yield frame, data

    def provenance(self) -> dict[str, Any]:
        """What ran, as the server's own Python sees it.

        ``sglang`` (the file that is imported), ``tree`` (proven on disk before the launch), ``python``, ``executable``,
        ``packages`` (distribution → version). Raises BoxError when that Python cannot tell.
        """
        return self._box.ask("provenance", launch_id=self.launch_id)

    def samples(self) -> list[dict[str, Any]]:
        """What the box measured twice a second, oldest first: ``t`` (epoch seconds), ``gpus`` as
        ``[[index, used GiB, utilisation %], …]``, and the fields of Signals.
        """
        found: list[dict[str, Any]] = self._box.ask("samples", launch_id=self.launch_id)["samples"]
        return found

    def dossier(self) -> dict[str, Any]:
        """What is worth knowing of a server that hangs, to be collected before it is stopped.

        ``processes``, ``stacks`` (pid → text, by py-spy where the box has it), ``last_lines`` (rank → its last line),
        ``ranks_alive``, ``ranks_missing`` (seen in the log, and gone), ``nvidia_smi``.
        """
        found: dict[str, Any] = redacted(self._box.ask("dossier", launch_id=self.launch_id), Redactor(self._secrets))
        return found

    def stop(self, grace_s: float = 1.0) -> StopReport:
        """End everything that descends from the launch: SIGTERM, ``grace_s``, SIGKILL; then prove that it is gone.

        Zero seconds of grace mean no SIGTERM. A launch that has ended already is proven gone just the same.
        """
        answer = self._box.ask("stop", launch_id=self.launch_id, grace_s=grace_s)
        redactor = Redactor(self._secrets)
        return StopReport(
            ended=answer["ended"],
            killed=tuple(answer["killed"]),
            seconds=answer["seconds"],
            gone_s=answer["gone_s"],
            faults=tuple(map(redactor.text, answer["faults"])),
            box_changed=tuple(map(redactor.text, answer["changed"])),
            exit_code=answer["exit_code"],
            kernel=tuple(answer["kernel"]),
            swept=tuple(answer["swept"]),
        )


def redacted(value: Any, redactor: Redactor) -> Any:
    """``value``, as JSON has it, with the secrets starred out of every string in it."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {key: redacted(inner, redactor) for key, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner, redactor) for inner in value]
    return value


def signals_of(answer: Mapping[str, Any]) -> Signals:
    """``gpu_util`` and ``gpu_used_gb`` are those of the busiest and of the fullest GPU of the box."""
    return Signals(**{**answer, "alive_ranks": tuple(answer["alive_ranks"])})


def exited_of(answer: Mapping[str, Any]) -> Exited:
    exited = answer["exited"]
    return Exited(
        exit_code=exited["exit_code"],
        offset=answer["offset"],
        rank_exit=exited["rank_exit"],
        left=tuple(exited["left"]),
        kernel=tuple(exited["kernel"]),
        box_changed=tuple(exited["changed"]),
    )
