"""The tasks for plain ``invoke``; ``patchbisect`` is the same with more exact exit codes."""

from patchbisect.tasks import namespace

__all__ = ["namespace"]
