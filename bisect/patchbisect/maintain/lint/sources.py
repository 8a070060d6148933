"""Python sources as syntax trees."""

from __future__ import annotations

import ast
from importlib.util import decode_source


def tree_of(text: str) -> ast.Module:
    """The tree of a source, read in the encoding that it declares, by default UTF-8.

    Raises SyntaxError, and ValueError for bytes that are not in that encoding: an import may forgive them in a
    comment, ``python FILE`` does not.
    """
    return ast.parse(decode_source(text.encode("utf-8", "surrogateescape")))
