"""The book of who may use the machine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Sequence

from .base import Json, Refused, boot_id, create, shortage, since_boot, write_reserved

MACHINE_WIDE_LEASES = "/var/tmp/patchbisect-lease"


class LeaseBook:
    """Who may use the machine, or some of its GPUs, now. One small file that all users of the box share.

    Every lease gets a higher *fencing number* than all before it. A command that carries an older one is
    refused, so a client that slept through its expiry cannot disturb its successor.
    """

    def __init__(self, directory: str) -> None:
        """Raises Refused where no book can be kept in ``directory``."""
        self._directory = directory
        self._path = f"{directory}/lease.json"
        self._lock = f"{directory}/lock"
        previous = os.umask(0)
        try:
            with self._kept():
                os.makedirs(directory, mode=0o777, exist_ok=True)
                with contextlib.suppress(OSError):
                    os.close(os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
        finally:
            os.umask(previous)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """What the directory does not allow is its fault, or that of the setting."""
        try:
            yield
        except OSError as problem:
            if shortage(problem):
                raise
            message = f"the lease of the box cannot be kept in {self._directory}: {problem.strerror}"
            remedy = (
                "set `lease-dir` of the box to a directory that all users of the GPUs may write "
                "(chmod 777, without the sticky bit), the same for all of them"
            )
            raise Refused("os", message, remedy) from None

    def prove_writable(self) -> None:
        """Raises Refused where a lease could be seen and none be taken."""
        with self._kept():
            probe = f"{self._path}.{os.getpid()}.probe"
            os.close(create(probe))
            os.unlink(probe)

    def _read(self) -> Json:
        """A book that may not be read is not an empty one: somebody may hold the box. One that is damaged is."""
        try:
            with open(self._path, encoding="utf-8") as file:
                book: Json = json.load(file)
        except (FileNotFoundError, ValueError):
            book = {}
        whole = isinstance(book, dict) and isinstance(book.get("fence"), int) and isinstance(book.get("leases"), list)
        return book if whole else {"fence": first_number(), "leases": []}

    @contextlib.contextmanager
    def _open(self) -> Iterator[Json]:
        """The book, locked; what is changed in it is written back."""
        with self._kept(), open(self._lock, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = self._read()
            before = json.dumps(book)
            for lease in book["leases"]:
                if lease["boot"] != boot_id():  # over, like one that nobody renewed: its client may have it back
                    lease.update({"boot": boot_id(), "since": since_boot(), "until": since_boot()})
            yield book
            if json.dumps(book) != before:
                previous = os.umask(0)  # the next user of the box writes it too
                try:
                    write_reserved(self._path, book, durable=True)
                finally:
                    os.umask(previous)

    @staticmethod
    def _shown(lease: Json) -> Json:
        now = since_boot()
        return {
            **lease["holder"],
            "fence": lease["fence"],
            "gpus": lease["gpus"],
            "held_s": now - lease["since"],
            "expires_in_s": lease["until"] - now,
        }

    def acquire(
        self, *, holder: Json, token: str, ttl_s: float, gpus: list[int], steal: bool = False, replace: int = 0
    ) -> Json:
        """``{"fence": N, "replaced": [...]}``, or ``{"busy": lease}`` while somebody else holds it.

        ``token`` is the client's own: a request repeated after its answer was lost is not its own rival. Nor is
        the lease with the number ``replace``, whose client is known to be dead.
        """
        with self._open() as book:
            now = since_boot()
            rivals = [lease for lease in book["leases"] if overlap(lease["gpus"], gpus)]
            living = [one for one in rivals if one["until"] > now and one["token"] != token and one["fence"] != replace]
            if living and not steal:
                return {"busy": self._shown(living[0])}
            book["fence"] += 1
            lease = {"fence": book["fence"], "holder": holder, "token": token, "gpus": gpus}
            lease.update({"boot": boot_id(), "since": now, "until": now + ttl_s})
            book["leases"] = [one for one in book["leases"] if one not in rivals] + [lease]
            return {"fence": lease["fence"], "replaced": [self._shown(rival) for rival in rivals]}

    def renew(self, *, fence: int, ttl_s: float) -> Json:
        """Also after expiry, as long as nobody else has taken it. Raises Refused(lease-lost) otherwise."""
        with self._open() as book:
            for lease in book["leases"]:
                if lease["fence"] == fence:
                    lease["until"] = since_boot() + ttl_s
                    return self._shown(lease)
            raise self._lost(fence, book)

    def release(self, *, fence: int) -> Json:
        with self._open() as book:
            kept = [lease for lease in book["leases"] if lease["fence"] != fence]
            released = len(kept) < len(book["leases"])
            book["leases"] = kept
            return {"released": released}

    def status(self) -> Json:
        with self._open() as book:
            return {"leases": [self._shown(lease) for lease in book["leases"]], "fence": book["fence"]}

    def check(self, fence: int) -> None:
        """Raises Refused(lease-lost) unless ``fence`` is that of a lease which nobody has replaced."""
        with self._open() as book:
            if not any(lease["fence"] == fence for lease in book["leases"]):
                raise self._lost(fence, book)

    def numbers(self) -> set[int]:
        """The fencing numbers of all leases that nobody has replaced."""
        with self._open() as book:
            return {lease["fence"] for lease in book["leases"]}

    def holder(self, fence: int) -> str:
        """Whose the lease ``fence`` is, and what for; empty where there is none."""
        with self._open() as book:
            found = [one["holder"] for one in book["leases"] if one["fence"] == fence]
            return "".join(map(whose, found))

    def taken_over(self, fence: int, *, own: int = 0, gpus: Sequence[int] = ()) -> str:
        """Who holds what the lease ``fence`` held (``gpus``; none: the whole machine), if somebody else does.

        Whoever holds ``own`` asks: a client that comes back after its death has a new lease, and is nobody else.
        """
        with self._open() as book:
            if any(lease["fence"] == fence for lease in book["leases"]):
                return ""
            others = [one for one in book["leases"] if one["fence"] != own]
            now = [one["holder"] for one in others if overlap(one["gpus"], list(gpus))]
            return " and ".join(plain("{owner} on {host}".format(**holder)) for holder in now)

    def _lost(self, fence: int, book: Json) -> Refused:
        if not fence:
            return Refused("lease-lost", "this needs the lease of the box", "take the lease first")
        holders = [whose(one["holder"]) for one in book["leases"]]
        whom = "; it is now held by " + " and ".join(holders) if holders else "; nobody holds it now"
        return Refused("lease-lost", f"lease {fence} of the box was taken away or released{whom}", "start again")


def first_number() -> int:
    """Above all numbers of a book that was here and was deleted: the clients of its leases may live on.

    Microseconds since 1970, for no book gives them out as fast as that.
    """
    return time.time_ns() // 1000


def whose(holder: Json) -> str:
    return plain("{owner} on {host} ({reason})".format(**holder))


def plain(text: str) -> str:
    """Without what gives orders to a terminal: every user of the machine may write in the book."""
    return "".join(character if character.isprintable() else "·" for character in text)


def lease_dir(directory: str, box: Json) -> str:
    """GPUs are shared by all users of a machine, so the book is too; of a box that uses none it is ours alone."""
    has_gpus = any(re.fullmatch(r"nvidia\d+|kfd", name) for name in os.listdir("/dev"))
    shared = has_gpus and box["gpus"] is not None
    return os.path.expanduser(box["lease_dir"]) or (MACHINE_WIDE_LEASES if shared else f"{directory}/lease")


def overlap(one: list[int], other: list[int]) -> bool:
    """No GPUs named means the whole machine."""
    return not one or not other or bool(set(one) & set(other))
