"""A process that writes records: started by the tests of the stores, several at a time, and killed."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Unavailable
from workspaces.storage.records import Check, Key, Put, RecordStore
from workspaces.storage.sqlite import SqliteRecords

COUNT, GUARD = Key("count", "n"), Key("guard", "g")
WAIT_S = 600.0
"""Of processes that write without a pause SQLite lets some wait for long, on a busy machine for very long."""


def store_at(place: str) -> RecordStore:
    if not place.startswith("postgresql:"):
        return SqliteRecords(Path(place), wait_s=WAIT_S)
    from workspaces.storage.postgres.records import PostgresRecords  # it takes a while

    return PostgresRecords(place)


def connections_of(store: Any) -> list[object]:
    """Of all processes, as far as this one knows of them."""
    if isinstance(store, SqliteRecords):
        return [one for connections in store._pools.values() for one in connections]
    return [one for pool in store._database._pools.values() for one in pool.idle]


def increment(place: str, times: int) -> None:
    """Read, add one, write under the condition; `times` times."""
    store = store_at(place)
    for _ in range(times):
        while True:
            item = store.get(COUNT)
            try:
                if item is None:
                    store.write(Put(COUNT, {"n": 1}, ABSENT))
                else:
                    store.write(Put(COUNT, {"n": item.value["n"] + 1}, item.counter))
                break
            except Conflict:
                continue
    store.close()


def append(place: str, name: str) -> None:
    """Without end: an entry and a tally in one guarded batch, and a line once it is acknowledged."""
    store = store_at(place)
    for n in itertools.count():
        entry = Put(Key(f"log {name}", f"{n:08}"), {"n": n, "text": "x" * (n % 3000)}, ABSENT)
        store.write(Check(GUARD, 1), entry, Put(Key("tally", name), {"n": n + 1}))
        os.write(1, b"%d\n" % n)


def fill(file: Path, times: int) -> None:
    """Write on, whatever happens, and say in the end what did."""
    store = SqliteRecords(file)
    failures: list[dict[str, object]] = []
    written: list[int] = []
    for n in range(times):
        try:
            store.write(Put(Key("log", f"{n:04}"), {"n": n}, ABSENT))
            written.append(n)
        except Unavailable as error:
            failures.append({"n": n, "reason": error.reason, "remedy": error.remedy})
    store.close()
    print(json.dumps({"failures": failures, "written": written}))


def fork(place: str, times: int) -> None:
    """Parent and child go on with the store that the parent opened, at the same time."""
    store = store_at(place)
    store.write(Put(GUARD, {}))
    inherited = connections_of(store)
    child = os.fork()
    name = "child" if child == 0 else "parent"
    for n in range(times):
        store.write(Put(Key(name, f"{n:04}"), {}, ABSENT), Put(COUNT, {}))
    if child == 0:
        os._exit(
            len(connections_of(store)) - len(inherited) - 1
        )  # it opened exactly one of its own
    _, status = os.waitpid(child, 0)
    print(status, len(store.scan("child")), len(store.scan("parent")))
    store.close()


if __name__ == "__main__":
    mode, place, argument = sys.argv[1:]
    if mode == "append":
        append(place, argument)
    elif mode == "fill":
        fill(Path(place), int(argument))
    else:
        {"increment": increment, "fork": fork}[mode](place, int(argument))
