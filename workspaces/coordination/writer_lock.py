"""The writer lock: decides which process changes a tree, and to which author changes are attributed.

Several turns, people and processes share one live tree. An editor or a bash command cannot compare and
set. So every namespace has one lock file that all processes respect (flock: the kernel releases it when its
holder dies). Before the holder changes the tree, it writes its *intent* into the file: its author and the
paths that it is about to change. Releasing the lock empties the file. A process that takes the lock and
finds an intent knows that the former holder died inside. It attributes the uncommitted changes of those
paths to that author. So an intent stays in the file until it was handled, however often processes die.

A process that wants the lock first takes a second lock, the queue, and releases it once it has the first.
So only one process polls the lock, and a writer that returns at once does not overtake the waiting ones.
Without the queue some of sixteen busy writers waited for longer than WAIT_S, although none held the lock
for longer than milliseconds. Only one thread of a process waits in the queue. The other threads wait for
that thread: they poll nothing, and have no file open.

The lock is not reentrant. It is held for milliseconds, by a command for its duration.
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
"""Three orders of magnitude longer than any API write: a caller that waits so long waits for a command."""

_QUEUE_PAUSE_S_MAX = 0.02
_PAUSE_S_MAX = 0.002
"""Shorter than the pause in the queue, because only the first of the queue polls the lock."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The author and the paths of a coming change. `paths` is None if any path may change."""

    author: Author
    paths: tuple[WorkspacePath, ...] | None


class HeldLock:
    """The writer lock while this process holds it."""

    def __init__(self, fd: int, who: str) -> None:
        self._fd = fd
        self._who = who
        self.left_behind = _read_intent(fd)
        """The intent of a former holder that died; None if it ended normally."""
        self._note(self.left_behind)

    def intend(self, author: Author, paths: Sequence[WorkspacePath] | None) -> None:
        """Declare the coming change. It replaces an earlier declaration."""
        self._note(Intent(author, None if paths is None else tuple(paths)))

    def fulfilled(self) -> None:
        """Clear the declared intent, because a revision contains all its changes."""
        self.left_behind = None
        self._note(None)

    def _note(self, intent: Intent | None) -> None:
        record = {"author": asdict(intent.author), "paths": intent.paths} if intent else None
        note = {"who": self._who, "pid": os.getpid(), "intent": record}
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
        """Wait for the lock and hold it during the context. `who` names the holder.

        Raises: WorkspaceBusy, naming the holder, after `wait_s` or if too many calls wait.
        """
        with ExitStack() as stack:
            fd = self._acquire(stack, time.monotonic() + wait_s)
            yield HeldLock(fd, who)
            os.ftruncate(fd, 0)  # not after an exception: its intent may not be committed

    def _acquire(self, stack: ExitStack, deadline: float) -> int:
        """Return the lock file, locked. It is closed with `stack`."""
        with _first_thread(self._file, deadline) as is_first:
            fd = stack.enter_context(open_lock_file(self._file))
            with open_lock_file(self._queue) as queue:
                is_ours = (
                    is_first
                    and try_lock(queue, deadline, _QUEUE_PAUSE_S_MAX)
                    and try_lock(fd, deadline, _PAUSE_S_MAX)
                )
        if not is_ours:
            note = _read(fd)
            who = note.get("who", "another process")
            raise WorkspaceBusy("the workspace", holder=who, process=note.get("pid"))
        return fd


_FIRST: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
"""One lock for each lock file that threads of this process wait for.

Two threads that arrive at the same instant may make two locks. Then both wait in the queue, which does no
harm.
"""

os.register_at_fork(after_in_child=_FIRST.clear)


@contextmanager
def _first_thread(file: Path, deadline: float) -> Generator[bool]:
    """Yield True if the caller became, in time, the one thread of this process that waits in the queue."""
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
def open_lock_file(file: Path) -> Generator[int]:
    """Yield the open lock file. Closing it releases its lock."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise as_failure(error, file.name) from error
    try:
        yield fd
    finally:
        os.close(fd)


def try_lock(fd: int, deadline: float, pause_s_max: float, how: int = fcntl.LOCK_EX) -> bool:
    """Lock the file. Return True if that succeeded in time."""
    if _is_locked(fd, how):
        return True
    if time.monotonic() >= deadline:
        return False
    with waiting() as may_wait:
        return may_wait and _is_locked_by(deadline, fd, how, pause_s_max)


def _is_locked_by(deadline: float, fd: int, how: int, pause_s_max: float) -> bool:
    """Try repeatedly to lock the file, at growing intervals. Return False after the deadline."""
    pause = 0.0005
    while not _is_locked(fd, how):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the waiting processes
        pause = min(pause * 2, pause_s_max)
    return True


def _is_locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> dict[str, Any]:
    """Return the note in the file. Bytes after it are the rest of a longer note that was not truncated."""
    text = os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")
    try:
        note, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # not held, or the holder died or is at work while writing the note
        return {}
    return cast("dict[str, Any]", note) if isinstance(note, dict) else {}


def _read_intent(fd: int) -> Intent | None:
    record = _read(fd).get("intent")
    if record is None:
        return None
    try:
        paths = record["paths"]
        return Intent(
            Author(**record["author"]),
            None if paths is None else tuple(WorkspacePath(path) for path in paths),
        )
    except (LookupError, TypeError, Refused):  # written by another version of the program
        return None
