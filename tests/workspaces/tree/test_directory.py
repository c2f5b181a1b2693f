"""The live directory: SIGKILL, failing disks, flushes, and an agent that swaps directories for links."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.strace import ROOT, WAIT_S, environment, python, strace
from tests.workspaces.tree.blob_writer import NAME, NEW, NEW_FILE, OLD, content
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.localfs.safe_open import SafeRoot
from workspaces.localfs.staging import LEFTOVER_AGE_S, LOCK_NAME
from workspaces.tree.directory import FileBlobs

__all__ = ["strace"]

WRITER = Path(__file__).parent / "blob_writer.py"
MODES = ("replace", "create", "delete", "enter")
MEMORY_CALLS = {"brk", "madvise", "mmap", "mprotect", "mremap", "munmap"}
"""The interpreter's own, at any moment: a disk cannot fail them."""

CALL = re.compile(r"^\d+ +(\w+)\((.*)")


class TestKill:
    @pytest.mark.parametrize("seed", range(6))
    def test_a_killed_writer_leaves_the_old_or_the_new_bytes(
        self, tmp_path: Path, seed: int
    ) -> None:
        dice = random.Random(seed)
        home = new_home(tmp_path)
        writer = started(home, "forever")
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(dice.randint(1, 40))]
        until = time.perf_counter() + dice.random() / 500
        while time.perf_counter() < until:
            pass  # a kill lands anywhere in a write, not only after a line
        writer.kill()
        lines += writer.stdout.readlines()  # not communicate(), which skips what is buffered here
        writer.communicate(timeout=WAIT_S)
        last = int(lines[-1])
        found = (home / "tree" / NAME).read_bytes()
        assert found in (content(last), content(last + 1)), seed
        with opened(home) as store:
            store.write(NAME, b"and on it goes", expect=ANY)

    @pytest.mark.parametrize("mode", MODES)
    def test_a_kill_at_any_system_call_leaves_the_old_or_the_new_bytes(
        self, tmp_path: Path, strace: str, mode: str
    ) -> None:
        calls = system_calls(strace, new_home(tmp_path / "traced"), mode)

        def kill(step: int) -> None:
            call, nth = calls[step]
            home = new_home(tmp_path / str(step))
            traced(strace, home, mode, f"inject={call}:signal=SIGKILL:when={nth}")
            assert state(home) in (before(mode), after(mode)), (call, nth)
            assert is_lock_free(home), (call, nth)
            with opened(home) as store:
                store.write(NAME, b"and on it goes", expect=ANY)

        at_each(kill, len(calls))

    def test_staging_files_of_a_killed_writer_are_removed_after_a_day_and_not_before(
        self, tmp_path: Path
    ) -> None:
        home = new_home(tmp_path)
        staging = home / "staging"
        old, young = LEFTOVER_AGE_S + 60, LEFTOVER_AGE_S - 60
        left = {"new-old": old, "come-old": old, "new-young": young, "come-young": young}
        for name, age in {**left, "other": 10**6}.items():
            (staging / name).write_bytes(b"half")
            os.utime(staging / name, (time.time() - age,) * 2)
        with opened(home):
            assert names_in(staging) == ["come-young", "new-young", "other"]


class TestDurability:
    def test_a_new_file_is_flushed_before_the_rename_and_its_directory_afterwards(
        self, tmp_path: Path, strace: str
    ) -> None:
        home = new_home(tmp_path)
        trace, told = traced(strace, home, "create", "trace=all")
        assert told["outcome"] == "ok"
        tree = home / "tree"
        assert in_order(
            trace,
            f"openat(<{home}/staging>, new, O_WRONLY|O_CREAT|O_EXCL)",
            f"write(<{home}/staging/new>",
            f"fsync(<{home}/staging/new>)",
            f"mkdirat(<{tree}>, notes)",
            f"fsync(<{tree}>)",
            f"mkdirat(<{tree}/notes>, deep)",
            f"fsync(<{tree}/notes>)",
            f"renameat2(<{home}/staging>, new, <{tree}/notes/deep>, a.md, RENAME_NOREPLACE)",
            f"fsync(<{tree}/notes/deep>)",
        )

    def test_entering_a_staged_file_flushes_all_new_directories_after_the_rename(
        self, tmp_path: Path, strace: str
    ) -> None:
        home = new_home(tmp_path)
        trace, told = traced(strace, home, "enter", "trace=all")
        assert told["outcome"] == "ok"
        tree = home / "tree"
        moved = "renameat2("
        for made in (tree, tree / "notes", tree / "notes/deep"):
            assert in_order(trace, moved, f"fsync(<{made}>)"), made
        assert in_order(trace, "fsync(", moved)

    def test_a_replacement_is_a_single_rename_between_two_flushes(
        self, tmp_path: Path, strace: str
    ) -> None:
        home = new_home(tmp_path, OLD)
        trace, told = traced(strace, home, "replace", "trace=all")
        assert told["outcome"] == "ok"
        assert in_order(
            trace,
            f"fsync(<{home}/staging/new>)",
            f"flock(<{home}/staging/{LOCK_NAME}>, LOCK_EX)",
            f"renameat2(<{home}/staging>, new, <{home}/tree/notes/deep>, a.md, RENAME_EXCHANGE)",
            f"openat(<{home}/staging>, new, O_RDONLY",
            f"fsync(<{home}/tree/notes/deep>)",
            f"flock(<{home}/staging/{LOCK_NAME}>, LOCK_UN)",
        )

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
    def test_a_failed_system_call_raises_unavailable_and_leaves_no_staging_file(
        self, tmp_path: Path, strace: str, mode: str, error: str
    ) -> None:
        calls = system_calls(strace, new_home(tmp_path / "traced"), mode)

        def fail(step: int) -> None:
            call, nth = calls[step]
            home = new_home(tmp_path / str(step))
            _, told = traced(strace, home, mode, f"inject={call}:error={error}:when={nth}")
            where = (call, nth, told)
            assert told["outcome"] in ("unavailable", "ok"), where
            if told["outcome"] == "ok":
                assert state(home) == after(mode), where
            else:
                assert state(home) in (before(mode), after(mode)), where
                assert "disk" in told["text"] or "Input/output error" in told["text"], where
            left = [name for name in names_in(home / "staging") if name != LOCK_NAME]
            assert not left or call.startswith("unlink"), where  # which the sweep does again
            assert is_lock_free(home), where

        at_each(fail, len(calls))

    def test_a_failed_rename_leaves_the_old_bytes_and_a_failed_last_flush_the_new_bytes(
        self, tmp_path: Path, strace: str
    ) -> None:
        home = new_home(tmp_path / "rename", OLD)
        _, told = traced(strace, home, "replace", "inject=renameat2:error=ENOSPC:when=1")
        assert (state(home), told["outcome"]) == (OLD, "unavailable")
        assert "the disk is full" in told["text"]
        home = new_home(tmp_path / "flush", OLD)
        _, told = traced(strace, home, "replace", "inject=fsync:error=EIO:when=2")
        assert (state(home), told["outcome"]) == (NEW, "unavailable")
        assert "does not confirm" in told["text"]


class TestNeighbours:
    """Others write in the tree without asking."""

    @pytest.mark.parametrize("openat2", [True, False])
    def test_swapping_a_directory_for_a_link_never_leads_outside_the_tree(
        self, tmp_path: Path, openat2: bool
    ) -> None:
        home = new_home(tmp_path, OLD)
        outside = home / "outside" / "deep"
        outside.mkdir(parents=True)
        (outside / "a.md").write_bytes(b"secret")
        (outside.parent / "b.md").write_bytes(b"secret")
        swapper = started(home, "swap")
        assert swapper.stdout is not None
        swapper.stdout.readline()
        store = FileBlobs(
            home / "tree", home / "staging", open_tree=lambda root: SafeRoot(root, openat2=openat2)
        )
        seen = Counter[str]()
        try:
            end = time.monotonic() + WAIT_S
            for n in count():
                seen[operation(store, n)] += 1
                if n >= 20_000 and seen["refused"] and seen["ok"] > 100:
                    break
                assert time.monotonic() < end, f"the swaps were never met: {seen}"
        finally:
            swapper.kill()
            swapper.communicate(timeout=WAIT_S)
            store.close()
        assert seen["escaped"] == 0
        assert (outside / "a.md").read_bytes() == b"secret"
        assert names_in(home / "outside") == ["b.md", "deep"]
        assert names_in(outside) == ["a.md"]

    def test_a_scan_finds_all_lasting_files_while_other_files_come_and_go(
        self, tmp_path: Path
    ) -> None:
        home = new_home(tmp_path)
        tree = home / "tree"
        names = [f"stays-{n:03}.md" for n in range(100)]
        for name in names:
            (tree / name).write_bytes(b"")
        done = threading.Event()

        def come_and_go() -> None:
            while not done.is_set():
                for n in range(100):
                    (tree / f"goes-{n:03}.md").write_bytes(b"")
                for n in range(100):
                    (tree / f"goes-{n:03}.md").unlink()

        neighbour = threading.Thread(target=come_and_go)
        neighbour.start()
        try:
            with opened(home) as store:
                for _ in range(200):
                    found = [stat.name for stat in store.scan()]
                    assert [name for name in found if name.startswith("stays")] == names
        finally:
            done.set()
            neighbour.join(timeout=WAIT_S)

    @pytest.mark.parametrize("has_openat2", [True, False])
    def test_concurrent_listings_of_a_directory_are_complete(
        self, tmp_path: Path, has_openat2: bool
    ) -> None:
        home = new_home(tmp_path)
        for name in ("staging/come-1", "staging/out:1", "tree/a.md", "tree/b.md"):
            (home / name).write_bytes(b"")
        tree = partial(SafeRoot, openat2=has_openat2)
        store = FileBlobs(home / "tree", home / "staging", open_tree=tree)
        names: list[list[str]] = []

        def half_way(_name: str) -> bool:
            assert len(names) < 2, "the other one has begun anew"
            names.append([stat.name for stat in store.scan()])
            return True

        with os.scandir(store._aside._fd) as entries:
            next(entries)
            assert store.labels() == ["out:1"]
            store.unstage()
            assert names_in(home / "staging") == ["out:1"]
        found = sorted(stat.name for stat in store.find("", half_way))
        assert [found, *names] == [["a.md", "b.md"]] * 3
        store.close()

    def test_a_conflicting_write_creates_no_directories(self, tmp_path: Path) -> None:
        home = new_home(tmp_path)
        with opened(home) as store:
            token = store.write("a.md", b"x", expect=ABSENT)
            with pytest.raises(Conflict):
                store.write("new/b.md", b"x", expect=token)
        assert names_in(home / "tree") == ["a.md"]

    def test_a_missing_staging_directory_is_named_and_no_write_or_delete_succeeds(
        self, tmp_path: Path
    ) -> None:
        home = new_home(tmp_path, OLD)
        with opened(home) as store:
            shutil.rmtree(home / "staging")
            calls: tuple[Callable[[], object], ...] = (
                lambda: store.write(NAME, NEW, expect=ANY),
                lambda: store.delete(NAME, expect=ANY),
            )
            for call in calls:
                with pytest.raises(Unavailable, match="staging"):
                    call()
            assert store.read(NAME).data == OLD

    def test_a_forked_child_does_not_hold_the_staging_lock(self, tmp_path: Path) -> None:
        home = new_home(tmp_path)
        with opened(home) as store:
            reading, writing = os.pipe()
            with store._aside.locked():
                child = os.fork()
                if child == 0:
                    os.close(writing)
                    os.read(reading, 1)  # until the parent closes its end, or ends
                    os._exit(0)
            try:
                assert is_lock_free(home)
            finally:
                os.close(writing)
                os.close(reading)
                os.waitpid(child, 0)


class opened:  # noqa: N801 - reads as what it does
    def __init__(self, home: Path) -> None:
        self._store = FileBlobs(home / "tree", home / "staging")

    def __enter__(self) -> FileBlobs:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()


def operation(store: FileBlobs, n: int) -> str:
    name = NAME if n % 2 else "notes/b.md"
    try:
        match n % 8:
            case 0 | 1 if n % 64 < 2:
                store.write(name, OLD, expect=ANY)
            case 2 if n % 128 == 2:
                store.delete(name, expect=ANY)
            case 3:
                return (
                    "ok" if all(stat.size != len(b"secret") for stat in store.scan()) else "escaped"
                )
            case _:
                return "escaped" if store.read(name).data == b"secret" else "ok"
    except NotFound:
        return "not found"
    except Refused:
        return "refused"
    except Unavailable as error:
        assert "vanishes" in error.reason
        return "vanishing"
    return "ok"


def new_home(path: Path, data: bytes | None = None) -> Path:
    for directory in ("tree", "staging"):
        (path / directory).mkdir(parents=True)
    if data is not None:
        with opened(path) as store:
            store.write(NAME, data, expect=ABSENT)
        (path / "staging" / LOCK_NAME).unlink()
    return path


def before(mode: str) -> bytes | None:
    return None if mode in NEW_FILE else OLD


def after(mode: str) -> bytes | None:
    return None if mode == "delete" else NEW


def state(home: Path) -> bytes | None:
    file = home / "tree" / NAME
    return file.read_bytes() if file.exists() else None


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def is_lock_free(home: Path) -> bool:
    fd = os.open(home / "staging" / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def started(home: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python(WRITER, home, mode),
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def traced(strace: str, home: Path, mode: str, expression: str) -> tuple[list[str], dict]:
    """The calls of one change, as `name(arguments)`, and what the writer said of it."""
    if mode not in NEW_FILE and state(home) is None:
        shutil.rmtree(home)
        new_home(home, OLD)
    writer = started(home, mode)
    assert writer.stdout is not None
    writer.stdout.readline()
    log = home.with_suffix(".strace")
    command = [strace, "-y", "-o", str(log), "-e", expression, "-f", "-p", str(writer.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        output, _ = writer.communicate("\n", timeout=WAIT_S)
        tracer.communicate(timeout=WAIT_S)
    told = json.loads(output.splitlines()[-1]) if output.startswith("{") else {}
    return [plain(line) for line in log.read_text().splitlines() if CALL.match(line)], told


def system_calls(strace: str, home: Path, mode: str) -> list[tuple[str, int]]:
    """Each call of one change with its number among those of its name, from wake-up to report."""
    trace, told = traced(strace, home, mode, "trace=all")
    assert told == {"outcome": "ok"}
    names = [call.partition("(")[0] for call in trace]
    end = next(n for n, call in enumerate(trace) if call.startswith("write(") and "pipe" in call)
    counted = Counter[str]()
    calls: list[tuple[str, int]] = []
    for name in names[:end]:
        counted[name] += 1
        is_the_wake_up = name in {"read", "restart_syscall"} and counted[name] == 1
        if not is_the_wake_up and name not in MEMORY_CALLS:
            calls.append((name, counted[name]))
    return calls


def plain(line: str) -> str:
    """Without what differs from run to run: pids, descriptors, random names, modes."""
    name, arguments = CALL.match(line).groups()
    text = f"{name}({arguments}".partition(" = ")[0].rstrip()
    text = re.sub(r"\b\d+<", "<", text)
    text = (
        re.sub(r"(new|come)-[0-9a-f]{16}", r"\1", text).replace('"', "").replace("|O_CLOEXEC", "")
    )
    return re.sub(r", 0[0-7]{3}\)", ")", text)


def in_order(trace: list[str], *wanted: str) -> bool:
    left = iter(trace)
    for call in wanted:
        assert any(found.startswith(call) for found in left), (call, trace)
    return True


def at_each(run: Callable[[int], None], steps: int) -> None:
    assert steps > 5
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(steps)))


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before
