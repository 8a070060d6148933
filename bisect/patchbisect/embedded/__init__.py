"""The box on this machine without a GPU: a Python environment, stand-ins and models for a real SGLang 0.5.9 server.

``setup`` prepares it under the state directory, ``find`` says whether it is there. SGLang itself is not part of it:
its code comes from a point's work tree on PYTHONPATH, before the stand-ins.
"""

from patchbisect.embedded.environment import Embedded, find
from patchbisect.embedded.preparing import Progress, setup

__all__ = ["Embedded", "Progress", "find", "setup"]
