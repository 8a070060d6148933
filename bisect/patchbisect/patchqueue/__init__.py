"""Patch files, pure: read, write, order, trailers, where hunks fit. Touches no file, socket or clock."""

from patchbisect.patchqueue.applying import FOLDER, File, apply_exactly
from patchbisect.patchqueue.beside import placed_beside
from patchbisect.patchqueue.diff import FileDiff, Hunk
from patchbisect.patchqueue.faults import Fault, PatchFault, Severity, did_you_mean
from patchbisect.patchqueue.patchfile import (
    KINDS,
    Probe,
    author_of,
    commit_message,
    compose,
    diff_of,
    format_patch,
    git_date,
    parse_patch,
    probes,
    renamed,
    requires,
    sha256_of,
    survey_patch,
)
from patchbisect.patchqueue.pinfile import format_pin, parse_pin
from patchbisect.patchqueue.places import Misfit, misfits
from patchbisect.patchqueue.series import Queue, survey

__all__ = [
    "FOLDER",
    "KINDS",
    "Fault",
    "File",
    "FileDiff",
    "Hunk",
    "Misfit",
    "PatchFault",
    "Probe",
    "Queue",
    "Severity",
    "apply_exactly",
    "author_of",
    "commit_message",
    "compose",
    "did_you_mean",
    "diff_of",
    "format_patch",
    "format_pin",
    "git_date",
    "misfits",
    "parse_patch",
    "parse_pin",
    "placed_beside",
    "probes",
    "renamed",
    "requires",
    "sha256_of",
    "survey",
    "survey_patch",
]
