"""Watching: what a person saves becomes a revision a moment later, without anybody asking for it.

    the system's events ──► mark ──► quiet for SETTLE_S ──► settle (under the writer lock)
    start · every SCAN_S · events lost ──► mark all ──────┘

An event only ever marks a workspace as dirty. What has changed is then found by looking, so an event too
many costs a scan and an event too few costs time, never a change: everything that is there at the next
look becomes a revision. An editor saves a file in several steps (a backup, a new file, a rename); they lie
within SETTLE_S of each other and make one revision.

While somebody holds the writer lock the tree is theirs and nothing is committed here: their own commit
says whose the changes are. What is then left is tried again.

Deliberately absent: any state that would have to be right. A watcher that is off, was killed, or sees
nothing changes when revisions are made, not which.
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

from workspaces.clock import Clock
from workspaces.errors import Busy, Failure, NotFound
from workspaces.ids import Namespace
from workspaces.revision import Revision
from workspaces.workspace.workspace import Workspace

# watchdog hears of a directory twice that is made while it begins to watch, and tells the terminal so.
warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)

SETTLE_S = 0.3
"""Longer than the steps of one save lie apart, shorter than anybody waits for."""

SETTLE_S_MAX = 5.0
"""For one who never stops saving: so long changes wait for a quiet moment, and no longer."""

SCAN_S = 60.0
"""How long a change can stay unseen whose event was lost. [10 000 files are looked at in 0.2 s.]"""

BUSY_WAIT_S = 1.0
"""In line for the writer lock: long enough to be served among writers that hold it for milliseconds;
who holds it for longer runs a command, and other workspaces should not wait for that."""

Mark = Callable[[str], None]
"""Told the path of something that was made, saved, moved or deleted."""

Recheck = Callable[[], None]
"""OSError when the system does not let more directories be watched, so that some may not be."""

ObserveDirectory = Callable[[Path, Mark, Callable[[], None]], AbstractContextManager[Recheck]]
"""Sees to it that changes below a directory are marked until it is left; the last argument is told that
some were lost. OSError when the system does not let it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A revision was made of what somebody had changed by hand."""

    workspace: Workspace
    revision: Revision


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """Something keeps changes from becoming revisions at once; `workspace` None: all of them."""

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
        return min(self.last + SETTLE_S, self.first + SETTLE_S_MAX)


class Watch:
    """Marking is for any thread; `step` and `run` for one."""

    def __init__(
        self,
        trees: Path,
        workspaces: Callable[[], Iterable[Workspace]],
        clock: Clock,
        tell: Callable[[WatchEvent], None],
    ) -> None:
        """`trees`: the directory that holds the workspaces' own, each under its namespace.
        `workspaces`: those to settle; asked again at every scan, and when an unknown one changes."""
        self._trees = trees
        self._workspaces = workspaces
        self._clock = clock
        self._tell = tell
        self._known: dict[str, Workspace] = {}
        self._dirty: dict[str, _Dirty] = {}
        self._lock = threading.Lock()
        self._scan_at = clock.monotonic()
        self._told: dict[str | None, str] = {}
        self._check: Recheck = lambda: None
        self._wake = threading.Event()
        self._stopped = False

    def changed(self, path: str) -> None:
        """Something below the trees: its workspace is marked."""
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
        """At the next step everything is looked at: events were lost, or may have been."""
        with self._lock:
            self._scan_at = self._clock.monotonic()
        self._wake.set()

    def is_marked(self, namespace: Namespace) -> bool:
        with self._lock:
            return namespace in self._dirty

    def step(self) -> float:
        """Settle what is due. Returns in how many seconds there is something to do again."""
        self._scan_if_due()
        now = self._clock.monotonic()
        with self._lock:
            due = [namespace for namespace, dirty in self._dirty.items() if dirty.due <= now]
            for namespace in due:
                del self._dirty[namespace]
        if any(namespace not in self._known for namespace in due):
            self._learn()
        for namespace in due:
            if namespace in self._known:  # else another account's, or one in the making
                self._settle(namespace, self._known[namespace])
        with self._lock:
            times = [dirty.due for dirty in self._dirty.values()]
        return max(0.0, min([*times, self._scan_at]) - self._clock.monotonic())

    def run(self, look: ObserveDirectory | None = None) -> None:
        """Watch until `stop` is called. May be called again after it has failed."""
        self.mark_all()
        with ExitStack() as stack:
            try:
                looking = (look or observed)(self._trees, self.changed, self.mark_all)
                self._check = stack.enter_context(looking)
            except OSError as error:
                self._blind(error)
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
            self._blind(error)
        self._learn()
        for namespace in self._known:
            if not self.is_marked(Namespace(namespace)):
                self.mark(namespace)

    def _learn(self) -> None:
        try:
            self._known = {workspace.namespace: workspace for workspace in self._workspaces()}
        except Failure as failure:
            self._trouble(None, None, str(failure), failure.remedy)

    def _settle(self, namespace: str, workspace: Workspace) -> None:
        """Looked at first, so that the lock is not asked for when there is nothing to do."""
        try:
            if not workspace.pending():
                return
            before = workspace.tip()
            workspace.commit_edits(wait_s=BUSY_WAIT_S)
            if workspace.tip() != before:
                self._tell(Saved(workspace, workspace.log(limit=1)[0]))
            self._told.pop(namespace, None)
        except Busy:
            self.mark(namespace)
        except NotFound:
            self._known.pop(namespace, None)  # deleted in this moment
        except Failure as failure:
            self._trouble(namespace, workspace, str(failure), failure.remedy)

    def _blind(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        told = (
            f"not every change can be watched ({reason}): they are looked for every {SCAN_S:.0f} s"
        )
        self._trouble(None, None, told, _REMEDIES.get(error.errno or 0))

    def _trouble(
        self, key: str | None, workspace: Workspace | None, reason: str, remedy: str | None
    ) -> None:
        """Told once, not every minute: the next scan tries again in any case."""
        if self._told.get(key) != reason:
            self._told[key] = reason
            self._tell(WatchFailed(workspace, reason, remedy))


_REMEDIES = {
    errno.ENOSPC: "allow more with `sysctl fs.inotify.max_user_watches=524288`",
    errno.EMFILE: "allow more with `sysctl fs.inotify.max_user_instances=512`",
}


@contextmanager
def observed(directory: Path, mark: Mark, lost: Callable[[], None]) -> Generator[Recheck]:
    """The system's own notifications. What lies behind a link is not watched."""
    observer = Observer()
    marking = _Marking(mark)
    observer.schedule(
        marking,
        str(directory),
        recursive=True,
        event_filter=[
            FileClosedEvent,
            FileCreatedEvent,
            FileMovedEvent,
            FileDeletedEvent,
            DirCreatedEvent,
            DirMovedEvent,
            DirDeletedEvent,
        ],
    )

    def check() -> None:
        """A directory further below that cannot be watched is passed over without a word, so one that
        was not watched before is tried."""
        observer.unschedule(observer.schedule(marking, str(directory.parent)))

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


class _Marking(FileSystemEventHandler):
    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def on_any_event(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            if path:
                self._mark(path if isinstance(path, str) else path.decode(errors="replace"))


class _Warned(logging.Handler):
    """The kernel's queue was full and events are lost: watchdog tells this to its log alone."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self._lost()
