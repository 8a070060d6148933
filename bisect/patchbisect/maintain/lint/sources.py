"""Python sources as syntax trees."""

from __future__ import annotations

import ast


def tree_of(text: str) -> ast.Module:
    """The tree of a source. Raises SyntaxError, and ValueError for a source with a null byte.

    It is parsed as bytes, so that Python itself sees a byte-order mark, the encoding that a source declares, and one
    that is not UTF-8.
    """
    return ast.parse(text.encode("utf-8", "surrogateescape"))
