"""Lint of the queue: does each patch stand where it says, compile, and, if it only looks, change nothing?"""

from patchbisect.maintain.lint.analysers import Diagnostic, diagnose
from patchbisect.maintain.lint.checking import lint, lint_change
from patchbisect.maintain.lint.findings import RULES, Finding, finding_to_json, waivers_used

__all__ = ["RULES", "Diagnostic", "Finding", "diagnose", "finding_to_json", "lint", "lint_change", "waivers_used"]
