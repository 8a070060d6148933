"""A length of time in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``45 s``, ``12 min`` or ``1 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
