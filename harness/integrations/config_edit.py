"""Edits of another program's configuration: each one is shown before it is made, and can be undone exactly.

The home stores a note of each edit, with the text before and after. An undo restores the text of before if
nothing else has changed. Otherwise it removes what the edit added from the current text.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.integrations.integration import Integration, Use
from workspaces.errors import Conflict, NotFound, Unavailable

FILE_BYTES_MAX = 10 * 2**20


@dataclass(frozen=True, slots=True)
class Noted:
    """The note of an edit. `before` None: the file did not exist."""

    client: str
    file: str
    use: Use
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A planned edit of a file; `after` None: the file is removed."""

    file: Path
    before: str | None
    after: str | None
    noted: Noted | None
    """The note to be stored with the edit. None: nothing is left to undo."""

    @property
    def is_one(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        name = str(self.file)
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            "/dev/null" if self.before is None else name,
            "/dev/null" if self.after is None else name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


class Configurations:
    """The edits that this home made. `notes` is a directory of the home."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def use(self, client: Integration, file: Path, use: Use) -> FileEdit:
        """Plan the edit that makes this client use the workspace. It also undoes an earlier edit of the
        same file."""
        now = _read(file)
        noted = self.note(client, file)
        before = now if noted is None else _undone(client, noted, now)
        after = client.used(before or client.empty, use)
        return FileEdit(file, now, after, Noted(client.name, str(file), use, before, after))

    def undo(self, client: Integration, file: Path) -> FileEdit:
        """Plan the undo of an edit.

        Raises: NotFound if the file has no edit of this client.
        """
        noted = self.note(client, file)
        if noted is None:
            remedy = f"`{client.begin}` makes one"
            raise NotFound(f"change for {client.name} in", str(file), remedy=remedy)
        now = _read(file)
        return FileEdit(file, now, _undone(client, noted, now), None)

    def carry_out(self, client: Integration, change: FileEdit) -> None:
        """Make a planned edit.

        Raises: Conflict when the file changed since the edit was planned; Unavailable.
        """
        self.check_unchanged(change)
        if change.noted is not None:
            self.keep_note(client, change.file, change.noted)
        try:
            if change.after is None:
                change.file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # not empty: it holds other files too
                    change.file.parent.rmdir()
            else:
                change.file.parent.mkdir(parents=True, exist_ok=True)
                _write(change.file, change.after, 0o600)
        except OSError as error:
            raise Unavailable(str(change.file), error.strerror or str(error)) from error
        if change.noted is None:
            self.keep_note(client, change.file, None)

    def check_unchanged(self, change: FileEdit) -> None:
        """Raise Conflict if the file changed since the edit was planned."""
        if self.text(change.file) != change.before:
            raise Conflict("file", str(change.file), expected="what was shown", actual="another")

    def text(self, file: Path) -> str | None:
        """Return the text of a configuration. Return None if there is no such file.

        Raises: Unavailable.
        """
        return _read(file)

    def keep_note(self, client: Integration, file: Path, noted: Noted | None) -> None:
        """Store the note of an edit, or remove it.

        Raises: Unavailable.
        """
        note = self._note_file(client, file)
        try:
            if noted is None:
                note.unlink(missing_ok=True)
                return
            note.parent.mkdir(mode=0o700, exist_ok=True)
            _write(note, json.dumps(asdict(noted), indent=2), 0o600)
        except OSError as error:
            raise Unavailable(str(note), error.strerror or str(error)) from error

    def note(self, client: Integration, file: Path) -> Noted | None:
        """Return the note of an edit. Return None if there is none.

        Raises: Unavailable if it is damaged.
        """
        text = _read(self._note_file(client, file))
        if text is None:
            return None
        try:
            values: dict[str, Any] = json.loads(text)
            values["use"] = Use(**values["use"])
            return Noted(**values)
        except (ValueError, TypeError, LookupError) as error:
            remedy = (
                f"remove {self._note_file(client, file)}, and the entries that it names from {file}"
            )
            raise Unavailable(str(file), f"its note is damaged ({error})", remedy=remedy) from error

    def _note_file(self, client: Integration, file: Path) -> Path:
        digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:12]
        return self._notes / f"{client.name}-{digest}.json"


def _undone(client: Integration, noted: Noted, now: str | None) -> str | None:
    if now is None or now == noted.before:
        return now  # already undone
    if now == noted.after:
        return noted.before
    return client.unused(now, noted.use, noted.before or client.empty)


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    if len(data) > FILE_BYTES_MAX:
        raise Unavailable(str(file), f"has more than {FILE_BYTES_MAX:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unavailable(str(file), "is not UTF-8 text") from error


def _write(file: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all, with the permissions it had. A link stays a link, and its target
    is written."""
    file = file.resolve()
    with contextlib.suppress(FileNotFoundError):
        mode = file.stat().st_mode & 0o777
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.new")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(fd)
        unfinished.chmod(mode)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
