"""The shipped queue and the queues of ``tests/queues``: form, order, and that they are what they claim."""

from __future__ import annotations

import ast
import hashlib
import re

import pytest

from patchbisect.model import Patch
from patchbisect.patchqueue import Queue, diff_of, probes
from patchbisect.upstream import Mirror
from tests.patches.conftest import PIN, QUEUE, ROOT, read_queue

FOLDERS = [ROOT / "patches", *sorted(path for path in (ROOT / "tests" / "queues").iterdir() if path.is_dir())]
QUEUES = [pytest.param(read_queue(folder), id=folder.name) for folder in FOLDERS]
PATCHES = [
    pytest.param(patch, id=f"{folder.name}/{patch.name}") for folder in FOLDERS for patch in read_queue(folder).patches
]
PROBES = [patch for patch in QUEUE.patches if patch.trailer("Probe")]


@pytest.mark.parametrize("patch", PATCHES)
def test_is_in_format_patch_form(patch: Patch) -> None:
    assert re.match(r"From 0{40} Mon Sep 17 00:00:00 2001\nFrom: .+ <\S+@\S+\.example>\nDate: ", patch.text)
    assert f"\nSubject: [PATCH] {patch.subject}\n\n" in patch.text
    assert patch.body, "says why"
    assert max(len(line) for line in patch.body.splitlines()) <= 80
    assert not re.search(r"^-- $", patch.text, re.MULTILINE)
    for file in diff_of(patch).files:
        assert file.path.startswith("python/sglang/")
        assert len(file.old_blob) == len(file.new_blob) == 40


@pytest.mark.parametrize("queue", QUEUES)
def test_numbers_are_one_to_n(queue: Queue) -> None:
    assert [patch.number for patch in queue.patches] == list(range(1, len(queue.patches) + 1))
    assert queue.warnings == ()


def test_the_shipped_queue_has_what_was_asked_for() -> None:
    kinds = [patch.trailer("Kind") for patch in QUEUE.patches]
    assert kinds[:6] == [*["instrumentation"] * 3, *["fix"] * 2, "experiment"]
    assert len(read_queue(ROOT / "tests" / "queues" / "observer-effect").patches) >= 8


@pytest.mark.parametrize("patch", [pytest.param(patch, id=patch.name) for patch in PROBES])
def test_the_probe_trailer_names_what_is_logged(patch: Patch) -> None:
    added = "".join(line[1:] for line in patch.diff.splitlines() if line.startswith("+"))
    promised = {probe.name for probe in probes(patch)}
    assert set(re.findall(r'"PROBE (\w+) ', added)) == promised


@pytest.mark.ci
@pytest.mark.parametrize("queue", QUEUES)
def test_applies_exactly_in_order(mirror: Mirror, queue: Queue) -> None:
    commit = mirror.materialize(PIN, queue.enabled, exact=True)
    assert commit.patches == tuple(patch.name for patch in queue.patches)
    assert commit.shifted == ()


@pytest.mark.ci
@pytest.mark.parametrize("queue", QUEUES)
def test_blob_ids_are_those_of_the_code(mirror: Mirror, queue: Queue) -> None:
    """3-way merges look the old blobs up by these ids."""
    for count, patch in enumerate(queue.patches, 1):
        after = mirror.materialize(PIN, queue.patches[:count]).commit
        for file in diff_of(patch).files:
            content = mirror.read(after, file.path)
            assert content is not None
            assert file.new_blob == _blob_id(content)


@pytest.mark.ci
@pytest.mark.parametrize("queue", QUEUES)
def test_every_point_compiles_but_for_the_syntax_error(mirror: Mirror, queue: Queue) -> None:
    broken = []
    for count, patch in enumerate(queue.patches, 1):
        code = mirror.materialize(PIN, queue.patches[:count]).commit
        for path in patch.files:
            try:
                compile(mirror.read(code, path) or b"", path, "exec")
            except SyntaxError:
                broken.append(patch.name)
    expected = ["0002-log-kv-head-count"] if queue.where.endswith("syntax-error") else []
    assert broken == expected


@pytest.mark.ci
@pytest.mark.parametrize("queue", QUEUES)
def test_each_patch_applies_alone_and_can_be_taken_away(mirror: Mirror, queue: Queue) -> None:
    """What the proof of a culprit needs, and ``clean+7``, ``HEAD-7``."""
    mirror.remember(PIN.pin, queue.patches)
    for patch in queue.patches:
        mirror.materialize(PIN, (patch,))
        mirror.materialize(PIN, tuple(other for other in queue.patches if other is not patch))


@pytest.mark.ci
@pytest.mark.parametrize("slug", ["kv-sizing-probe", "memory-probe"])
def test_a_probe_only_logs(mirror: Mirror, slug: str) -> None:
    """Without its logger.info("PROBE …") statements the file is that of before: nothing is bound, returned, called."""
    patch = QUEUE.slug(slug)
    assert patch is not None
    before = mirror.materialize(PIN, ()).commit
    after = mirror.materialize(PIN, (patch,)).commit
    for path in patch.files:
        tree = ast.parse(mirror.read(after, path) or b"")
        probes = [node for node in ast.walk(tree) if _is_probe(node)]
        assert probes
        assert ast.dump(_WithoutProbes().visit(tree)) == ast.dump(ast.parse(mirror.read(before, path) or b""))
        for probe in probes:
            _assert_harmless(probe)


def _is_probe(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="info"), args=[ast.Constant(value=str(text)), *_])):
            return text.startswith("PROBE ")
    return False


class _WithoutProbes(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if _is_probe(node) else node


def _assert_harmless(probe: ast.AST) -> None:
    """%s takes anything; the one thing measured asks for no collective and leaves the cache alone."""
    assert isinstance(probe, ast.Expr) and isinstance(probe.value, ast.Call)
    assert isinstance(probe.value.args[0], ast.Constant)
    assert set(re.findall(r"%.", str(probe.value.args[0].value))) == {"%s"}
    for call in (node for argument in probe.value.args[1:] for node in ast.walk(argument)):
        match call:
            case ast.NamedExpr() | ast.Await() | ast.Yield():
                pytest.fail("a probe binds or waits")
            case ast.Call(func=ast.Name(id="int")):
                pass
            case ast.Call():
                assert ast.unparse(call) == "get_available_gpu_memory(self.device, self.gpu_id, empty_cache=False)"


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()
