"""The three record stores side by side, and PostgreSQL beside the fewest statements that could do the same.

python -m benchmarks.records

SQLite and PostgreSQL flush to a real disk. DynamoDB is a stand-in in this process, written in Python: its
column shows how the adapter behaves, not the service. Its batches copy the whole table, so it has few rounds.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import psycopg

from benchmarks.ratio import compare, report
from benchmarks.stores import ENTRY, key
from tests.dynamodb_server import make_table, serving_dynamodb, settings_for
from tests.postgres_server import postgres_in
from workspaces.conditions import ABSENT
from workspaces.storage.dynamodb.records import DynamoRecords
from workspaces.storage.postgres.records import PostgresRecords
from workspaces.storage.postgres.table import create_table
from workspaces.storage.records import Check, Key, Put, RecordStore, encoded
from workspaces.storage.sqlite import SqliteRecords

ROUNDS = 300
ROUNDS_OF_STAND_IN = 20
WRITERS = 8
WRITES_EACH = 40
GUARD, COUNT = Key("guard", "g"), Key("count", "n")


def main() -> None:
    with (
        tempfile.TemporaryDirectory(dir=".") as name,
        opened(Path(name).resolve()) as (stores, address),
    ):
        _table(stores)
        _bare(stores["PostgreSQL"], address)


@contextmanager
def opened(directory: Path) -> Iterator[tuple[dict[str, RecordStore], str]]:
    durable = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
    directory.chmod(0o755)  # as root, the server runs as another user
    (directory / "pg").mkdir()
    with postgres_in(directory / "pg", **durable) as server, serving_dynamodb() as url:
        os.environ.update(settings_for(url))
        make_table(url, "records")
        create_table(server.address())
        stores: dict[str, RecordStore] = {
            "SQLite": SqliteRecords(directory / "state.db"),
            "PostgreSQL": PostgresRecords(server.address()),
            "DynamoDB": DynamoRecords("records"),
        }
        for store in stores.values():
            store.write(Put(GUARD, {}))
            for n in range(60):
                store.write(Put(key(n), ENTRY, ABSENT))
        yield stores, server.address()
        for store in stores.values():
            store.close()


def _table(stores: dict[str, RecordStore]) -> None:
    numbers = count(1000)

    def deeds(store: RecordStore) -> dict[str, Callable[[], object]]:
        return {
            "get": lambda: store.get(GUARD),
            "newest 50": lambda: store.scan("t", backwards=True, limit=50),
            "append": lambda: store.write(Put(key(next(numbers)), ENTRY, ABSENT)),
            "guarded batch of 4": lambda: store.write(
                Check(GUARD, 1),
                Put(key(next(numbers)), ENTRY, ABSENT),
                Put(Key("tally", "a"), {"n": 1}),
                Put(Key("tally", "b"), {"n": 1}),
            ),
        }

    all_deeds = {name: deeds(store) for name, store in stores.items()}
    print(f"{'ms, median':<28}" + "".join(f"{name:>12}" for name in stores))
    for deed in all_deeds["SQLite"]:
        times: dict[str, list[float]] = {name: [] for name in stores}
        for number in range(ROUNDS):  # in turns: what disturbs one disturbs the others
            for name in stores:
                if name == "DynamoDB" and number >= ROUNDS_OF_STAND_IN:
                    continue
                begin = perf_counter()
                all_deeds[name][deed]()
                times[name].append(perf_counter() - begin)
        _row(deed, [median(times[name]) * 1000 for name in stores])
    stores = {name: store for name, store in stores.items() if name != "DynamoDB"}
    _row(f"{WRITERS} threads appending, each", [_together(s, numbers) for s in stores.values()])
    _row(f"{WRITERS} threads, one counter, each", [_contended(s) for s in stores.values()])


def _row(deed: str, milliseconds: list[float]) -> None:
    print(f"{deed:<28}" + "".join(f"{one:>12.2f}" for one in milliseconds), flush=True)


def _together(store: RecordStore, numbers: Iterator[int]) -> float:
    """Return milliseconds of the clock for each write."""
    return _raced(lambda: store.write(Check(GUARD, 1), Put(key(next(numbers)), ENTRY, ABSENT)))


def _contended(store: RecordStore) -> float:
    return _raced(lambda: store.write(Put(COUNT, {})))


def _raced(write: Callable[[], object]) -> float:
    def run() -> None:
        for _ in range(WRITES_EACH):
            write()

    threads = [threading.Thread(target=run) for _ in range(WRITERS)]
    begin = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (perf_counter() - begin) * 1000 / (WRITERS * WRITES_EACH)


def _bare(store: RecordStore, address: str) -> None:
    """The port against the driver: one insert that is committed at once, and one select."""
    value = encoded(Put(Key("t", "n"), ENTRY)).encode()
    numbers, ours = count(), count(10**6)
    insert = "insert into harness_records values ('bare', %b, 1, %b, 'infinity')"
    select = "select value from harness_records where partition = 'guard' and sort = 'g'"
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        report(
            "an append to PostgreSQL: one insert by the bare driver",
            *compare(
                lambda: store.write(Put(key(next(ours)), ENTRY, ABSENT)),
                lambda: connection.execute(insert, (b"%08d" % next(numbers), value)),
                rounds=ROUNDS,
            ),
            at_most=None,
        )
        report(
            "a get from PostgreSQL: one select by the bare driver",
            *compare(
                lambda: store.get(GUARD),
                lambda: connection.execute(select).fetchone(),
                rounds=ROUNDS,
            ),
            at_most=None,
        )


if __name__ == "__main__":
    main()
