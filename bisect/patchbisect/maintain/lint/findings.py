"""What lint says: one finding, the rules by name, and waivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from patchbisect.maintain.lint.scopes import words
from patchbisect.model import Patch
from patchbisect.patchqueue import Severity, did_you_mean

RULES: Mapping[str, str] = {
    "exact": "every hunk stands at the pin exactly where the patch says",
    "anchor": "the lines a hunk changes and their context stand in one place of the file only",
    "compiles": "every Python file compiles before and after",
    "diagnostic": "ruff and ty find nothing that they did not find before the patch",
    "why": "the message says why the patch exists, not only what it does",
    "probe": "the Probe: trailer and the `PROBE name` lines of the patch agree",
    "waive": "a waiver names a rule that would otherwise complain",
    "changes-code": "instrumentation adds statements; it changes and removes none",
    "indent": "no statement of SGLang's moves into another block",
    "control-flow": "no return, raise, break, continue, assert, yield, await, del or global",
    "binds": "nothing is bound that other code reads",
    "makes-local": "no name that a function takes from outside becomes local to it",
    "shadows": "no new name hides a global or a builtin",
    "never-runs": "every added statement can be reached",
    "unbound": "every name that is read is certainly bound there",
    "attribute": "every attribute that is read is certainly set there",
    "call": "nothing is called outside the allow-list",
    "collective": "no collective call: a rank that does not come would hang the others",
    "gpu-sync": "nothing waits for the GPU or copies from it",
    "format": "formatting cannot raise",
    "division": "no division that can be by zero",
    "may-raise": "no other expression that can raise",
    "consumes": "no iterator is used up that other code reads",
    "import": "only modules of the standard library, or ones that the file imports already",
    "flush": "print flushes: a healthy server's output is a file, and a killed one loses its buffer",
}
"""The rules on what a patch does to code; those on the file itself are ``patchqueue``'s (header, trailer, ...)."""

BEHAVIOUR = words(
    "never-runs "
    "changes-code indent control-flow binds makes-local shadows unbound attribute call collective gpu-sync format "
    "division may-raise consumes import flush"
)
"""What holds for ``Kind: instrumentation`` alone."""


NEVER_WAIVED = frozenset({"exact", "compiles", "waive"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong. ``line`` is in the patch file, ``path_line`` in ``path`` as patched; both from 1, 0 is unknown.

    ``waived`` is the reason of the trailer that allows it; such a finding is shown, and does not count.
    """

    patch: str
    rule: str
    why: str
    remedy: str = ""
    line: int = 0
    path: str = ""
    path_line: int = 0
    severity: Severity = Severity.ERROR
    waived: str = ""

    @property
    def counts(self) -> bool:
        return self.severity is Severity.ERROR and not self.waived

    def __str__(self) -> str:
        place = f"{self.patch}:{self.line}" if self.line else self.patch
        inside = f" ({self.path}:{self.path_line})" if self.path_line else ""
        return f"{place}: {self.rule}: {self.why}{inside}"


def finding_to_json(found: Finding) -> dict[str, Any]:
    return {**asdict(found), "severity": str(found.severity)}


def waivers_used(findings: Iterable[Finding]) -> list[str]:
    """One line for each rule that a patch breaks by its own leave, however often."""
    used = Counter((found.patch, found.rule, found.waived) for found in findings if found.waived)
    return [
        f"{patch}: {rule}{f' ({times} times)' if times > 1 else ''}, because {reason}"
        for (patch, rule, reason), times in used.items()
    ]


def waive(patch: Patch, findings: Iterable[Finding]) -> list[Finding]:
    """The findings with the patch's waivers applied, and what is wrong with the waivers themselves."""
    reasons = _waivers(patch)
    forbidden = sorted(reasons.keys() & NEVER_WAIVED)
    for rule in forbidden:
        del reasons[rule]
    judged = [replace(found, waived=reasons.get(found.rule, "")) for found in findings]
    used = {found.rule for found in judged if found.waived}
    for rule in forbidden:
        why = f"Waive: {rule} cannot be: such a patch cannot be applied or run"
        judged.append(Finding(patch=patch.name, rule="waive", why=why, remedy="Mend the patch."))
    for rule in sorted(reasons.keys() - used):
        known = rule in RULES
        why = (
            f"Waive: {rule}, but that rule has no complaint here"
            if known
            else f"Waive: there is no rule {rule}{did_you_mean(rule, RULES)}"
        )
        severity = Severity.WARNING if known else Severity.ERROR
        judged.append(
            Finding(patch=patch.name, rule="waive", why=why, remedy="Take the trailer away.", severity=severity)
        )
    return judged


def _waivers(patch: Patch) -> dict[str, str]:
    """Reason by rule. ``Waive: call,binds why`` waives two."""
    reasons: dict[str, str] = {}
    for key, value in patch.trailers:
        rules, _, reason = value.partition(" ")
        if key.lower() == "waive" and reason.strip():
            reasons.update(dict.fromkeys(filter(None, rules.rstrip(":").split(",")), reason.strip()))
    return reasons
