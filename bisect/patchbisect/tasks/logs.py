"""A log from the command line as chunks of bytes: a file, plain or compressed, or standard input."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from patchbisect.errors import UsageError
from patchbisect.startup.recognition import Recognition

_CHUNK = 1 << 18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """What every opened log can do, compressed or not."""

    def read(self, size: int, /) -> bytes: ...


def chunks(name: str, *, may_be_silent: bool = False) -> Iterator[bytes]:
    """The bytes of a server's log; ``-`` is standard input. What it is compressed with is seen from its first bytes.

    Raises UsageError where it cannot be read, and at its end where no line of it can be a server's. Of a server that
    is known to have ended the log ``may_be_silent``.
    """
    seen = Recognition()
    for part in _read(name):
        seen.feed(part)
        yield part
    seen.close()
    if seen.doubt and not (may_be_silent and seen.silent):
        where = "standard input" if name == "-" else name
        raise UsageError(f"{where}: not the log of a server: {seen.doubt}", remedy=_EXPECTED)


_EXPECTED = (
    "give what the server wrote to standard output and standard error, "
    "with lines like [2026-11-29 16:23:11 TP0] Load weight begin. avail mem=94.02 GB"
)


def _read(name: str) -> Iterator[bytes]:
    if name == "-":
        yield from _parts(sys.stdin.buffer)
        return
    try:
        with Path(name).open("rb") as file:
            magic = file.peek(4)[:4]
            yield from _parts(_opened(file, magic))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{name}: {error.strerror}", remedy="name a log file, or - for standard input") from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise UsageError(f"{name}: damaged: {error}", remedy="copy it again") from error


def _opened(file: IO[bytes], magic: bytes) -> Readable:
    if magic.startswith(_GZIP):
        return gzip.open(file)
    if magic.startswith(_ZSTD):
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return file


def _parts(file: Readable) -> Iterator[bytes]:
    while part := file.read(_CHUNK):
        yield part
