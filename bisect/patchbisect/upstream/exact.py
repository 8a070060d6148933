"""The commits of patches that apply exactly: worked out in memory and handed to git in one go.

Three processes and some forty new files for each patch are seconds for a queue of a hundred; this is two processes
and one pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.model import Patch
from patchbisect.patchqueue import FOLDER, File, apply_exactly, author_of, commit_message, diff_of, git_date
from patchbisect.upstream.git import Git

_COMMITTER = "patchbisect <patchbisect@patchbisect.invalid>"


@dataclass(slots=True)
class Snapshot:
    """The files of a commit, and what patches have made of them. Texts are read for the paths of ``patches`` only."""

    modes: dict[str, str]
    texts: dict[str, str]

    @classmethod
    def of(cls, store: Git, commit: str, patches: Sequence[Patch]) -> Snapshot:
        """Read a commit. Raises BoxError where the mirror is damaged."""
        entries = _listing(store, commit)
        wanted = [path for path in {path for patch in patches for path in patch.files} if path in entries]
        blobs = store.blobs([entries[path][1] for path in wanted])
        modes = {path: mode for path, (mode, _) in entries.items()}
        for path in entries:
            modes.update((path[:at], FOLDER) for at, character in enumerate(path) if character == "/")
        texts = {path: blob.decode("utf-8", "surrogateescape") for path, blob in zip(wanted, blobs, strict=True)}
        return cls(modes=modes, texts=texts)

    def apply(self, patch: Patch) -> dict[str, File | None] | None:
        """What the patch changes, taken over; None, and nothing taken over, where it does not apply exactly."""
        changed = apply_exactly(diff_of(patch), mode_of=self.modes.get, read=self.texts.__getitem__)
        if changed is None:
            return None
        for path, file in changed.items():
            if file is None:
                del self.modes[path]
                continue
            self.modes[path] = file.mode
            self.modes.update((path[:at], FOLDER) for at, character in enumerate(path) if character == "/")
            self.texts[path] = file.text
        return dict(changed)


def import_exactly(store: Git, patches: Sequence[Patch], *, parent: str, refs: Sequence[str]) -> int:
    """Commit the patches on ``parent`` as far as they apply exactly, each under its ref; returns how many did."""
    snapshot = Snapshot.of(store, parent, patches)
    stream: list[bytes] = []
    done = 0
    for patch, ref in zip(patches, refs, strict=True):
        changed = snapshot.apply(patch)
        if changed is None:
            break
        stream += _commit(patch, changed, ref=ref, mark=done + 1, base=f":{done}" if done else parent)
        done += 1
    if done:
        store.output("fast-import", "--quiet", "--force", "--date-format=raw", stdin=b"".join([*stream, b"done\n"]))
    return done


def commit_object(patch: Patch, *, tree: str, parent: str) -> bytes:
    """The commit of a patch as git stores it."""
    return b"tree %s\nparent %s\n%s\n%s" % (tree.encode(), parent.encode(), _who(patch), _message(patch))


def data(content: bytes) -> bytes:
    """A block of ``git fast-import``."""
    return b"data %d\n%s\n" % (len(content), content)


def quoted(path: str) -> bytes:
    """A path for ``git fast-import``."""
    return b'"%s"' % path.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "surrogateescape")


def _commit(patch: Patch, changed: dict[str, File | None], *, ref: str, mark: int, base: str) -> list[bytes]:
    parts = [b"commit %s\nmark :%d\n%s" % (ref.encode(), mark, _who(patch)), data(_message(patch))]
    parts.append(b"from %s\n" % base.encode())
    for path, file in changed.items():
        if file is None:
            parts.append(b"D %s\n" % quoted(path))
        else:
            content = data(file.text.encode("utf-8", "surrogateescape"))
            parts.append(b"M %s inline %s\n%s" % (file.mode.encode(), quoted(path), content))
    return parts


def _who(patch: Patch) -> bytes:
    """Author and date from the patch; the committer is fixed, with the same date."""
    name, address = author_of(patch)
    date = git_date(patch)
    return f"author {name} <{address}> {date}\ncommitter {_COMMITTER} {date}\n".encode()


def _message(patch: Patch) -> bytes:
    return commit_message(patch).encode("utf-8", "surrogateescape")


def _listing(store: Git, commit: str) -> dict[str, tuple[str, str]]:
    """Mode and blob by path."""
    entries: dict[str, tuple[str, str]] = {}
    for line in (
        store.output("ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "surrogateescape").split("\0")
    ):
        meta, _, path = line.partition("\t")
        if path:
            mode, _, blob = meta.split(" ")
            entries[path] = (mode, blob)
    return entries
