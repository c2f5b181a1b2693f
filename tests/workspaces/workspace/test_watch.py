"""Watching for manual edits. The clock is manual; only the notifications of the system are waited for."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workspaces.actors import opened_at, start
from tests.workspaces.conftest import AGENT, CALLER
from tests.workspaces.editors import EDITORS, Editor
from workspaces.clock import ManualClock, SystemClock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import Unavailable
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.ids import WorkspaceId
from workspaces.workspace.watch import (
    DELAY_S_MAX,
    GONE_MAX,
    QUIET_S,
    SCAN_S,
    Mark,
    Recheck,
    Saved,
    Watch,
    WatchEvent,
    WatchFailed,
    observe,
)
from workspaces.workspace.workspace import Workspace

SENTINEL = "fs-sentinel"
EVENT_S_MAX = 60.0


class Watched:
    """A watch whose clock is moved by hand, and what it told."""

    def __init__(self, home: Home, clock: ManualClock, workspaces: Workspaces) -> None:
        self.news: list[WatchEvent] = []
        self.home = home
        self._clock = clock
        self._seen = threading.Event()
        self.watch = Watch(
            home.trees,
            lambda: map(workspaces.open, workspaces.list(private=True)),
            clock,
            self.news.append,
        )

    def after(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.watch.step()

    def quiet(self) -> None:
        """Everything that was marked by now has settled, and the scan of the start is done."""
        self.watch.step()
        self.after(QUIET_S)

    @contextmanager
    def notified(self) -> Generator[None]:
        (self.home.trees / SENTINEL).mkdir(exist_ok=True)
        with observe(self.home.trees, self._mark, self.watch.mark_all):
            yield

    def all_events_arrived(self) -> None:
        """They arrive in order: what is behind the sentinel's came before it."""
        self._seen.clear()
        (self.home.trees / SENTINEL / "x").write_text("x")
        assert self._seen.wait(EVENT_S_MAX)

    def _mark(self, path: str) -> None:
        if f"/{SENTINEL}" in path:
            self._seen.set()
        else:
            self.watch.changed(path)


@pytest.fixture
def watched(
    home: Home, clock: ManualClock, open_workspaces: Callable[[], Workspaces], workspace: Workspace
) -> Watched:
    return Watched(home, clock, open_workspaces())


def told(workspace: Workspace) -> list[tuple[str, tuple[str, ...]]]:
    return [(revision.author, revision.paths) for revision in workspace.log()]


# --- what editors do --------------------------------------------------------------------------------


@pytest.mark.parametrize("editor", EDITORS, ids=lambda editor: editor.__name__)
def test_an_editor_save_is_a_single_revision_by_the_person(
    editor: Editor, watched: Watched, workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "# Memory\n", by=AGENT)
    watched.quiet()
    with watched.notified():
        for number in (1, 2):
            for _ in editor(root / "MEMORY.md", f"# Memory\n\n- {number}\n"):
                watched.all_events_arrived()
                watched.after(QUIET_S)
    assert told(workspace) == [("owner", ("MEMORY.md",))] * 2 + [("helper", ("MEMORY.md",))]
    assert workspace.read("MEMORY.md", view=workspace.log()[0].id).text == "# Memory\n\n- 2\n"
    assert [type(news) for news in watched.news] == [Saved, Saved]


@pytest.mark.skipif(shutil.which("vim") is None, reason="needs vim")
@pytest.mark.parametrize("options", ["", "set backup", "set backupcopy=yes", "set nowritebackup"])
def test_a_save_with_the_real_vim_is_a_single_revision(
    options: str, watched: Watched, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    workspace.write("notes/plan.md", "one\n", by=AGENT)
    watched.quiet()
    commands = [f"+{options}", "+set swapfile updatecount=1", "+normal Gotwo", "+wq"]
    with watched.notified():
        subprocess.run(
            ["vim", "-u", "NONE", "-N", "-es", *commands, str(root / "notes/plan.md")],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
            timeout=EVENT_S_MAX,
            check=True,
        )
        watched.all_events_arrived()
        watched.after(QUIET_S)
    assert told(workspace) == [("owner", ("notes/plan.md",)), ("helper", ("notes/plan.md",))]
    assert workspace.read("notes/plan.md").text == "one\ntwo\n"


def test_a_save_in_several_steps_is_committed_after_the_quiet_time(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "# Memory\n", by=AGENT)
    watched.quiet()
    for step in (
        lambda: (root / "MEMORY.md").rename(root / "MEMORY.old"),
        lambda: (root / "MEMORY.md").write_text("# Memory\n\n- new\n"),
        (root / "MEMORY.old").unlink,
    ):
        step()
        watched.watch.mark(workspace.namespace)
        watched.after(QUIET_S * 0.9)
    assert len(workspace.log()) == 1
    watched.after(QUIET_S * 0.1)
    assert told(workspace) == [("owner", ("MEMORY.md",)), ("helper", ("MEMORY.md",))]


def test_continuous_saves_are_committed_after_the_maximum_delay(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    watched.quiet()
    saves = int(DELAY_S_MAX / QUIET_S) * 3
    for number in range(saves):
        (root / "log.md").write_text(f"{number}\n")
        watched.watch.mark(workspace.namespace)
        watched.after(QUIET_S / 2)
    assert len(workspace.log()) == 1


def test_directories_moved_into_and_out_of_the_tree_are_committed(
    watched: Watched, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "brought/deep").mkdir(parents=True)
    (tmp_path / "brought/deep/a.md").write_text("a")
    watched.quiet()
    with watched.notified():
        (tmp_path / "brought").rename(root / "notes")
        watched.all_events_arrived()
        watched.after(QUIET_S)
        (root / "notes/deep/b.md").write_text("b")
        watched.all_events_arrived()
        watched.after(QUIET_S)
        (root / "notes").rename(tmp_path / "taken")
        watched.all_events_arrived()
        watched.after(QUIET_S)
    assert [paths for _, paths in reversed(told(workspace))] == [
        ("notes/deep/a.md",),
        ("notes/deep/b.md",),
        ("notes/deep/a.md", "notes/deep/b.md"),
    ]
    assert workspace.files() == []


# --- who holds the tree -----------------------------------------------------------------------------


def test_the_watch_commits_nothing_while_the_writer_lock_is_held(
    watched: Watched, workspace: Workspace, root: Path, home: Home
) -> None:
    watched.quiet()
    with WriterLock(home.lock(workspace.namespace)).hold("somebody"):
        (root / "a.md").write_text("by hand\n")
        watched.watch.mark(workspace.namespace)
        watched.after(QUIET_S)
        assert workspace.history.tip() is None
    watched.after(QUIET_S)
    assert told(workspace) == [("owner", ("a.md",))]


def test_changes_of_a_command_are_not_committed_as_manual_edits(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    watched.quiet()
    with workspace.command(AGENT):
        (root / "a.md").write_text("by a command\n")
        watched.watch.mark(workspace.namespace)
        watched.after(QUIET_S)
    watched.after(QUIET_S)
    assert told(workspace) == [("helper", ("a.md",))]
    assert watched.news == []


def test_a_write_through_the_workspace_is_not_reported_as_a_manual_edit(
    watched: Watched, workspace: Workspace
) -> None:
    watched.quiet()
    with watched.notified():
        workspace.write("a.md", "a", by=CALLER)
        watched.all_events_arrived()
        assert watched.watch.is_marked(workspace.namespace)
        watched.after(QUIET_S)
    assert told(workspace) == [("caller", ("a.md",))]
    assert watched.news == []


# --- events that never come -------------------------------------------------------------------------


def test_a_manual_edit_before_the_start_is_found_by_the_first_scan(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    (root / "a.md").write_text("a")
    watched.quiet()
    assert told(workspace) == [("owner", ("a.md",))]


def test_a_manual_edit_without_a_notification_is_found_by_the_next_scan(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    watched.quiet()
    (root / "a.md").write_text("a")
    watched.after(SCAN_S / 2)
    assert workspace.history.tip() is None
    watched.after(SCAN_S / 2)
    watched.after(QUIET_S)
    assert told(workspace) == [("owner", ("a.md",))]


def test_a_workspace_created_after_the_start_is_watched(
    watched: Watched, open_workspaces: Callable[[], Workspaces], home: Home
) -> None:
    watched.quiet()
    with watched.notified():
        private = open_workspaces().private(WorkspaceId("user:usr_1"), create=True)
        assert private is not None
        (home.tree(private.namespace) / "a.md").write_text("a")
        watched.all_events_arrived()
        watched.after(QUIET_S)
    assert told(private) == [("owner", ("a.md",))]


def test_a_deleted_workspace_is_no_longer_watched(
    watched: Watched, workspace: Workspace, open_workspaces: Callable[[], Workspaces], root: Path
) -> None:
    watched.quiet()
    (root / "a.md").write_text("a")
    watched.watch.mark(workspace.namespace)
    open_workspaces().delete("notes")
    watched.after(QUIET_S)
    watched.after(SCAN_S)
    assert watched.news == []


def test_the_history_matches_the_tree_despite_lost_notifications_and_busy_writers(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    """Random saves, deletions and API writes, of which half are never marked: after one scan the
    history has the tree as it is, and every save that a step could see."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"n{number}.md" for number in range(5)]
    watched.quiet()
    for number in range(120):
        file = root / chance.choice(names)
        match chance.randrange(4):
            case 0:
                file.unlink(missing_ok=True)
            case 1:
                workspace.write(file.name, f"api {number}\n", by=CALLER)
            case _:
                for _ in chance.choice(EDITORS)(file, f"hand {number}\n") if file.exists() else ():
                    pass
                file.write_text(f"hand {number}\n")
        if chance.random() < 0.5:
            watched.watch.mark(workspace.namespace)
        watched.after(chance.choice((0.01, QUIET_S)))
    watched.after(SCAN_S)
    watched.after(QUIET_S)
    tip = workspace.history.tip()
    kept = {
        name: workspace.read(name, view=tip or "").text for name in workspace.files(view=tip or "")
    }
    assert kept == {name: (root / name).read_text() for name in names if (root / name).exists()}
    assert workspace.edits.commit() == tip
    assert {author for author, _ in told(workspace)} == {"owner", "caller"}


def test_an_overflow_of_the_notification_queue_hides_no_manual_edit(tmp_path: Path) -> None:
    """The watcher is stopped, the queue overflows with one workspace's events, and the event of
    another one's edit is lost. Its own scan is a day away: only the overflow can make it look."""
    limit = Path("/proc/sys/fs/inotify/max_queued_events")
    if not limit.exists() or int(limit.read_text()) > 100_000:
        pytest.skip("the queue is too long to fill in a test")
    workspace = opened_at(tmp_path / "home")
    flooded = tmp_path / "home/workspaces/fs-flooded"
    flooded.mkdir()
    with start(watching, str(tmp_path / "home"), out=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "watching\n"
            os.kill(process.pid, signal.SIGSTOP)
            for number in range(int(limit.read_text()) + 1000):
                os.close(os.open(flooded / str(number % 2), os.O_WRONLY | os.O_CREAT, 0o600))
            (workspace.root / "a.md").write_text("lost in the flood\n")
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout.readline() == "settled a.md: +1 −0 · lost in the flood\n"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def watching(home: str) -> None:
    """A watcher that scans once, and says so."""
    import workspaces.workspace.watch

    workspaces.workspace.watch.SCAN_S = 86_400.0
    workspace = opened_at(home)

    def tell(news: WatchEvent) -> None:
        told = f"settled {news.revision.subject}" if isinstance(news, Saved) else news.reason
        print(told, flush=True)

    clock = SystemClock()
    watch = Watch(Home(Path(home)).trees, lambda: [workspace], clock, tell)

    @contextmanager
    def look(trees: Path, mark: Mark, lost: Callable[[], None]) -> Generator[Recheck]:
        with observe(trees, mark, lost) as check:
            watch.step()
            while watch.is_marked(workspace.namespace):
                time.sleep(min(watch.step(), QUIET_S))
            print("watching", flush=True)
            yield check

    timer = threading.Timer(EVENT_S_MAX, watch.stop)
    timer.daemon = True
    timer.start()
    watch.run(look)


def inotify_watches() -> int:
    """How many directories the kernel watches for this process."""
    return sum(
        line.startswith("inotify wd:")
        for file in Path("/proc/self/fdinfo").iterdir()
        for line in _lines_of(file)
    )


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # closed meanwhile
        return []


def test_directories_moved_to_the_trash_are_watched_no_longer(tmp_path: Path) -> None:
    trees, trash = tmp_path / "trees", tmp_path / "trash"
    trees.mkdir()
    trash.mkdir()
    lost: list[bool] = []
    with observe(trees, lambda _: None, lambda: lost.append(True)) as check:
        before = inotify_watches()
        for number in range(GONE_MAX):
            (trees / str(number) / "notes").mkdir(parents=True)
            (trees / str(number)).rename(trash / str(number))
        until = time.monotonic() + EVENT_S_MAX
        while not lost and time.monotonic() < until:
            check()
            time.sleep(0.05)
        assert lost, "everything is scanned, because the watch was renewed"
        assert inotify_watches() <= before + 1


# --- a system that does not let us watch --------------------------------------------------------------


def test_without_notifications_the_watch_reports_a_failure_once_and_scans_periodically(
    watched: Watched, workspace: Workspace, root: Path
) -> None:
    @contextmanager
    def blind(*_: object) -> Generator[Callable[[], None]]:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")
        yield lambda: None

    watched.watch.stop()
    watched.watch.run(blind)
    (trouble,) = watched.news
    assert isinstance(trouble, WatchFailed)
    assert "inotify watch limit reached" in trouble.reason
    assert "max_user_watches" in (trouble.remedy or "")
    (root / "a.md").write_text("a")
    watched.after(SCAN_S)
    watched.after(QUIET_S)
    assert told(workspace) == [("owner", ("a.md",))]


RUNNING_OUT = """
import sys
from pathlib import Path
from workspaces.workspace.watch import observe
try:
    with observe(Path(sys.argv[1]), print, print) as check:
        check()
        Path("/proc/sys/user/max_inotify_watches").write_text("2")
        check()
except OSError as error:
    print(error.strerror)
"""


def test_a_watch_limit_reached_later_is_reported(tmp_path: Path) -> None:
    (tmp_path / "trees/a").mkdir(parents=True)
    command = ["unshare", "-Ur", sys.executable, "-c", RUNNING_OUT, str(tmp_path / "trees")]
    probe = ["unshare", "-Ur", "sh", "-c", "echo 9 > /proc/sys/user/max_inotify_watches"]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no user namespace of our own to set a limit in")
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=EVENT_S_MAX,
    )
    assert ended.stdout == "inotify watch limit reached\n", ended.stderr


def test_a_watch_failure_is_reported_once_and_edits_are_committed_after_recovery(
    home: Home, clock: ManualClock, workspace: Workspace, root: Path
) -> None:
    news: list[WatchEvent] = []
    fails = True

    def workspaces() -> list[Workspace]:
        if fails:
            raise Unavailable("records", "the disk is full", remedy="free some space")
        return [workspace]

    watch = Watch(home.trees, workspaces, clock, news.append)
    (root / "a.md").write_text("a")
    for _ in range(3):
        watch.step()
        clock.advance(SCAN_S)
    assert [one.reason for one in news if isinstance(one, WatchFailed)] == [
        "records: the disk is full"
    ]
    fails = False
    watch.step()
    clock.advance(QUIET_S)
    watch.step()
    assert told(workspace) == [("owner", ("a.md",))]


def test_a_duplicate_callback_warning_of_watchdog_is_suppressed() -> None:
    text = "Callback with id '1' already exists for watch x. It will be Overwritten."
    program = (
        f"import warnings, workspaces.workspace.watch; warnings.warn({text!r}, RuntimeWarning)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
