"""What launches said about the points of a timeline, counted; the order in which they said it never matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Counts = Mapping[int, tuple[int, int]]
"""point -> (times GOOD, times BAD)"""


@dataclass(slots=True)
class Evidence:
    """Verdicts and SKIPs per point."""

    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    skips: Counter[int] = field(default_factory=Counter)

    def add(self, k: int, *, good: int = 0, bad: int = 0, skip: int = 0) -> None:
        if good or bad:
            before = self.counts.get(k, (0, 0))
            self.counts[k] = (before[0] + good, before[1] + bad)
        if skip:
            self.skips[k] += skip

    def good(self, k: int) -> int:
        return self.counts.get(k, (0, 0))[0]

    def bad(self, k: int) -> int:
        return self.counts.get(k, (0, 0))[1]

    def closed(self) -> frozenset[int]:
        """Points that were launched and never gave a verdict: they are not asked again."""
        return frozenset(k for k in self.skips if k not in self.counts)

    def total(self, first: int, last: int) -> tuple[int, int]:
        """How often the points ``first``..``last`` were GOOD, and how often BAD."""
        rows = [row for k, row in self.counts.items() if first <= k <= last]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)

    def supposing(self, verdicts: Sequence[tuple[int, bool]]) -> Counts:
        """The counts after some more verdicts: (point, was it BAD)."""
        supposed = Evidence(dict(self.counts))
        for k, was_bad in verdicts:
            supposed.add(k, good=not was_bad, bad=was_bad)
        return supposed.counts

    def copy(self) -> Evidence:
        return Evidence(dict(self.counts), Counter(self.skips))
