"""Random batches of several threads on few keys, and a search for one order that explains all answers.

The order must keep what each thread did one after the other. As the threads are few, a state of the search is
how far each of them is, and the counters of the items.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.conformance.race import race
from workspaces.conditions import ABSENT, ANY, Wildcard, is_met
from workspaces.errors import Conflict
from workspaces.storage.records import Check, Condition, Delete, Key, Put, RecordChange, RecordStore

THREADS = 3
BATCHES_EACH = 6
NAMES = ("a", "b", "c")

Counters = tuple[int | None, ...]
"""Of the items, in the order of NAMES."""


@dataclass(frozen=True, slots=True)
class Done:
    """A batch and its answer: the counters of its puts, or the key and the counter of a conflict."""

    changes: tuple[RecordChange, ...]
    answer: tuple[object, ...]


def run_batches(store: RecordStore, partition: str, seed: int) -> list[list[Done]]:
    """What each thread did."""
    done: list[list[Done]] = [[] for _ in range(THREADS)]

    def run(thread: int) -> None:
        dice = random.Random(seed * THREADS + thread)
        known: dict[Key, int | None] = {}
        for _ in range(BATCHES_EACH):
            names = dice.sample(NAMES, dice.randint(1, len(NAMES)))
            changes = tuple(_change(dice, Key(partition, name), known) for name in names)
            try:
                answer: tuple[object, ...] = store.write(*changes)
                counters = iter(answer)
                for change in changes:
                    if isinstance(change, Put):
                        known[change.key] = next(counters)  # pyright: ignore[reportArgumentType]
            except Conflict as conflict:
                answer = ("conflict", conflict.name, conflict.actual)
            done[thread].append(Done(changes, answer))

    race(THREADS, run)
    return done


def has_an_order(done: Sequence[Sequence[Done]]) -> bool:
    start: tuple[tuple[int, ...], Counters] = ((0,) * len(done), (None,) * len(NAMES))
    known, waiting = {start}, [start]
    while waiting:
        places, counters = waiting.pop()
        if all(place == len(own) for place, own in zip(places, done, strict=True)):
            return True
        for thread, place in enumerate(places):
            if place == len(done[thread]):
                continue
            one = done[thread][place]
            answer, after = _carried_out(one.changes, counters)
            following = (tuple(p + (t == thread) for t, p in enumerate(places)), after)
            if answer == one.answer and following not in known:
                known.add(following)
                waiting.append(following)
    return False


def _carried_out(
    changes: Sequence[RecordChange], counters: Counters
) -> tuple[tuple[object, ...], Counters]:
    """What a store would answer that does one thing at a time."""
    items = dict(zip(NAMES, counters, strict=True))
    for change in changes:
        if not is_met(change.expect, items[change.key.sort]):
            return ("conflict", str(change.key), items[change.key.sort]), counters
    puts: list[int] = []
    for change in changes:
        name = change.key.sort
        if isinstance(change, Put):
            items[name] = (items[name] or 0) + 1
            puts.append(items[name] or 0)
        elif isinstance(change, Delete):
            items[name] = None
    return tuple(puts), tuple(items[name] for name in NAMES)


def _change(dice: random.Random, key: Key, known: dict[Key, int | None]) -> RecordChange:
    expect: Condition = dice.choice((ANY, ABSENT, ABSENT, known.get(key) or dice.randint(1, 3)))
    kind = dice.choice("pppcdd")
    if kind == "c":
        return Check(key, expect if expect is not Wildcard.ANY else ABSENT)
    return Put(key, {}, expect) if kind == "p" else Delete(key, expect)
