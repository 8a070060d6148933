"""What the ``server_args=`` line tells, in its three spellings (0.4.0, 0.5.19, 0.5.22)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_PAIR = re.compile(r"(?<![\w])['\"]?([a-z]\w*)['\"]?\s*[=:]\s*('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\[[^\]]*\]|[^\s,)}]+)")


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """The resolved arguments of one server, as text. ``complete`` is False where the line was cut short."""

    values: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False

    @classmethod
    def parse(cls, line: str) -> ServerArgs:
        """Read ``server_args=ServerArgs(a=1, …)`` or ``server_args={'a': 1, …}``; never raises."""
        body = line.partition("server_args=")[2]
        body = body.partition("(" if body.startswith("ServerArgs(") else "{")[2]
        values = {name: _bare(value) for name, value in _PAIR.findall(body)}
        return cls(values, complete=body.rstrip().endswith((")", "}")) and "..." not in body)

    def integer(self, name: str) -> int | None:
        text = self.values.get(name, "")
        return int(text) if re.fullmatch(r"\d+", text) else None

    def number(self, name: str) -> float | None:
        text = self.values.get(name, "")
        return float(text) if re.fullmatch(r"\d*\.?\d+(?:e-?\d+)?", text) else None

    def flag(self, name: str) -> bool | None:
        return {"True": True, "False": False}.get(self.values.get(name, ""))

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value in (None, "None", "") else value

    @property
    def may_draft(self) -> bool:
        """False only when the arguments are all here and say that nothing is speculated."""
        if self.text("speculative_algorithm") is not None:
            return self.text("speculative_algorithm") != "NGRAM"
        return not self.complete

    @property
    def no_graphs(self) -> bool:
        return self.flag("disable_cuda_graph") is True

    @property
    def local_ranks(self) -> int | None:
        """How many schedulers this node starts, if the arguments tell."""
        tp = self.integer("tp_size")
        if tp is None:
            return None
        ranks = tp * (self.integer("pp_size") or 1)
        if self.flag("enable_dp_attention") is not True and not self._dp_over_tp(tp):
            ranks *= self.integer("dp_size") or 1
        return max(1, ranks // (self.integer("nnodes") or 1))

    def _dp_over_tp(self, tp: int) -> bool:
        """0.5.22 replaced ``--enable-dp-attention`` by ``--attn-dp-size``."""
        attention_dp = self.integer("attn_dp_size") or 1
        return attention_dp > 1 and tp > 1


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
