"""What a forgetting found: places with counts, and never the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from harness.forgetting.record_places import Where
from workspaces.storage.records import JsonObject


class FoundPlace(NamedTuple):
    """A place in which phrases were found."""

    where: str
    workspace: str | None = None
    """The name of a workspace, or its id."""
    path: str | None = None
    """A path in the workspace or the home, or the name of a record. Phrases in it are replaced."""
    revision: str | None = None
    conversation: str | None = None

    def as_json(self) -> JsonObject:
        fields = cast("Mapping[str, Any]", self._asdict())
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PlaceCount:
    place: FoundPlace
    count: int

    def as_json(self) -> JsonObject:
        return {**self.place.as_json(), "count": self.count}


@dataclass(frozen=True, slots=True)
class BeyondReach:
    """A place that a forgetting cannot change, and why."""

    where: str
    why: str

    def as_json(self) -> JsonObject:
        return {"where": self.where, "why": self.why}


class Findings:
    """Places that are being collected. Counts at the same place are summed."""

    def __init__(self) -> None:
        self._counts: Counter[FoundPlace] = Counter()
        self._unreachable: dict[BeyondReach, None] = {}

    def add(self, place: FoundPlace, count: int) -> None:
        if count:
            self._counts[place] += count

    def cannot(self, where: str, why: str) -> None:
        self._unreachable[BeyondReach(where, why)] = None

    def of(self, where: Where) -> int:
        """Return the number of phrases in places of this kind."""
        return sum(count for place, count in self._counts.items() if place.where == where)

    @property
    def found(self) -> tuple[PlaceCount, ...]:
        return tuple(PlaceCount(place, count) for place, count in self._counts.items())

    @property
    def unreachable(self) -> tuple[BeyondReach, ...]:
        return tuple(self._unreachable)


def found_of(values: Iterable[JsonObject]) -> tuple[PlaceCount, ...]:
    """Return stored places."""
    return tuple(
        PlaceCount(
            FoundPlace(**{name: one for name, one in value.items() if name != "count"}),
            value["count"],
        )
        for value in values
    )


def unreachable_of(values: Iterable[JsonObject]) -> tuple[BeyondReach, ...]:
    return tuple(BeyondReach(value["where"], value["why"]) for value in values)
