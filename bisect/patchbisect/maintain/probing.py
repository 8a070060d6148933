"""``insert-probe``: from a file, a line and some expressions to a patch that lint has nothing against."""

from __future__ import annotations

import difflib
from pathlib import PurePosixPath

from patchbisect.errors import UsageError
from patchbisect.maintain.exporting import slug_of
from patchbisect.maintain.lint.instrumentation import judge
from patchbisect.maintain.probes import insert_probe, split_expressions
from patchbisect.maintain.shop import Shop
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import compose
from patchbisect.patchqueue.diff import split_lines
from patchbisect.upstream import Git


def probe_patch(
    shop: Shop, *, file: str, after: str, expressions: str, name: str, slug: str, author: str, date: str
) -> Patch:
    """The patch, made for the end of the queue. Raises UsageError where it could not be safe, with the reasons."""
    base = Base(pin=shop.pin)
    commit = shop.mirror.materialize(base, shop.queue().enabled, exact=True).commit
    path = _only_path(Git(shop.mirror.path), commit, file)
    data = shop.mirror.read(commit, path)
    assert data is not None
    before = data.decode("utf-8", "surrogateescape")
    stem = PurePosixPath(path).stem
    wanted = split_expressions(expressions)
    probe = name or stem
    made = insert_probe(before, path=path, after=after, expressions=wanted, name=probe)
    if complaints := judge(before, made.text):
        told = "\n".join(f"  {one.rule}: {one.why}" for one in complaints)
        raise UsageError(f"that probe would not be safe:\n{told}", remedy=complaints[0].remedy)
    return compose(
        number=1,
        slug=slug or slug_of(f"probe {probe}"),
        author=author,
        date=date,
        subject=f"Log {', '.join(wanted)}"[:70],
        body=f"Printed as PROBE {probe}, behind the line\n\n    {after.strip()}\n\nof {path}.",
        trailers=[("Kind", "instrumentation"), ("Forwarded", "not-needed"), ("Probe", probe)],
        diff=_diff(path, before, made.text),
    )


def _diff(path: str, before: str, after: str) -> str:
    """As ``diff -u``; the blob ids come when it is added to the queue."""
    lines = difflib.unified_diff(split_lines(before), split_lines(after), fromfile=f"a/{path}", tofile=f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _only_path(store: Git, commit: str, wanted: str) -> str:
    """The one file whose path ends so. Raises UsageError for none and for several."""
    names = store.output("ls-tree", "-r", "-z", "--name-only", commit).decode("utf-8", "surrogateescape").split("\0")
    found = [name for name in names if name == wanted or name.endswith(f"/{wanted.lstrip('/')}")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"SGLang has no file {wanted}", remedy="Give its path, or the end of it.")
    shown = ", ".join(found[:4])
    raise UsageError(f"{wanted} may be {len(found)} files: {shown}", remedy="Give more of its path.")
