"""PostgreSQL records and many processes: increments, SIGKILL anywhere in a write, forks."""

from __future__ import annotations

import os
import random
import time

from tests.strace import python, run
from tests.workspaces.storage.record_writer import COUNT, GUARD
from tests.workspaces.storage.writers import WRITER, ended, start
from workspaces.conditions import ABSENT
from workspaces.storage.postgres.records import PostgresRecords
from workspaces.storage.records import Key, Put, with_prefix

SOAK = bool(os.environ.get("SOAK"))
KILLS = 20 if SOAK else 2


def test_concurrent_increments_of_four_processes_are_all_counted_in_postgres(
    postgres_address: str,
) -> None:
    writers = [start("increment", postgres_address, 60) for _ in range(4)]
    assert [ended(writer) for writer in writers] == [(0, "")] * 4
    store = PostgresRecords(postgres_address)
    item = store.get(COUNT)
    store.close()
    assert item is not None
    assert (item.value, item.counter) == ({"n": 240}, 240)


def test_killed_postgres_writers_tear_no_batch_and_lose_no_acknowledged_write(
    postgres_address: str,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    store = PostgresRecords(postgres_address)
    store.write(Put(GUARD, {}, ABSENT))
    for name in (f"{n}" for n in range(KILLS)):
        writer = start("append", postgres_address, name)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(dice.randint(1, 40))]
        until = time.perf_counter() + dice.random() / 200
        while time.perf_counter() < until:
            pass  # a kill lands anywhere in a write, not only after a line
        writer.kill()
        lines += ended(writer)[1].splitlines()
        entries = with_prefix(store, f"log {name}", "0")
        assert [item.value["n"] for item in entries] == list(range(len(entries))), seed
        assert len(entries) > int(lines[-1]), seed
        tally = store.get(Key("tally", name))
        assert tally is not None
        # The server may still carry out a last batch, whole, while it is looked at.
        assert tally.value["n"] - len(entries) in {0, 1}, seed
    assert store.write(Put(GUARD, {})) == (2,)
    store.close()


def test_a_forked_child_opens_its_own_postgres_connections(postgres_address: str) -> None:
    assert run(*python(WRITER, "fork", postgres_address, 30)) == "0 30 30\n"
