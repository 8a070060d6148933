"""Lint, facts and review of a repository's queue: the files, the mirror and the records that they need."""

from __future__ import annotations

from collections.abc import Mapping

from patchbisect.config import PIN_FILE, Project
from patchbisect.errors import PointUnbuildable, UsageError
from patchbisect.maintain.facts import PatchFacts, Proof, facts_of
from patchbisect.maintain.lint import Finding, diagnose, lint
from patchbisect.maintain.lint.analysers import Diagnose
from patchbisect.maintain.lint.effects import Read
from patchbisect.maintain.review import Review, State, compare_states
from patchbisect.model import Base, Patch, Pin
from patchbisect.patchqueue import Queue, parse_pin, survey_patch
from patchbisect.records import Store
from patchbisect.upstream import PACKAGE, Git, Mirror

Files = Mapping[str, bytes]


def files_at(project: Project, rev: str = "") -> dict[str, bytes]:
    """The files of ``patches/`` on disk, or at a revision of this repository. Raises UsageError for an unknown one."""
    if not rev:
        return {path.name: path.read_bytes() for path in sorted(project.patches.iterdir()) if path.is_file()}
    repository = Git(project.root, worktree=True)
    commit = repository.commit(rev)
    if not commit:
        raise UsageError(f"this repository has no revision {rev!r}", remedy="git branch -a, git log")
    below = repository.text("rev-parse", "--show-prefix")
    return repository.files(commit, f"{below}patches")


def pin_in(files: Files) -> Pin:
    """Raises UsageError where there is none, or one that cannot be read."""
    if PIN_FILE.name not in files:
        raise UsageError(f"there is no {PIN_FILE}")
    return parse_pin(files[PIN_FILE.name], filename=str(PIN_FILE))


def reader(mirror: Mirror, base: Base) -> Read:
    """The texts of a base's files."""
    commit = mirror.base(base).commit

    def read(path: str) -> str | None:
        data = mirror.read(commit, path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    return read


def lint_files(
    files: Files, *, mirror: Mirror, only: tuple[int, ...] = (), diagnose: Diagnose = diagnose
) -> list[Finding]:
    """Lint of a whole folder on its pin; ``only`` limits it to some patches by number, none: all."""
    base = Base(pin=pin_in(files))
    commit = mirror.base(base).commit
    store = Git(mirror.path)

    def unknown(name: str) -> bool:
        """Whether no file of SGLang's package holds the word."""
        return (
            store.run("grep", "--quiet", "--word-regexp", "--fixed-strings", "-e", name, commit, "--", PACKAGE).status
            == 1
        )

    elsewhere = [name for name in _with_range(files) if not _is_for(mirror, base, files, name)]
    return lint(
        {name: data for name, data in files.items() if name.endswith(".patch")},
        read=reader(mirror, base),
        diagnose=diagnose,
        only=only,
        elsewhere=elsewhere,
        unknown=unknown,
    )


def _with_range(files: Files) -> list[str]:
    return [name.removesuffix(".patch") for name, data in files.items() if b"\nUpstream:" in data]


def _is_for(mirror: Mirror, base: Base, files: Files, name: str) -> bool:
    """Whether the base is in the patch's Upstream: range."""
    patch, faults = survey_patch(files[f"{name}.patch"], filename=f"{name}.patch")
    if patch is None or faults:
        return True
    try:
        return name in mirror.materialize(base, [patch]).patches
    except PointUnbuildable:
        return True


def facts_in(project: Project, files: Files, *, mirror: Mirror) -> list[PatchFacts]:
    """The facts of every patch of a folder."""
    queue = Queue.read({name: data for name, data in files.items() if name.endswith(".patch")})
    documents = list(Store.of(project).documents())
    return facts_of(queue.patches, read=reader(mirror, Base(pin=pin_in(files))), records=documents)


def review_against(project: Project, base: str, *, mirror: Mirror, head: str = "") -> Review:
    """The queue on disk (or at ``head``) against that of ``base``, a revision of this repository."""
    old, new = files_at(project, base), files_at(project, head)
    if PIN_FILE.name not in old:
        old = {PIN_FILE.name: new[PIN_FILE.name]}
    before, after = _queue(old), _queue(new)
    pin_before, pin_after = pin_in(old), pin_in(new)
    mirror.remember(pin_before, before.enabled)
    results = _results(mirror, Base(pin=pin_after), after.enabled)
    then = {
        patch.name: _refitted(mirror, Base(pin=pin_after), after, patch) or {}
        for patch in before.enabled
        if after.slug(patch.slug)
    }
    facts = facts_in(project, new, mirror=mirror)
    proofs = {fact.patch.name: fact.proof for fact in facts}
    return Review(
        base=base,
        pin_before=pin_before,
        pin_after=pin_after,
        changes=tuple(
            compare_states(
                State(pin=pin_before, queue=before, results=then), State(pin=pin_after, queue=after, results=results)
            )
        ),
        findings=tuple(lint_files(new, mirror=mirror)),
        facts=tuple(facts),
        proof=_shared_proof(after, proofs),
        base_proof=_base_proof(project, old, before),
    )


def _queue(files: Files) -> Queue:
    return Queue.read({name: data for name, data in files.items() if name.endswith(".patch")})


def _results(mirror: Mirror, base: Base, patches: tuple[Patch, ...]) -> dict[str, dict[str, str]]:
    """The files that each patch changes, as it leaves them; as far as the queue can be built."""
    results: dict[str, dict[str, str]] = {}
    for at, patch in enumerate(patches, start=1):
        try:
            commit = mirror.materialize(base, patches[:at]).commit
        except PointUnbuildable:
            return results
        results[patch.name] = _texts(mirror, commit, patch)
    return results


def _refitted(mirror: Mirror, base: Base, after: Queue, old: Patch) -> dict[str, str] | None:
    """What the old text of a patch would leave where the new one stands now; None where it does not fit there."""
    new = after.slug(old.slug)
    assert new is not None
    before = [patch for patch in after.enabled if patch.number < new.number]
    try:
        commit = mirror.materialize(base, [*before, old]).commit
    except PointUnbuildable:
        try:
            commit = mirror.base(base).commit
        except PointUnbuildable:
            return None
    return {**_texts(mirror, commit, old), **_texts(mirror, commit, new)}


def _texts(mirror: Mirror, commit: str, patch: Patch) -> dict[str, str]:
    found = {path: mirror.read(commit, path) for path in patch.files}
    return {path: data.decode("utf-8", "replace") for path, data in found.items() if data is not None}


def _shared_proof(queue: Queue, proofs: Mapping[str, Proof | None]) -> Proof | None:
    """The run that started with every enabled patch as it is now; None where there is none."""
    found = [proofs.get(patch.name) for patch in queue.enabled]
    runs = {proof.run if proof else "" for proof in found}
    return found[0] if found and len(runs) == 1 and found[0] else None


def _base_proof(project: Project, files: Files, queue: Queue) -> Proof | None:
    """The newest proven start of the base's own queue."""
    documents = list(Store.of(project).documents())
    facts = facts_of(queue.patches, read=lambda path: None, records=documents)
    return _shared_proof(queue, {fact.patch.name: fact.proof for fact in facts})
