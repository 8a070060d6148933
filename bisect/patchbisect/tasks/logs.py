"""A log from the command line as chunks of bytes: a file, plain or compressed, or standard input."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from patchbisect.errors import UsageError

_CHUNK = 1 << 18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """What every opened log can do, compressed or not."""

    def read(self, size: int, /) -> bytes: ...


def chunks(name: str) -> Iterator[bytes]:
    """The bytes of a log; ``-`` is standard input. What it is compressed with is seen from its first bytes.

    Raises UsageError where it cannot be read.
    """
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
