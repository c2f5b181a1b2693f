"""The writer lock: who changes a tree, and who gets the blame for what is found changed.

Several turns, people and processes share one live tree, and an editor or a bash command knows no
compare-and-set. So every namespace has one lock file that all processes respect (flock: the kernel
lets go of it when its holder dies). Before the holder touches the tree it writes its *intent* into
the file: who it is and which paths it is about to change. Letting go empties the file. Whoever takes
the lock and finds an intent knows that the former holder died inside, and attributes what is dirty
there to it; an intent therefore stays in the file until it was dealt with, however often we die.

Whoever wants the lock first takes a second one, the queue, and lets go of it once it has the first:
so one alone looks out for the lock, and a writer that comes again at once does not overtake those who
wait. Without it, of sixteen busy writers some waited for longer than WAIT_S while nobody held the lock
for longer than milliseconds.

The lock is not reentrant; it is held for milliseconds, by a command for its duration.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from workspaces.beneath import as_failure
from workspaces.errors import Refused, WorkspaceBusy
from workspaces.paths import WorkspacePath
from workspaces.revision import Author

WAIT_S = 10.0
"""Longer than any API write by three orders of magnitude: what waits so long waits for a command."""

_QUEUE_PAUSE_S_MAX = 0.02
_PAUSE_S_MAX = 0.002
"""Shorter, because only the first of the queue waits so."""


@dataclass(frozen=True, slots=True)
class Intent:
    """`paths` None: anything in the tree."""

    author: Author
    paths: tuple[WorkspacePath, ...] | None


class Held:
    """The lock, while it is held."""

    def __init__(self, fd: int, who: str) -> None:
        self._fd = fd
        self._who = who
        self.left_behind = _read_intent(fd)
        """What the former holder had declared when it died; None when it ended well."""
        self._note(self.left_behind)

    def intend(self, author: Author, paths: Sequence[WorkspacePath] | None) -> None:
        """Declare what is about to be changed, replacing what was declared before."""
        self._note(Intent(author, None if paths is None else tuple(paths)))

    def fulfilled(self) -> None:
        """All that was declared stands in a revision."""
        self.left_behind = None
        self._note(None)

    def _note(self, intent: Intent | None) -> None:
        told = {"author": asdict(intent.author), "paths": intent.paths} if intent else None
        note = {"who": self._who, "pid": os.getpid(), "intent": told}
        data = json.dumps(note).encode()
        try:
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
        except OSError as error:
            raise as_failure(error, "the writer lock") from error


class WriterLock:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._queue = file.with_suffix(".queue")

    @contextmanager
    def hold(self, who: str, *, wait_s: float = WAIT_S) -> Generator[Held]:
        """Wait for the lock; WorkspaceBusy, naming the holder, after `wait_s`."""
        with opened(self._file) as fd:
            self._acquire(fd, time.monotonic() + wait_s)
            yield Held(fd, who)
            os.ftruncate(fd, 0)  # not when an exception leaves: its intent may be unfulfilled

    def _acquire(self, fd: int, deadline: float) -> None:
        with opened(self._queue) as queue:
            is_ours = locked(queue, deadline, _QUEUE_PAUSE_S_MAX) and locked(
                fd, deadline, _PAUSE_S_MAX
            )
        if not is_ours:
            note = _read(fd)
            who = note.get("who", "another process")
            raise WorkspaceBusy("the workspace", holder=who, process=note.get("pid"))


@contextmanager
def opened(file: Path) -> Generator[int]:
    """A lock file; closing it lets go of its lock."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise as_failure(error, file.name) from error
    try:
        yield fd
    finally:
        os.close(fd)


def locked(fd: int, deadline: float, pause_s_max: float, how: int = fcntl.LOCK_EX) -> bool:
    """Whether it could be locked in time."""
    pause = 0.0005
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the waiters
            pause = min(pause * 2, pause_s_max)
            continue
        return True


def _read(fd: int) -> dict[str, Any]:
    """The note. What follows it is the end of a longer one, whose truncation did not come to pass."""
    text = os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")
    try:
        note, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # nobody holds it, or the holder died, or is at work, in the middle of it
        return {}
    return cast("dict[str, Any]", note) if isinstance(note, dict) else {}


def _read_intent(fd: int) -> Intent | None:
    noted = _read(fd).get("intent")
    if noted is None:
        return None
    try:
        paths = noted["paths"]
        return Intent(
            Author(**noted["author"]),
            None if paths is None else tuple(WorkspacePath(path) for path in paths),
        )
    except (LookupError, TypeError, Refused):  # not in the words of this version of the program
        return None
