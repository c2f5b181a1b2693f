"""Watch for manual edits: what a person saves becomes a revision a moment later, without any command.

    the system's events ──► mark ──► quiet for QUIET_S ──► commit (under the writer lock)
    start · every SCAN_S · events lost ──► mark all ──────┘

An event only ever marks a workspace as dirty. A scan then finds what has changed. So one event too many
costs a scan, and one event too few costs time. Neither loses a change: the next scan makes a revision of
everything that is there. An editor saves a file in several steps (a backup, a new file, a rename). These
lie within QUIET_S of each other and make one revision.

While another process holds the writer lock, it owns the tree, and nothing is committed here. Its own commit
records whose changes those are. Changes left after that are tried again.

Deliberately absent: any state that has to be correct. A watcher may be off, killed, or blind. That changes
when revisions are made, not which.
"""

from __future__ import annotations

import errno
import logging
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from workspaces.clock import Clock
from workspaces.errors import Busy, Failure, NotFound
from workspaces.ids import Namespace
from workspaces.revision import Revision
from workspaces.workspace.workspace import Workspace

# watchdog sees a directory twice if it is made while the watch begins, and prints a warning.
warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)

QUIET_S = 0.3
"""Seconds without an event before a commit. Longer than the time between the steps of one save, shorter than
a person waits."""

DELAY_S_MAX = 5.0
"""Longest delay of a commit, for a program that never stops saving."""

SCAN_S = 60.0
"""Longest time that a change stays unseen if its event was lost. [A scan of 10 000 files takes 0.2 s.]"""

BUSY_WAIT_S = 1.0
"""Longest wait for the writer lock. Long enough among writers that hold it for milliseconds. A process that
holds it longer runs a command, and other workspaces should not wait for that."""

Mark = Callable[[str], None]
"""Called with the path of an entry that was made, saved, moved or deleted."""

Recheck = Callable[[], None]
"""Try to watch directories that are not watched yet. Raises OSError when the system does not allow more
watches, so that some directories may not be watched."""

ObserveDirectory = Callable[[Path, Mark, Callable[[], None]], AbstractContextManager[Recheck]]
"""Mark changes below a directory while the context is open. The last argument is called when events were
lost. Raises OSError when the system does not allow the watch."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A revision was made of a person's manual edits."""

    workspace: Workspace
    revision: Revision


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """A failure that keeps changes from becoming revisions at once. If `workspace` is None it affects all of
    them."""

    workspace: Workspace | None
    reason: str
    remedy: str | None


WatchEvent = Saved | WatchFailed


@dataclass(slots=True)
class _Dirty:
    first: float
    last: float

    @property
    def due(self) -> float:
        return min(self.last + QUIET_S, self.first + DELAY_S_MAX)


class Watch:
    """A watcher of manual edits. Any thread may mark; one thread calls `step` and `run`."""

    def __init__(
        self,
        trees: Path,
        workspaces: Callable[[], Iterable[Workspace]],
        clock: Clock,
        on_event: Callable[[WatchEvent], None],
    ) -> None:
        """`trees` is the directory that holds each workspace's directory, named by its namespace.
        `workspaces` returns the workspaces to watch. It is called again at every scan and when an unknown one
        changes."""
        self._trees = trees
        self._workspaces = workspaces
        self._clock = clock
        self._on_event = on_event
        self._known: dict[str, Workspace] = {}
        self._dirty: dict[str, _Dirty] = {}
        self._lock = threading.Lock()
        self._scan_at = clock.monotonic()
        self._reported: dict[str | None, str] = {}
        self._check: Recheck = lambda: None
        self._wake = threading.Event()
        self._stopped = False

    def changed(self, path: str) -> None:
        """Mark the workspace of a path below `trees`."""
        try:
            relative = Path(path).relative_to(self._trees)
        except ValueError:
            return
        if relative.parts:
            self.mark(relative.parts[0])

    def mark(self, namespace: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            dirty = self._dirty.get(namespace)
            if dirty is not None:
                dirty.last = now
                return
            self._dirty[namespace] = _Dirty(now, now)
        self._wake.set()

    def mark_all(self) -> None:
        """Scan everything at the next step, because events were lost or may have been."""
        with self._lock:
            self._scan_at = self._clock.monotonic()
        self._wake.set()

    def is_marked(self, namespace: Namespace) -> bool:
        with self._lock:
            return namespace in self._dirty

    def step(self) -> float:
        """Commit the workspaces that are due. Return the seconds until the next step has work."""
        self._scan_if_due()
        now = self._clock.monotonic()
        with self._lock:
            due = [namespace for namespace, dirty in self._dirty.items() if dirty.due <= now]
            for namespace in due:
                del self._dirty[namespace]
        if any(namespace not in self._known for namespace in due):
            self._load_workspaces()
        for namespace in due:
            if namespace in self._known:  # else it is another account's, or not complete yet
                self._commit(namespace, self._known[namespace])
        with self._lock:
            times = [dirty.due for dirty in self._dirty.values()]
        return max(0.0, min([*times, self._scan_at]) - self._clock.monotonic())

    def run(self, observe_directory: ObserveDirectory | None = None) -> None:
        """Watch until `stop` is called. May be called again after a failure."""
        self.mark_all()
        with ExitStack() as stack:
            try:
                observing = (observe_directory or observe)(self._trees, self.changed, self.mark_all)
                self._check = stack.enter_context(observing)
            except OSError as error:
                self._report_unwatched(error)
            while not self._stopped:
                self._wake.clear()
                pause = self.step()
                self._wake.wait(pause)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def _scan_if_due(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now < self._scan_at:
                return
            self._scan_at = now + SCAN_S
        try:
            self._check()
        except OSError as error:
            self._report_unwatched(error)
        self._load_workspaces()
        for namespace in self._known:
            if not self.is_marked(Namespace(namespace)):
                self.mark(namespace)

    def _load_workspaces(self) -> None:
        try:
            self._known = {workspace.namespace: workspace for workspace in self._workspaces()}
        except Failure as failure:
            self._report_failure(None, None, str(failure), failure.remedy)

    def _commit(self, namespace: str, workspace: Workspace) -> None:
        """Commit a workspace's manual edits. Look for edits first, so that the lock is taken only if there
        are any."""
        try:
            if not workspace.edits.pending():
                return
            before = workspace.history.tip()
            workspace.edits.commit(wait_s=BUSY_WAIT_S)
            if workspace.history.tip() != before:
                self._on_event(Saved(workspace, workspace.log(limit=1)[0]))
            self._reported.pop(namespace, None)
        except Busy:  # another process holds the lock: try again later
            self.mark(namespace)
        except NotFound:
            self._known.pop(namespace, None)  # deleted just now
        except Failure as failure:
            self._report_failure(namespace, workspace, str(failure), failure.remedy)

    def _report_unwatched(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        message = (
            f"some changes cannot be watched ({reason}): a scan finds them every {SCAN_S:.0f} s"
        )
        self._report_failure(None, None, message, _REMEDIES.get(error.errno or 0))

    def _report_failure(
        self, key: str | None, workspace: Workspace | None, reason: str, remedy: str | None
    ) -> None:
        """Report a failure once, not every minute. The next scan tries again in any case."""
        if self._reported.get(key) != reason:
            self._reported[key] = reason
            self._on_event(WatchFailed(workspace, reason, remedy))


GONE_MAX = 100
"""Directories gone before everything is watched anew. A deleted workspace moves to the trash, and watchdog
keeps the watches of a directory that was moved out. They take memory, and the system limits their number."""

_REMEDIES = {
    errno.ENOSPC: "allow more with `sysctl fs.inotify.max_user_watches=524288`",
    errno.EMFILE: "allow more with `sysctl fs.inotify.max_user_instances=512`",
}


@contextmanager
def observe(directory: Path, mark: Mark, lost: Callable[[], None]) -> Generator[Recheck]:
    """Watch with the system's own notifications. Files behind a link are not watched."""
    observer = Observer()
    marking = _Marking(mark)

    def schedule() -> ObservedWatch:
        return observer.schedule(
            marking, str(directory), recursive=True, event_filter=list(_EVENTS)
        )

    watched = schedule()

    def check() -> None:
        """Try a watch on a directory that was not watched before. watchdog does not report a directory
        further below that it cannot watch. Watch anew if many directories are gone."""
        nonlocal watched
        observer.unschedule(observer.schedule(marking, str(directory.parent)))
        if marking.directories_gone >= GONE_MAX:
            marking.directories_gone = 0
            observer.unschedule(watched)
            watched = schedule()
            lost()  # what happened in between

    logger = logging.getLogger("watchdog.observers")
    warned = _Warned(lost)
    logger.addHandler(warned)
    try:
        observer.start()
        try:
            yield check
        finally:
            observer.stop()
            observer.join()
    finally:
        logger.removeHandler(warned)


_EVENTS = (
    FileClosedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
)


class _Marking(FileSystemEventHandler):
    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self.directories_gone = 0
        """Deleted or moved out since the watch began."""

    def on_any_event(self, event: FileSystemEvent) -> None:
        if isinstance(event, DirDeletedEvent):
            self.directories_gone += 1
        for path in (event.src_path, event.dest_path):
            if path:
                self._mark(path if isinstance(path, str) else path.decode(errors="replace"))


class _Warned(logging.Handler):
    """A log handler that detects lost events. When the kernel's queue is full, watchdog reports it only in
    its log."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self._lost()
