"""Patches taken in from others and given to them, and probes written for the user."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import invoke

from patchbisect.tasks import workshop
from patchbisect.tasks.face import console, emit, say, task, writing

if TYPE_CHECKING:
    from patchbisect.maintain.importing import Imported
    from patchbisect.maintain.shop import Outcome, Shop


@task(
    name="import",
    help={
        "source": "a patch, mailbox or quilt folder; a branch made by export; a commit or A..B",
        "branch": "SOURCE is a branch of the mirror: it becomes the queue",
        "commit": "SOURCE is a commit or A..B",
        "clone": "the clone of SGLang that has the commit; default: the mirror",
        "kind": "kind of patches that name none",
        "guards": "quilt guards that are set, separated by commas",
        "instead": "what is imported becomes the queue: it was exported, and comes back",
        "json": workshop.JSON,
    },
)
def import_(
    ctx: invoke.Context,
    source: str,
    branch: bool = False,
    commit: bool = False,
    clone: str = "",
    kind: str = "experiment",
    guards: str = "",
    instead: bool = False,
    json: bool = False,
) -> None:
    """Take patches in: files of any make (behind the queue's end), commits, or a branch that was exported.

    All or nothing; what had to be changed to get there is told. With --instead they become the queue, and a patch
    that nobody touched stays byte for byte.

    Example: invoke import ../their-patches/
    """
    from patchbisect.maintain.branching import with_disabled

    shop = workshop.shop()
    path = Path(source)
    if branch or (not commit and not path.exists() and _is_branch(shop, source)):
        workshop.done(_import_branch(shop, source), json=json)
        return
    imported, notes = _imported(shop, source, commit=commit, clone=clone, kind=kind, guards=guards)
    if instead:
        imported = _come_back(shop, imported)
    _check_places(shop, imported, instead=instead)
    title, patches = f"import {source}", [one.patch for one in imported]
    outcome = shop.edit(
        title,
        lambda editor: (
            editor.become(with_disabled(patches, editor.queue), doing=title) if instead else editor.insert(patches)
        ),
    )
    account = {one.patch.slug: list(one.account) for one in imported}
    if json:
        emit(
            {"added": outcome.added, "changed": outcome.changed, "account": account, "notes": [*notes, *outcome.notes]}
        )
        return
    workshop.done(outcome, json=False)
    for slug, told in account.items():
        for line in told:
            say(f"{slug}: {line}")
    for note in notes:
        say(f"note: {note}")


def _is_branch(shop: Shop, name: str) -> bool:
    from patchbisect.upstream import Git

    return bool(Git(shop.mirror.path).ids([f"refs/heads/{name}"])[0]) if shop.mirror.path.exists() else False


def _import_branch(shop: Shop, name: str) -> Outcome:
    from patchbisect.maintain.branching import import_branch
    from patchbisect.model import Base

    patches = import_branch(shop.mirror, Base(pin=shop.pin), shop.editor().queue, name=name)
    title = f"import branch {name}"
    return shop.edit(title, lambda editor: editor.become(patches, doing=title))


def _imported(
    shop: Shop, source: str, *, commit: bool, clone: str, kind: str, guards: str
) -> tuple[list[Imported], list[str]]:
    from patchbisect.errors import UsageError
    from patchbisect.maintain.importing import Defaults, import_file, import_series

    workshop.require_kind(kind)
    author, date = workshop.me(shop.project.root)
    defaults = Defaults(author=author, date=date, kind=kind)
    path = Path(source)
    if source == "-":
        return import_file("standard input", sys.stdin.buffer.read(), defaults=defaults), []
    if not commit and path.is_dir():
        files = {entry.name: entry.read_bytes() for entry in sorted(path.iterdir()) if entry.is_file()}
        if "series" in files:
            chosen = [guard for guard in guards.split(",") if guard]
            return import_series(files, defaults=defaults, guards=chosen, where=str(path / "series"))
        patches = [name for name in files if name.endswith((".patch", ".diff"))]
        if not patches:
            raise UsageError(f"{path} holds neither a series nor patches")
        return [one for name in patches for one in import_file(name, files[name], defaults=defaults)], []
    if not commit and path.is_file():
        return import_file(path.name, path.read_bytes(), defaults=defaults), []
    return _commits(shop, source, clone=clone, kind=kind), []


def _commits(shop: Shop, rev: str, *, clone: str, kind: str) -> list[Imported]:
    from patchbisect.maintain.branching import commits_of
    from patchbisect.maintain.exporting import patch_of_commit
    from patchbisect.maintain.importing import Imported
    from patchbisect.model import Base
    from patchbisect.upstream import Git

    where = clone or shop.project.settings.upstream.clone
    folder = Path(where).expanduser() if where else None
    commits = commits_of(shop.mirror, Base(pin=shop.pin), rev=rev, clone=folder)
    trailers = [("Kind", kind), ("Forwarded", "no")]
    store = Git(shop.mirror.path)
    return [
        Imported(patch=patch_of_commit(store, commit, number=at, trailers=trailers), account=())
        for at, commit in enumerate(commits, start=1)
    ]


def _come_back(shop: Shop, imported: list[Imported]) -> list[Imported]:
    from patchbisect.maintain.returning import come_back
    from patchbisect.model import Base

    base = Base(pin=shop.pin)
    queue = shop.editor().queue
    return come_back(shop.mirror, base, queue, imported)


def _check_places(shop: Shop, imported: list[Imported], *, instead: bool) -> None:
    """Raise UsageError that names every hunk that stands nowhere, not only the first."""
    from patchbisect.errors import UsageError
    from patchbisect.maintain.placing import misplaced
    from patchbisect.maintain.returning import already_there

    queue = shop.queue()
    told = misplaced(shop, [one.patch for one in imported], after=() if instead else queue.enabled)
    known = [] if instead else already_there(queue, imported)
    if known and (told or {patch.slug for patch in known} & {one.patch.slug for one in imported}):
        names = ", ".join(patch.name for patch in known[:3]) + (f" and {len(known) - 3} more" if known[3:] else "")
        raise UsageError(
            f"nothing was taken in: here already: {names}",
            remedy="With --instead what is imported becomes the queue; else leave these out, or rename their files.",
        )
    if told:
        shown = [f"  {line}" for line in told[:20]] + ([f"  ... and {len(told) - 20} more"] if told[20:] else [])
        raise UsageError(
            "it does not apply; nothing was taken in:\n" + "\n".join(shown),
            remedy="It was made for other code: apply it there, rebase with git, and import the commits.",
        )


@task(
    help={
        "target": "a folder for --quilt, a new branch's name for --branch, a file for --mbox (- is standard output)",
        "quilt": "write the patches and a series",
        "branch": "make a branch of the mirror, one commit a patch",
        "mbox": "write one mailbox for git am",
        "to": "with --branch: a folder to check it out in",
        "json": workshop.JSON,
    }
)
def export(
    ctx: invoke.Context,
    target: str,
    quilt: bool = False,
    branch: bool = False,
    mbox: bool = False,
    to: str = "",
    json: bool = False,
) -> None:
    """Give the queue to other tools. `--branch`, any git command there, `import --branch` loses nothing.

    Example: invoke export --branch mine --to ../sglang-mine
    """
    from patchbisect.errors import UsageError
    from patchbisect.maintain.branching import export_branch, is_free
    from patchbisect.maintain.exporting import mbox as mailbox
    from patchbisect.maintain.exporting import quilt_series
    from patchbisect.model import Base

    if quilt + branch + mbox != 1:
        raise UsageError("say one of --quilt, --branch, --mbox")
    shop = workshop.shop()
    queue = shop.queue()
    if branch:
        folder = Path(to).resolve() if to else None
        tip = export_branch(shop.mirror, Base(pin=shop.pin), queue, name=target, to=folder)
        where = f"git clone --branch {target} {shop.mirror.path}" if folder is None else str(folder)
        document: dict[str, Any] = {"branch": target, "commit": tip, "mirror": str(shop.mirror.path), "to": to}
    elif quilt:
        folder = Path(target)
        if not is_free(folder):
            raise UsageError(f"{folder} is there already", remedy="Give an empty or new folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in quilt_series(queue.patches).items():
            (folder / name).write_bytes(data)
        where, document = str(folder), {"quilt": str(folder), "patches": len(queue.patches)}
    else:
        data = mailbox(queue.patches)
        if target == "-":
            sys.stdout.buffer.write(data)
            return
        with writing(target) as file:
            file.write_bytes(data)
        where, document = target, {"mbox": target, "patches": len(queue.enabled)}
    if json:
        emit(document)
    else:
        console().print(where, markup=False, soft_wrap=True)


@task(
    help={
        "file": "a file of SGLang; an ending of its path is enough",
        "after": "a line of it, without indent, that stands once: the probe goes behind its statement",
        "expr": "what to print, separated by commas",
        "name": "the probe's name in `PROBE name ...`; default: made of the file's name",
        "slug": "the patch's name",
        "dry-run": "print the patch instead of adding it",
        "json": workshop.JSON,
    }
)
def insert_probe(
    ctx: invoke.Context,
    file: str,
    after: str,
    expr: str,
    name: str = "",
    slug: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Write a patch that prints some values, and nothing else: safe by construction, and checked by lint.

    Example: invoke insert-probe srt/distributed/parallel_state.py --after "self.world_size = len(ranks)" --expr ranks
    """
    from patchbisect.maintain.probing import probe_patch

    shop = workshop.shop()
    author, date = workshop.me(shop.project.root)
    patch = probe_patch(shop, file=file, after=after, expressions=expr, name=name, slug=slug, author=author, date=date)
    if dry_run:
        sys.stdout.write(patch.text)
        return
    workshop.done(shop.edit(f"insert probe {patch.slug}", lambda editor: editor.insert([patch])), json=json)


TASKS = (
    import_,
    export,
    insert_probe,
)
