"""The store of records: all that is kept of each trial."""

from patchbisect.records.choosing import Wanted, collectable, moment, unmatched, wanted
from patchbisect.records.form import (
    FAULTS,
    Attachments,
    PatchEntry,
    PointEntry,
    Record,
    checked,
    first_fault,
    is_dossier,
    is_event,
    is_sample,
)
from patchbisect.records.store import ID, Store, new_id

__all__ = [
    "FAULTS",
    "ID",
    "Attachments",
    "PatchEntry",
    "PointEntry",
    "Record",
    "Store",
    "Wanted",
    "checked",
    "collectable",
    "first_fault",
    "is_dossier",
    "is_event",
    "is_sample",
    "moment",
    "new_id",
    "unmatched",
    "wanted",
]
