"""``patches/pin.toml`` → Pin."""

from __future__ import annotations

import re
import tomllib

from patchbisect.model import Pin
from patchbisect.patchqueue.faults import Fault, PatchFault, did_you_mean

_KEYS = ("upstream", "tag", "commit", "release", "wheel_sha256")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def parse_pin(data: bytes, *, filename: str) -> Pin:
    """Read a pin. Raises PatchFault (a UsageError) that names the line, or the nearest key for an unknown one."""
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise _fault(filename, data[: error.start].count(b"\n") + 1, "is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        raise _fault(filename, int(place[1]) if place else 0, f"is not TOML: {error}") from error
    for key, value in table.items():
        line = _line_of(text, key)
        if key not in _KEYS:
            raise _fault(filename, line, f"unknown key {key!r}{did_you_mean(key, _KEYS)}")
        if not isinstance(value, str):
            raise _fault(filename, line, f"{key} must be a string, not {type(value).__name__}")
    pin = Pin(**{"upstream": "", "commit": "", **table})
    _check(pin, text=text, filename=filename)
    return pin


def format_pin(pin: Pin) -> bytes:
    """The file of a pin, keys in one fixed order, empty ones left out."""
    values = {key: getattr(pin, key) for key in _KEYS}
    return "".join(f'{key} = "{value}"\n' for key, value in values.items() if value).encode()


def _check(pin: Pin, *, text: str, filename: str) -> None:
    if not pin.upstream:
        raise _fault(filename, 0, 'has no upstream = "URL"')
    if not _COMMIT.fullmatch(pin.commit):
        raise _fault(filename, _line_of(text, "commit"), f"commit must be the full commit id, not {pin.commit!r}")
    if pin.wheel_sha256 and not re.fullmatch(r"[0-9a-f]{64}", pin.wheel_sha256):
        raise _fault(filename, _line_of(text, "wheel_sha256"), "wheel_sha256 must be 64 hexadecimal digits")
    if bool(pin.release) != bool(pin.wheel_sha256):
        raise _fault(filename, _line_of(text, "release"), "release and wheel_sha256 belong together: one is missing")
    for name in ("upstream", "tag", "release"):
        value = getattr(pin, name)
        if value.startswith("-") or any(ord(character) < 33 for character in value):
            raise _fault(filename, _line_of(text, name), f"{name} {value!r} cannot be right")


def _line_of(text: str, key: str) -> int:
    """The line that sets a key, from 1; 0 when there is none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if re.match(rf'\s*["\']?{re.escape(key)}["\']?\s*=|\s*\[+\s*["\']?{re.escape(key)}\b', line):
            return number
    return 0


def _fault(filename: str, line: int, message: str) -> PatchFault:
    return PatchFault(
        Fault(
            rule="pin",
            file=filename,
            line=line,
            message=message,
            remedy='It holds upstream, commit (the full id), tag, and release with wheel_sha256, each as key = "text".',
        )
    )
