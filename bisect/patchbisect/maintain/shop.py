"""The queue of a repository, edited: reads it, lets a verb work it out, and writes all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchbisect.config import PIN_FILE, Project
from patchbisect.errors import UsageError
from patchbisect.maintain.editing import Editor
from patchbisect.maintain.rebuilding import Rebuilt
from patchbisect.maintain.transaction import Disk, Folder
from patchbisect.model import Base, Patch, Pin
from patchbisect.patchqueue import Queue, format_patch, parse_pin
from patchbisect.upstream import Mirror

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an edit did to the files: names that are new, gone and different, and what had to be moved or merged."""

    title: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Shop:
    """One repository's queue. Raises UsageError for a queue that cannot be read."""

    def __init__(self, project: Project, *, mirror: Mirror | None = None, disk: Disk | None = None) -> None:
        self.project = project
        self.mirror = mirror or Mirror.of(project)
        self.folder = Folder(project.patches, log=project.state / "edits", disk=disk)

    @property
    def pin(self) -> Pin:
        return parse_pin(self.folder.read()[PIN_FILE.name], filename=str(PIN_FILE))

    def queue(self) -> Queue:
        return Queue.read(self.folder.read())

    def editor(self) -> Editor:
        """The queue, to be edited. Raises UsageError while a rebase is under way: it counts on the queue as it was."""
        self._refuse_during_rebase()
        return Editor(self.mirror, Base(pin=self.pin), self.queue())

    def edit(self, title: str, verb: Callable[[Editor], Rebuilt]) -> Outcome:
        """Carry out one verb. Raises what the verb raises; then nothing was written."""
        rebuilt = verb(self.editor())
        return self.put(title, rebuilt.patches, notes=rebuilt.notes)

    def put(
        self,
        title: str,
        patches: Sequence[Patch],
        *,
        notes: Sequence[str] = (),
        more: Mapping[str, bytes] | None = None,
    ) -> Outcome:
        """Make the queue these patches, and the files in ``more`` (the pin) as given, in one edit.

        Raises UsageError where the result is no queue: two patches of one number, a requirement that comes later.
        """
        now = self.folder.read()
        wanted: dict[str, bytes | None] = {name: None for name in now if name.endswith(".patch")}
        wanted |= {f"{patch.name}.patch": format_patch(patch) for patch in patches}
        wanted |= more or {}
        Queue.read({name: data for name, data in wanted.items() if data is not None})
        self.folder.change(title, wanted)
        names = {name for name, data in wanted.items() if data is not None}
        return Outcome(
            title=title,
            added=tuple(sorted(names - now.keys())),
            removed=tuple(sorted(name for name, data in wanted.items() if data is None and name in now)),
            changed=tuple(sorted(name for name in names & now.keys() if now[name] != wanted[name])),
            notes=tuple(notes),
        )

    def undo(self) -> str:
        """Take back the last edit; gives its title. Raises UsageError as Folder.undo does, and during a rebase."""
        self._refuse_during_rebase()
        return self.folder.undo()

    def _refuse_during_rebase(self) -> None:
        if (self.project.state / "rebase" / "state.json").is_file():
            raise UsageError("a rebase is under way", remedy="invoke rebase-queue --continue, or --abort.")

    @property
    def clone(self) -> Path | None:
        """The settings' clone of SGLang, where it is a folder of this machine: it has the history."""
        where = self.project.settings.upstream.clone
        folder = Path(where).expanduser() if where else None
        return folder if folder and folder.is_dir() else None

    @property
    def bench(self) -> Path:
        """Where the work tree of an open edit is."""
        return self.project.state / "edit"
