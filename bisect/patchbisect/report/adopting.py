"""A record from the log of a server that somebody started by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

from patchbisect.errors import UsageError
from patchbisect.model import Signals
from patchbisect.records import Attachments, PointEntry, Record, Store, new_id
from patchbisect.redact import MASK, is_secret
from patchbisect.report.masking import without_secrets
from patchbisect.report.reading import read
from patchbisect.startup import classify
from patchbisect.wire import verdict_to_json

# The exit code is not known; that the server is gone is what adopting its log means, unless it was ready.
_GONE = Signals(alive=False)


def adopted(store: Store, log: bytes, *, name: str, secrets: Iterable[str] = ()) -> Record:
    """Keep the log as a run named ``name``. What code it ran is not known, and the record says so.

    Raises UsageError where the name is another run's, and for an empty log.
    """
    if not log.strip():
        raise UsageError("the log is empty", remedy="name the file that the server wrote to")
    names = tuple(secrets)
    text = without_secrets(log.decode(errors="surrogateescape"), names=names).encode(errors="surrogateescape")
    reading = read(text)
    verdict = classify(text, None if reading.verdict.reached_ready else _GONE)
    record = Record(
        id=new_id(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        box="by-hand",
        point=PointEntry(name=f"adopted:{name}", profile="", until="serving", upstream="", pin=""),
        content_id=f"log-{hashlib.sha256(text).hexdigest()}",
        provenance={
            "server_args": {
                key: MASK if is_secret(key, more=names) and value != "None" else value
                for key, value in reading.arguments.items()
            }
        },
        verdict=verdict_to_json(verdict),
        timings={"total": reading.seconds} if reading.seconds is not None else {},
        origin="adopted",
    )
    store.save(record, Attachments(log=text))
    try:
        return store.tag(record.id, name)
    except BaseException:  # Ctrl-C too: a record without its name is half done
        store.remove(record.id)
        raise
