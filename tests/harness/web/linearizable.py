"""Is a history of reads and writes of one register linearizable? A search in the manner of Wing and Gong.

Every write has bytes of its own, so a version names its write. Equal bytes are equal states. A write that was
not decided (503, no answer) may take effect at any later time, or never. What others write without telling
(an editor, a shell, a merge of the sync) is known only by what somebody saw of it: it happens once, at any
time, if it may happen at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

HIDDEN = "hidden"
"""The state after a write of others that nobody has seen."""

Kind = Literal["read", "write", "delete"]
Outcome = Literal["done", "refused", "open"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client. `None` stands for no file."""

    kind: Kind
    outcome: Outcome
    begin: float
    end: float
    value: str | None = None
    """The version that was read or written."""
    expects: str | None = None
    """The version that a condition names."""
    is_conditional: bool = False
    was_there: bool | None = None
    """The answer said if there was a file before; None if it did not say."""


@dataclass(frozen=True, slots=True)
class State:
    value: str | None
    seen: frozenset[str] = frozenset()
    """Writes of others that have happened."""


def is_linearizable(
    operations: Sequence[Operation], *, initial: str | None = None, has_others: bool = False
) -> bool:
    """Return True if one order of the operations explains all answers. With `has_others`, programs that tell
    nothing write, too."""
    ordered = sorted(operations, key=lambda one: one.begin)
    required = [one for one in ordered if one.outcome != "open"]
    undecided = [one for one in ordered if one.outcome == "open" and one.kind != "read"]
    own = frozenset(one.value for one in ordered if one.kind == "write")
    return _Search(required, undecided, own, has_others).run(State(initial))


@dataclass(frozen=True, slots=True)
class _Place:
    """What has happened: all required operations before `first`, and `more`; and some undecided ones."""

    first: int
    more: frozenset[int]
    open: frozenset[int]
    state: State


@dataclass(frozen=True, slots=True)
class _Search:
    required: Sequence[Operation]
    undecided: Sequence[Operation]
    own: frozenset[str | None]
    has_others: bool

    def run(self, initial: State) -> bool:
        """Search depth first, the earliest operation first."""
        start = _Place(0, frozenset(), frozenset(), initial)
        known = {start}
        waiting = [start]
        while waiting:
            place = waiting.pop()
            if place.first == len(self.required):
                return True
            for following in reversed(list(self._next(place))):
                if following not in known:
                    known.add(following)
                    waiting.append(following)
        return False

    def _next(self, place: _Place) -> Iterator[_Place]:
        """Yield the places after one more operation: one that began before any other has ended."""
        earliest_end = inf
        for number in range(place.first, len(self.required)):
            one = self.required[number]
            if one.begin > earliest_end:
                break
            if number in place.more:
                continue
            earliest_end = min(earliest_end, one.end)
            for after in self._after(one, place.state):
                yield self._with(place, number, after)
        for number, one in enumerate(self.undecided):
            if number not in place.open and one.begin <= earliest_end:
                for after in self._after(one, place.state):
                    yield replace(place, open=place.open | {number}, state=after)

    def _with(self, place: _Place, number: int, after: State) -> _Place:
        first, more = place.first, set(place.more) | {number}
        while first in more:
            more.remove(first)
            first += 1
        return _Place(first, frozenset(more), place.open, after)

    def _after(self, one: Operation, state: State) -> list[State]:
        """Return the states in which the operation can have left the register."""
        before = [state]
        if self.has_others:
            before += self._of_others(one, state)
        return [after for now in before if (after := _apply(one, now)) is not None]

    def _of_others(self, one: Operation, state: State) -> list[State]:
        """Return what others may have made of the state, as far as it matters for the operation."""
        states = [State(HIDDEN, state.seen)]
        wanted = one.value if one.kind == "read" else one.expects
        if wanted is not None and wanted not in self.own and wanted not in state.seen:
            states.append(State(wanted, state.seen | {wanted}))
        return states


def _apply(one: Operation, state: State) -> State | None:
    """Return the state after the operation, or None if its answer does not fit the state."""
    now = state.value
    if one.kind == "read":
        return state if now == one.value else None
    holds = not one.is_conditional or now == one.expects
    if one.outcome == "refused":
        # a refused condition does not hold; a refused deletion without a condition found no file
        is_refused = (now != one.expects) if one.is_conditional else now is None
        return state if is_refused else None
    if one.was_there is not None and one.was_there != (now is not None):
        return None
    if not holds:
        return None  # an undecided one then simply never happens
    return State(one.value if one.kind == "write" else None, state.seen)
