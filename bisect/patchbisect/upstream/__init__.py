"""SGLang's code: where it comes from, and a point's code as a real commit."""

from patchbisect.upstream.git import Git
from patchbisect.upstream.history import Way
from patchbisect.upstream.mirror import Mirror
from patchbisect.upstream.needs import PROJECT_FILE, Need, Needs, package_of
from patchbisect.upstream.sources import PACKAGE, BaseCode, NotAnswering

__all__ = [
    "PACKAGE",
    "PROJECT_FILE",
    "BaseCode",
    "Git",
    "Mirror",
    "Need",
    "Needs",
    "NotAnswering",
    "Way",
    "package_of",
]
