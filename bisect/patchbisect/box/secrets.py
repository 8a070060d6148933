"""How the values of secrets are kept out of what is shown or stored of a launch. Which names hold them: ``redact``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from patchbisect.redact import MASK, masked_url
from patchbisect.redact import is_secret as _is_secret

SHORTEST = 6
"""A shorter value is not looked for in logs: starring out every ``8`` would destroy them."""


def is_secret(name: str, *, also: Collection[str] = ()) -> bool:
    """Whether a variable, or a flag with its dashes, holds a secret."""
    return _is_secret(name.removeprefix("--"), more=also)


def masked_env(env: Mapping[str, str], *, also: Collection[str] = ()) -> dict[str, str]:
    return {name: MASK if is_secret(name, also=also) else masked_url(value) for name, value in env.items()}


def masked_argv(argv: Sequence[str], *, also: Collection[str] = ()) -> list[str]:
    """``argv`` with the values of secret flags starred out, as ``--flag value`` and as ``--flag=value``."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(MASK)
        elif word.startswith("--") and equals and is_secret(name, also=also):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(masked_url(word))
        hide_next = word.startswith("--") and not equals and is_secret(word, also=also)
    return shown


def secret_values(argv: Sequence[str], env: Mapping[str, str], *, also: Collection[str] = ()) -> tuple[str, ...]:
    """The values that must not be shown, of a command line and an environment."""
    found = [value for name, value in env.items() if is_secret(name, also=also)]
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if word.startswith("--") and is_secret(name, also=also):
            found.append(value if equals else following)
    return tuple(value for value in found if len(value) >= SHORTEST)


class Redactor:
    """Stars out secret values in a stream of bytes, also where one is cut by the end of a chunk.

    Lengths do not change, so offsets into the log stay true. Bytes that may be the beginning of a secret are held
    back until more is known; ``flush`` gives them out.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._secrets = sorted({value.encode() for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
        self._held = b""

    @property
    def held(self) -> int:
        """How many bytes are held back."""
        return len(self._held)

    def feed(self, data: bytes) -> bytes:
        text = self._held + data
        for secret in self._secrets:
            text = text.replace(secret, b"*" * len(secret))
        cut = len(text) - max((self._overhang(text, secret) for secret in self._secrets), default=0)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> bytes:
        held, self._held = self._held, b""
        return held

    @staticmethod
    def _overhang(text: bytes, secret: bytes) -> int:
        """The length of the longest end of ``text`` that begins ``secret``."""
        longest = min(len(text), len(secret) - 1)
        return next((size for size in range(longest, 0, -1) if secret.startswith(text[-size:])), 0)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret.decode(), MASK)
        return text
