# ruff: noqa: E501  (messages stand whole)
"""Starts of a server in the words of each SGLang release, line by line as the released packages print them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from patchbisect.model import Stage

RELEASES = (
    *((0, 4, n) for n in range(11)),
    *((0, 5, n) for n in range(1, 24)),
)
"""Every final release x.y.0 from 0.4.0 to 0.5.23; there is no final 0.5.0."""

Release = tuple[int, int, int]

BREAKPOINTS = {
    *((0, 4, n) for n in (0, 2, 4, 7)),
    *((0, 5, n) for n in (3, 7, 9, 10, 14, 17, 19, 21, 22, 23)),
}
"""Where messages change: these are in the fast tier, the releases between them in CI's."""


def tiers(releases: Iterable[Release]) -> list[Any]:
    """``releases`` as parameters, each in its tier."""
    return [
        pytest.param(release, id=name(release), marks=() if release in BREAKPOINTS else pytest.mark.ci)
        for release in releases
    ]


def between(low: str, high: str = "0.5.23") -> list[Release]:
    parse = lambda text: tuple(int(part) for part in text.split("."))  # noqa: E731
    return [release for release in RELEASES if parse(low) <= release <= parse(high)]


def name(release: Release) -> str:
    return ".".join(map(str, release))


@dataclass(frozen=True)
class Server:
    """What is started: a release, the ranks that print, a draft model or none."""

    release: Release
    tp: int = 1
    draft: bool = False
    fraction: str = "0.85"

    @property
    def labels(self) -> list[str]:
        if self.tp == 1:
            return [" TP0"] if self.release <= (0, 4, 6) else [""]
        return [f" TP{rank}" for rank in range(self.tp)]

    def said(self, message: str, second: int, *, label: str = "") -> str:
        return f"[2026-01-01 10:{second // 60:02d}:{second % 60:02d}{label}] {message}\n"

    def by_all(self, message: str, second: int) -> str:
        return "".join(self.said(message, second, label=label) for label in self.labels)

    # --- one message each --------------------------------------------------------------------------

    def args(self) -> str:
        spec = "'EAGLE'" if self.draft else "None"
        pairs = {"model_path": "'/m'", "mem_fraction_static": self.fraction, "tp_size": str(self.tp), "dp_size": "1",
                 "speculative_algorithm": spec, "chunked_prefill_size": "8192"}  # fmt: skip
        if self.release >= (0, 5, 19):
            return self.said("server_args={" + ", ".join(f"'{k}': {v}" for k, v in pairs.items()) + "}", 0)
        return self.said("server_args=ServerArgs(" + ", ".join(f"{k}={v}" for k, v in pairs.items()) + ")", 0)

    def dist(self, *, at: int = 1, done: bool = True) -> str:
        r = self.release
        out = self.by_all("Init parallel begin." if r >= (0, 5, 21) else "Init torch distributed begin.", at)
        if not done:
            return out
        if r >= (0, 5, 21):
            out += self.by_all("Init parallel ends. elapsed=1.20 s", at + 1)
            out += self.by_all("Memory baseline taken. mem usage=0.40 GB", at + 1)
        elif r >= (0, 5, 9):
            out += self.by_all("Init torch distributed ends. elapsed=1.20 s, mem usage=0.40 GB", at + 1)
        elif r >= (0, 4, 4):
            out += self.by_all("Init torch distributed ends. mem usage=0.40 GB", at + 1)
        return out

    def load(
        self,
        *,
        kind: str = "LlamaForCausalLM",
        at: int = 3,
        before: float = 90.0,
        used: float = 40.0,
        done: bool = True,
    ) -> str:
        r, after = self.release, before - used
        out = self.by_all(f"Load weight begin. avail mem={before:.2f} GB", at)
        if not done:
            return out
        if r <= (0, 4, 3):
            return out + self.by_all(
                f"Load weight end. type={kind}, dtype=torch.bfloat16, avail mem={after:.2f} GB", at + 1
            )
        memory = f"avail mem={after:.2f} GB, mem usage={used:.2f} GB."
        if r <= (0, 5, 8):
            return out + self.by_all(f"Load weight end. type={kind}, dtype=torch.bfloat16, {memory}", at + 1)
        dtype = "dtype=torch.bfloat16, " if r == (0, 5, 9) else ""
        return out + self.by_all(f"Load weight end. elapsed=5.00 s, type={kind}, {dtype}{memory}", at + 1)

    def pool(
        self, *, tokens: int = 100000, half: float = 15.0, after: float = 20.0, at: int = 5, done: bool = True
    ) -> str:
        r, out = self.release, ""
        if (0, 5, 3) <= r <= (0, 5, 12):
            out += self.by_all("Using KV cache dtype: torch.bfloat16", at)
        sizes = f"K size: {half:.2f} GB, V size: {half:.2f} GB"
        if (0, 4, 2) <= r <= (0, 4, 3):
            out += self.by_all(f"KV Cache is allocated. {sizes}.", at)
        elif (0, 4, 4) <= r <= (0, 5, 12):
            out += self.by_all(f"KV Cache is allocated. #tokens: {tokens}, {sizes}", at)
        elif r >= (0, 5, 13):
            out += self.by_all(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, {sizes}", at)
        return out + (self.by_all(f"Memory pool end. avail mem={after:.2f} GB", at) if done else "")

    def graphs(
        self, what: str = "target decode", *, at: int = 6, before: float = 20.0, used: float = 2.0, done: bool = True
    ) -> str:
        r, after = self.release, before - used
        if r <= (0, 5, 13):
            old = {"target decode": "", "target verify": "", "draft decode": "draft ", "draft extend": "draft extend "}[
                what
            ]
            if r <= (0, 4, 3):
                old = ""
            begin = f"Capture {old}cuda graph begin. This can take up to several minutes."
            begin += f" avail mem={before:.2f} GB" if r >= (0, 4, 4) else ""
            end = f"Capture {old}cuda graph end. Time elapsed: 9.00 s"
            if (0, 4, 4) <= r <= (0, 4, 6):
                end += f". avail mem={after:.2f} GB. mem usage={used:.2f} GB."
            elif r >= (0, 4, 7):
                end += f". mem usage={used:.2f} GB. avail mem={after:.2f} GB."
        else:
            per = "num_tokens_per_bs=1" if r <= (0, 5, 15) else "num_tokens_per_req=1"
            sizes = "bs=[1, 2, 4], "
            begin = f"Capture {what} CUDA graph begin. backend=full, {per}, {sizes if r <= (0, 5, 21) else ''}avail mem={before:.2f} GB"
            end = f"Capture {what} CUDA graph end. {sizes if r >= (0, 5, 22) else ''}elapsed=9.00 s, mem usage={used:.2f} GB, avail mem={after:.2f} GB."
        return self.by_all(begin, at) + (self.by_all(end, at + 9) if done else "")

    def totals(self, *, tokens: int = 100000, at: int = 30, after: float = 17.5) -> str:
        r = self.release
        chunk = "chunked_prefill_size=8192, " if r >= (0, 4, 2) else ""
        free = f", available_gpu_mem={after:.2f} GB" if r >= (0, 4, 7) else ""
        line = f"max_total_num_tokens={tokens}, {chunk}max_prefill_tokens=16384, max_running_requests=2048, context_len=8192{free}"
        return self.by_all(line, at) if r <= (0, 4, 6) else self.said(line, at, label=self.labels[0])

    def http(self, *, at: int = 31) -> str:
        return self.said("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)", at)

    def fired_up(self, *, at: int = 33) -> str:
        return self.said("The server is fired up and ready to roll!", at)

    # --- whole starts ------------------------------------------------------------------------------

    def steps(self) -> list[tuple[Stage, str]]:
        """(stage that the text ends in, text), in the order of the release."""
        if not self.draft:
            return [
                (Stage.IMPORT, self.args()),
                (Stage.DIST_INIT, self.dist()),
                (Stage.WEIGHT_LOAD, self.load()),
                (Stage.KV_ALLOC, self.pool()),
                (Stage.GRAPH_CAPTURE, self.graphs()),
                (Stage.GRAPH_CAPTURE, self.totals()),
                (Stage.WARMUP, self.http()),
                (Stage.SERVING, self.fired_up()),
            ]
        draft_load = self.load(
            kind="LlamaForCausalLMEagle3", at=17, before=17.9 if self.release < (0, 5, 14) else 50.0, used=2.0
        )
        draft_pool = self.pool(half=1.0, after=13.5, at=19)
        draft_graphs = self.graphs("draft decode", at=20, before=13.5, used=0.5)
        if self.release < (0, 5, 14):
            middle = [
                (Stage.KV_ALLOC, self.pool()),
                (Stage.GRAPH_CAPTURE, self.graphs("target verify")),
                (Stage.WEIGHT_LOAD, draft_load),
                (Stage.KV_ALLOC, draft_pool),
                (Stage.GRAPH_CAPTURE, draft_graphs),
            ]
        else:
            middle = [
                (Stage.WEIGHT_LOAD, draft_load),
                (Stage.KV_ALLOC, self.pool()),
                (Stage.KV_ALLOC, draft_pool),
                (Stage.GRAPH_CAPTURE, self.graphs("target verify")),
                (Stage.GRAPH_CAPTURE, draft_graphs),
            ]
        return [
            (Stage.IMPORT, self.args()),
            (Stage.DIST_INIT, self.dist()),
            (Stage.WEIGHT_LOAD, self.load()),
            *middle,
            (Stage.GRAPH_CAPTURE, self.totals()),
            (Stage.WARMUP, self.http()),
            (Stage.SERVING, self.fired_up()),
        ]

    def until(self, stage: Stage) -> str:
        """The start up to the end of ``stage`` of the target."""
        out = ""
        order = list(Stage)
        for ends, text in Server(self.release, self.tp, False, self.fraction).steps():
            if order.index(ends) > order.index(stage):
                break
            out += text
        return out

    def all(self) -> str:
        return "".join(text for _, text in self.steps())


SIGQUIT = {
    "0.4.2": "Received sigquit from a child proces. It usually means the child failed.",
    "0.4.4": "Received sigquit from a child process. It usually means the child failed.",
}


def raised(
    server: Server, error: str, *frames: str, at: int = 40, label: str | None = None, who: str = "Scheduler"
) -> str:
    """A scheduler's last words, as its logger prints them, and what the launcher says then."""
    label = server.labels[-1] if label is None else label
    shown = "".join(f'  File "/usr/lib/python3.12/site-packages/sglang/srt/{frame}\n    code()\n' for frame in frames)
    out = server.said(f"{who} hit an exception: Traceback (most recent call last):", at, label=label)
    out += f"{shown}{error}\n\n"
    if server.release >= (0, 4, 4):
        out += server.said(SIGQUIT["0.4.4"], at)
    elif server.release >= (0, 4, 2):
        out += server.said(SIGQUIT["0.4.2"], at)
    return out


def frame(path: str, function: str, line: int = 100) -> str:
    return f'{path}", line {line}, in {function}'
