"""One machine: reach it, lease it, prove it clean, put code on it, start, follow, stop."""

from patchbisect.box.box import Box, open_box
from patchbisect.box.lease import Lease
from patchbisect.box.reservation import Reservations
from patchbisect.box.run import Run
from patchbisect.box.settings import BoxSettings
from patchbisect.box.values import (
    Applied,
    BoxFacts,
    Check,
    CleanReport,
    Environment,
    EnvironmentOrder,
    Exited,
    GpuFacts,
    Installed,
    Launch,
    LaunchSpec,
    LeaseHeld,
    LogChunk,
    PlacedCode,
    StopReport,
    WarmProcess,
)

__all__ = [
    "Applied",
    "Box",
    "BoxFacts",
    "BoxSettings",
    "Check",
    "CleanReport",
    "Environment",
    "EnvironmentOrder",
    "Exited",
    "GpuFacts",
    "Installed",
    "Launch",
    "LaunchSpec",
    "Lease",
    "LeaseHeld",
    "LogChunk",
    "PlacedCode",
    "Reservations",
    "Run",
    "StopReport",
    "WarmProcess",
    "open_box",
]
