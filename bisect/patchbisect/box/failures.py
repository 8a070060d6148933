"""How a box can fail. All of them say nothing about the code under test."""

from __future__ import annotations

from patchbisect.errors import BoxError, UsageError


class Unreachable(BoxError):
    """The box could not be reached, or is not fit to run the agent: trying again at once will not help."""


class LinkLost(BoxError):
    """The link broke while it was in use."""


class BoxBusy(BoxError):
    """Somebody else holds the lease."""


class LeaseLost(BoxError):
    """Our lease was taken away: whatever we would do now could disturb its new holder."""


class WrongCode(BoxError):
    """The code on the box is not the code that was asked for."""


class NoSuchLaunch(BoxError):
    """The box knows no launch of that id."""


class CannotLaunch(BoxError):
    """The server's program is not there: found before the launch, so a permanent void."""


class CannotEquip(BoxError):
    """The wheels that a base needs cannot be had on the box: found before the launch, so a permanent void."""


class NotWarm(BoxError):
    """A warm start could not be made, and nothing of the server ran: it can be started normally."""


class CodeChanged(UsageError):
    """Files of the user were changed by hand and would be overwritten."""


KINDS: dict[str, type[BoxError] | type[UsageError]] = {
    "lease-lost": LeaseLost,
    "wrong-code": WrongCode,
    "no-run": NoSuchLaunch,
    "no-program": CannotLaunch,
    "no-wheels": CannotEquip,
    "not-warm": NotWarm,
    "dirty": CodeChanged,
    "usage": UsageError,
}
"""The kinds of refusal of the agent that callers tell apart; any other is a plain BoxError."""
