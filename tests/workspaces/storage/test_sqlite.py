"""SQLite records: many threads and processes, SIGKILL, full disks, damaged files."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.race import race
from tests.strace import python, run, strace
from tests.workspaces.storage.record_writer import COUNT, GUARD
from tests.workspaces.storage.writers import WRITER, ended, start
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.errors import Refused, Unavailable
from workspaces.storage import sqlite
from workspaces.storage.records import Key, Put, with_prefix
from workspaces.storage.sqlite import (
    CONNECTIONS_KEPT_MAX,
    FORMAT,
    SWEEP_EVERY_S,
    SWEEP_ITEMS_MAX,
    SqliteRecords,
)

__all__ = ["strace"]

A = Key("p", "a")
LONG_S = 600.0
"""Nobody waits for so long but for what never comes."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqliteRecords]:
    store = SqliteRecords(file)
    yield store
    store.close()


class TestProcesses:
    def test_concurrent_increments_of_four_processes_are_all_counted_in_sqlite(
        self, file: Path
    ) -> None:
        writers = [start("increment", file, 250) for _ in range(4)]
        assert [ended(writer) for writer in writers] == [(0, "")] * 4
        store = SqliteRecords(file)
        item = store.get(COUNT)
        store.close()
        assert item is not None
        assert (item.value, item.counter) == ({"n": 1000}, 1000)

    @pytest.mark.parametrize("seed", range(5))
    def test_killed_sqlite_writers_tear_no_batch_and_lose_no_acknowledged_write(
        self, file: Path, store: SqliteRecords, seed: int
    ) -> None:
        dice = random.Random(seed)
        store.write(Put(GUARD, {}, ABSENT))
        writers = {name: start("append", file, name) for name in ("a", "b", "c")}
        acknowledged = {}
        for name, writer in writers.items():
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(dice.randint(1, 60))]
            until = time.perf_counter() + dice.random() / 500
            while time.perf_counter() < until:
                pass  # a kill lands anywhere in a write, not only after a line
            writer.kill()
            lines += ended(writer)[1].splitlines()
            acknowledged[name] = int(lines[-1])
        for name, last in acknowledged.items():
            entries = with_prefix(store, f"log {name}", "0")
            assert [item.value["n"] for item in entries] == list(range(len(entries))), seed
            assert len(entries) > last, seed
            tally = store.get(Key("tally", name))
            assert tally is not None
            assert tally.value == {"n": len(entries)}, seed
        assert integrity(file) == "ok"
        assert store.write(Put(A, {})) == (1,)

    def test_a_forked_child_opens_its_own_sqlite_connections(self, file: Path) -> None:
        assert run(*python(WRITER, "fork", file, 100)) == "0 100 100\n"
        assert integrity(file) == "ok"

    def test_sqlite_removes_expired_items(self, file: Path) -> None:
        clock = ManualClock()
        store = SqliteRecords(file, clock=clock)
        soon = clock.now().timestamp() + 1
        for first in range(0, SWEEP_ITEMS_MAX + 100, 100):
            store.write(*(Put(Key("c", f"{first + n}"), {}, expires_at=soon) for n in range(100)))
        clock.advance(SWEEP_EVERY_S + 1)
        assert rows(file) == SWEEP_ITEMS_MAX + 100
        store.write(Put(A, {}))
        assert rows(file) == 101
        store.write(Put(A, {}))
        assert rows(file) == 1
        store.write(Put(Key("c", "x"), {}, expires_at=clock.now().timestamp() + 1))
        clock.advance(2)
        store.write(Put(A, {}))
        assert rows(file) == 2, "a sweep a minute is enough"
        clock.jump(-86400)
        store.write(Put(A, {}))
        clock.jump(86400 + SWEEP_EVERY_S)
        store.write(Put(A, {}))
        assert rows(file) == 1, "a clock that was set back does not stop the sweep"
        store.close()


class TestThreads:
    def test_many_threads_can_open_a_new_sqlite_file_at_once(self, tmp_path: Path) -> None:
        for n in range(20):
            file = tmp_path / f"{n}.db"
            race(6, lambda _, file=file: SqliteRecords(file).close())

    def test_closing_sqlite_records_lets_running_writes_finish_and_refuses_later_writes(
        self, file: Path
    ) -> None:
        for _ in range(5):
            store = SqliteRecords(file)
            written: list[str] = []
            under_way = threading.Semaphore(0)

            def write(index: int, store=store, written=written, under_way=under_way) -> None:
                for n in range(10**6):
                    key = Key("p", f"{time.monotonic_ns()}-{index}-{n}")
                    try:
                        store.write(Put(key, {}, ABSENT))
                    except Unavailable as error:
                        assert "closed" in error.reason
                        return
                    written.append(key.sort)
                    under_way.release()

            def close(store=store, under_way=under_way) -> None:
                for _ in range(20):
                    assert under_way.acquire(timeout=30)
                store.close()

            race(4, lambda i, close=close, write=write: close() if i == 0 else write(i))
            again = SqliteRecords(file)
            found = {item.key.sort for item in with_prefix(again, "p", "")}
            again.close()
            assert set(written) <= found
            assert store._pools[os.getpid()] == []

    def test_ended_threads_leave_a_bounded_number_of_sqlite_connections(
        self, store: SqliteRecords
    ) -> None:
        for _ in range(3):
            race(CONNECTIONS_KEPT_MAX + 4, lambda _: [store.get(A) for _ in range(20)])
        assert len(store._pools[os.getpid()]) <= CONNECTIONS_KEPT_MAX


class TestTurns:
    def test_each_of_a_hundred_sqlite_writers_gets_its_turn(self, file: Path) -> None:
        """However long that takes: SQLite itself is not asked to wait, as it lets some wait for ever."""

        class Turns(SqliteRecords):
            def _connect(self) -> sqlite3.Connection:
                connection = super()._connect()
                connection.execute("pragma busy_timeout = 0")
                return connection

        store = Turns(file, wait_s=LONG_S)
        writers, times = 100, 20

        def write(index: int) -> None:
            for number in range(times):
                store.write(Put(Key(f"p{index}", f"{number:04}"), {"text": "x" * 500}, ABSENT))

        assert len(race(writers, write)) == writers
        assert rows(file) == writers * times
        assert len(store._pools[os.getpid()]) == 1, "only who writes needs a connection"
        store.close()

    def test_a_child_forked_during_a_sqlite_write_can_write(self, store: SqliteRecords) -> None:
        with store._write_turn():
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    store.write(Put(A, {"by": "child"}))
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        item = store.get(A)
        assert item is not None
        assert item.value == {"by": "child"}


class TestBadFiles:
    def test_a_locked_sqlite_database_is_unavailable_after_its_wait(
        self, file: Path, store: SqliteRecords, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "WAIT_FOR_LOCK_S", LONG_S)
        impatient = SqliteRecords(file, wait_s=0.2)
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("begin immediate")
        begin = time.monotonic()
        with pytest.raises(Unavailable, match="locked by another process") as caught:
            impatient.write(Put(A, {}))
        assert time.monotonic() - begin < LONG_S / 10
        assert "end the process" in str(caught.value.remedy)
        assert impatient.get(A) is None, "readers go on"
        holder.execute("rollback")
        assert impatient.write(Put(A, {})) == (1,)
        holder.close()
        impatient.close()

    def test_a_sqlite_database_locked_during_creation_is_unavailable_after_its_wait(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "WAIT_FOR_LOCK_S", LONG_S)
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("begin exclusive")
        begin = time.monotonic()
        with pytest.raises(Unavailable, match="locked by another process"):
            SqliteRecords(file, wait_s=0.2)
        assert time.monotonic() - begin < LONG_S / 10
        holder.close()

    def test_a_full_disk_is_named_and_written_sqlite_records_stay(
        self, file: Path, strace: str
    ) -> None:
        fault = "inject=pwrite64:error=ENOSPC:when=60..64"
        command = python(WRITER, "fill", file, 100)
        told = json.loads(run(strace, "-f", "-o", "/dev/null", "-e", fault, *command))
        assert {f["reason"] for f in told["failures"]} == {"the disk is full"}
        assert all("free some space" in failure["remedy"] for failure in told["failures"])
        assert told["written"][-1] == 99
        store = SqliteRecords(file)
        assert [item.value["n"] for item in store.scan("log")] == told["written"]
        store.close()
        assert integrity(file) == "ok"

    def test_a_failing_disk_is_named_and_written_sqlite_records_stay(
        self, file: Path, strace: str
    ) -> None:
        fault = "inject=fdatasync:error=EIO:when=20..21"
        command = python(WRITER, "fill", file, 60)
        told = json.loads(run(strace, "-f", "-o", "/dev/null", "-e", fault, *command))
        assert told["failures"]
        assert all("the disk reports an error" in failure["reason"] for failure in told["failures"])
        store = SqliteRecords(file)
        assert set(told["written"]) <= {item.value["n"] for item in store.scan("log")}
        store.close()
        assert integrity(file) == "ok"

    def test_a_read_only_sqlite_file_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "state.db"
            store = SqliteRecords(file)
            store.write(Put(A, {}))
            store.close()
            file.chmod(0o444)
            Path(directory).chmod(0o555)
            assert as_nobody(lambda: SqliteRecords(file).write(Put(A, {}))) == (
                "the file cannot be written",
                "check that the home exists and belongs to you",
            )
            Path(directory).chmod(0o755)

    @pytest.mark.parametrize("name", ["", "missing/state.db"])
    def test_an_impossible_sqlite_path_is_named(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(Unavailable, match="cannot be written") as caught:
            SqliteRecords(tmp_path / name)
        assert "home" in str(caught.value.remedy)

    def test_a_file_that_is_not_a_sqlite_database_is_named_and_not_changed(
        self, file: Path
    ) -> None:
        file.write_bytes(b"these are my notes\n" * 100)
        with pytest.raises(Unavailable, match="damaged") as caught:
            SqliteRecords(file)
        assert "restore it" in str(caught.value.remedy)
        assert file.read_bytes() == b"these are my notes\n" * 100

    def test_a_damaged_sqlite_page_is_reported_as_unavailable(self, file: Path) -> None:
        store = SqliteRecords(file)
        for first in range(0, 400, 100):
            puts = (Put(Key("p", f"{first + n:03}"), {"t": "x" * 200}) for n in range(100))
            store.write(*puts)
        store.close()
        size = file.stat().st_size
        with file.open("r+b") as handle:
            for page in range(2 * 4096, size, 4096):
                handle.seek(page)
                handle.write(os.urandom(512))
        store = SqliteRecords(file)
        with pytest.raises(Unavailable, match="damaged"):
            store.scan("p")
        store.close()

    def test_a_sqlite_value_that_is_not_json_is_reported_as_damage(
        self, file: Path, store: SqliteRecords
    ) -> None:
        store.write(Put(A, {}))
        hand = sqlite3.connect(file)
        hand.execute("update item set value = '{'")
        hand.commit()
        hand.close()
        for read in (lambda: store.get(A), lambda: store.scan("p")):
            with pytest.raises(Unavailable, match="damaged"):
                read()

    def test_a_sqlite_file_of_a_newer_format_is_refused_and_not_changed(self, file: Path) -> None:
        SqliteRecords(file).close()
        hand = sqlite3.connect(file)
        hand.execute(f"pragma user_version = {FORMAT + 1}")
        hand.close()
        before = file.read_bytes()
        with pytest.raises(Refused, match="newer format") as caught:
            SqliteRecords(file)
        assert "workspace-harness" in str(caught.value.remedy)
        assert file.read_bytes() == before


def as_nobody(call) -> tuple[str, str | None]:
    """What `Unavailable` says to somebody without rights: root has too many of them."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            call()
        except Unavailable as error:
            os.write(writing, json.dumps([error.reason, error.remedy]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    told = os.read(reading, 10_000)
    os.close(reading)
    return tuple(json.loads(told or "[]"))


def rows(file: Path) -> int:
    return query(file, "select count(*) from item")


def integrity(file: Path) -> str:
    return query(file, "pragma integrity_check")


def query(file: Path, text: str):
    connection = sqlite3.connect(file)
    try:
        return connection.execute(text).fetchone()[0]
    finally:
        connection.close()
