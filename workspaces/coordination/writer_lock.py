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
for longer than milliseconds. Of one process only one thread waits in the queue. The others wait for
that thread: they look out for nothing, and have no file open.

The lock is not reentrant; it is held for milliseconds, by a command for its duration.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

from workspaces.coordination.wait_hook import waiting
from workspaces.errors import Refused, WorkspaceBusy
from workspaces.localfs.safe_open import as_failure
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


class HeldLock:
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
    def hold(self, who: str, *, wait_s: float = WAIT_S) -> Generator[HeldLock]:
        """Wait for the lock. WorkspaceBusy, naming the holder, after `wait_s`, or when too many wait."""
        with ExitStack() as held:
            fd = self._acquire(held, time.monotonic() + wait_s)
            yield HeldLock(fd, who)
            os.ftruncate(fd, 0)  # not when an exception leaves: its intent may be unfulfilled

    def _acquire(self, held: ExitStack, deadline: float) -> int:
        """Return the lock file, locked. It is closed with `held`."""
        with _first_here(self._file, deadline) as is_first:
            fd = held.enter_context(opened(self._file))
            with opened(self._queue) as queue:
                is_ours = (
                    is_first
                    and locked(queue, deadline, _QUEUE_PAUSE_S_MAX)
                    and locked(fd, deadline, _PAUSE_S_MAX)
                )
        if not is_ours:
            note = _read(fd)
            who = note.get("who", "another process")
            raise WorkspaceBusy("the workspace", holder=who, process=note.get("pid"))
        return fd


_FIRST: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
"""Of each lock file that threads of this process wait for. Two threads that come at the same instant may make
two locks. Then both wait in the queue, which does no harm."""

os.register_at_fork(after_in_child=_FIRST.clear)


@contextmanager
def _first_here(file: Path, deadline: float) -> Generator[bool]:
    """Yield whether the caller became, in time, the one thread of this process that waits in the queue."""
    first = _FIRST.get(file)
    if first is None:
        first = _FIRST[file] = threading.Lock()
    is_first = first.acquire(blocking=False)
    if not is_first:
        with waiting() as may_wait:
            wait_s = max(0.0, deadline - time.monotonic())
            is_first = may_wait and first.acquire(timeout=wait_s)
    try:
        yield is_first
    finally:
        if is_first:
            first.release()


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
    if _is_locked(fd, how):
        return True
    if time.monotonic() >= deadline:
        return False
    with waiting() as may_wait:
        return may_wait and _is_locked_by(deadline, fd, how, pause_s_max)


def _is_locked_by(deadline: float, fd: int, how: int, pause_s_max: float) -> bool:
    """Try again and again, at longer and longer intervals."""
    pause = 0.0005
    while not _is_locked(fd, how):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the waiters
        pause = min(pause * 2, pause_s_max)
    return True


def _is_locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
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
