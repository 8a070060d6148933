"""The tasks for plain ``invoke``, which behaves as ``patchbisect`` does."""

from patchbisect.program import instead_of_invoke
from patchbisect.tasks import namespace

__all__ = ["namespace"]

# Not where somebody else's tasks.py takes these in beside its own.
if __name__ == "tasks":
    instead_of_invoke(namespace)
