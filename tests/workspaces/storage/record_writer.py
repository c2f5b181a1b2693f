"""A process that writes records: started by test_sqlite.py, several at a time, and killed."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Unavailable
from workspaces.storage.records import Check, Key, Put
from workspaces.storage.sqlite import SqliteRecords

COUNT, GUARD = Key("count", "n"), Key("guard", "g")
WAIT_S = 600.0
"""Of processes that write without a pause SQLite lets some wait for long, on a busy machine for very long."""


def increment(file: Path, times: int) -> None:
    """Read, add one, write under the condition; `times` times."""
    store = SqliteRecords(file, wait_s=WAIT_S)
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


def append(file: Path, name: str) -> None:
    """Without end: an entry and a tally in one guarded batch, and a line once it is acknowledged."""
    store = SqliteRecords(file, wait_s=WAIT_S)
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


def fork(file: Path, times: int) -> None:
    """Parent and child go on with the store that the parent opened, at the same time."""
    store = SqliteRecords(file)
    inherited = list(store._pools[os.getpid()])
    child = os.fork()
    name = "child" if child == 0 else "parent"
    for n in range(times):
        store.write(Put(Key(name, f"{n:04}"), {}, ABSENT), Put(COUNT, {}))
    if child == 0:
        opened = [c for connections in store._pools.values() for c in connections]
        os._exit(len(opened) - len(inherited) - 1)  # it opened exactly one of its own
    _, status = os.waitpid(child, 0)
    print(status, len(store.scan("child")), len(store.scan("parent")))
    store.close()


if __name__ == "__main__":
    mode, file, argument = sys.argv[1:]
    if mode == "append":
        append(Path(file), argument)
    else:
        {"increment": increment, "fill": fill, "fork": fork}[mode](Path(file), int(argument))
