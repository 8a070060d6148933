"""What can go wrong, by whose mistake it is; each kind has one exit code.

A message says what is wrong, where, and what to do next. Only the face (``patchbisect.program``)
prints them; nothing below it prints or exits.
"""

from __future__ import annotations

import errno

NO_FILES = (errno.EMFILE, errno.ENFILE)
"""Too many files are open, in this process or on this machine: no fault of whatever could not be opened."""


class PatchbisectError(Exception):
    """A condition that a person can mend.

    ``remedy`` is the next step, in the imperative; it is printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(PatchbisectError):
    """Wrong command line, setting, point, patch or pin: nothing was started."""

    exit_code = 2


class BoxError(PatchbisectError):
    """The box or the link to it failed. Says nothing about the code under test."""

    exit_code = 3


class PointUnbuildable(PatchbisectError):
    """A point's code cannot be built: the *permanent* void of DESIGN's outcome list.

    ``patch`` names the patch (``0007-slug``) and ``place`` the file and hunk, where one is at fault.
    """

    exit_code = 2

    def __init__(self, message: str, *, patch: str = "", place: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.patch = patch
        self.place = place
