"""The merge of the registry: the action for each state of a record, and that all machines converge."""

from __future__ import annotations

import random
from typing import Any

import pytest

from workspaces.conditions import ABSENT
from workspaces.remote.registry import LiveEntry, RegistryEntry, StoredEntry, Tombstone
from workspaces.remote.registry_merge import (
    Apply,
    DropEntry,
    MarkSynced,
    Publish,
    PublishDeletion,
    RegistryAction,
    RemoveLocal,
    decide,
    merge_records,
)
from workspaces.storage.blobs import Token
from workspaces.timestamp import Stamp

ID = "ws_" + 24 * "a"
T = Token("t")


def at(minute: int) -> Stamp:
    return Stamp(f"2026-11-18T14:{minute:02}:00.000000Z")


def told(name: str = "notes", minute: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": ID, "name": name, "createdAt": at(0), "updatedAt": at(minute), **more}


def living(name: str = "notes", minute: int = 0, epoch: int = 0, **more: Any) -> LiveEntry:
    return LiveEntry(ID, told(name, minute, **more), epoch)


def dead(epoch: int = 0) -> Tombstone:
    return Tombstone(ID, "notes", at(30), epoch)


def decided(
    base: RegistryEntry | None,
    here: dict[str, Any] | None,
    there: RegistryEntry | None,
    **more: bool,
) -> RegistryAction | None:
    seen = None if there is None else StoredEntry(there, T)
    return decide(ID, base, here, seen, **{"is_wanted": False, **more})


OLD, NEW, OTHER = living("notes"), living("new", 1), living("other", 2)


@pytest.mark.parametrize(
    ("base", "here", "there", "expected"),
    [
        # in accord
        (OLD, told("notes"), OLD, None),
        (None, None, OLD, None),
        (None, None, None, None),
        (dead(), None, dead(), None),
        # only here
        (None, told("notes"), None, Publish(OLD, ABSENT)),
        (OLD, told("new", 1), OLD, Publish(NEW, T)),
        (OLD, None, OLD, PublishDeletion(OLD, T)),
        # only there
        (OLD, told("notes"), NEW, Apply(NEW.record, StoredEntry(NEW, T))),
        (OLD, told("notes"), dead(), RemoveLocal(StoredEntry(dead(), T))),
        (None, None, dead(), MarkSynced(StoredEntry(dead(), T))),
        (OLD, None, None, DropEntry()),
        # on both
        (OLD, told("new", 1), NEW, MarkSynced(StoredEntry(NEW, T))),
        (None, told("notes"), OLD, MarkSynced(StoredEntry(OLD, T))),
        (OLD, told("new", 1), OTHER, Apply(OTHER.record, StoredEntry(OTHER, T), ("name",))),
        (OLD, told("other", 2), NEW, Publish(OTHER, T)),
        (None, told("new", 1), OTHER, Apply(OTHER.record, StoredEntry(OTHER, T), ("name",))),
        # a deletion wins over a change, on either side
        (OLD, told("new", 1), dead(), RemoveLocal(StoredEntry(dead(), T))),
        (OLD, None, NEW, PublishDeletion(OLD, T)),
        # a tombstone stays
        (dead(), None, OLD, PublishDeletion(dead(), T)),
        (dead(), None, None, DropEntry()),
        # what was made here without having heard of the deletion, under an id that comes once
        (None, told("notes"), dead(), RemoveLocal(StoredEntry(dead(), T))),
        # another life began there
        (OLD, told("new", 1), living(epoch=1), RemoveLocal(StoredEntry(living(epoch=1), T))),
        (OLD, None, living(epoch=1), Apply(OLD.record, StoredEntry(living(epoch=1), T))),
        (dead(), None, living(epoch=1), Apply(OLD.record, StoredEntry(living(epoch=1), T))),
        # a life that is over was put back there
        (living(epoch=1), told("notes"), OLD, Publish(living(epoch=1), T)),
        (living(epoch=1), told("notes"), dead(0), Publish(living(epoch=1), T)),
        # the bucket lost it
        (living(epoch=2), told("notes"), None, Publish(living(epoch=2), ABSENT)),
    ],
)
def test_each_state_of_a_record_has_its_registry_action(
    base: RegistryEntry | None,
    here: dict[str, Any] | None,
    there: RegistryEntry | None,
    expected: RegistryAction | None,
) -> None:
    assert decided(base, here, there) == expected


def test_a_registry_entry_is_applied_on_a_machine_that_wants_the_record() -> None:
    assert decided(None, None, OLD, is_wanted=True) == Apply(OLD.record, StoredEntry(OLD, T))
    assert decided(dead(), None, OLD, is_wanted=True) == PublishDeletion(dead(), T)


def test_a_record_created_again_under_its_old_id_gets_the_next_epoch() -> None:
    again = {"comes_again": True}
    assert decided(dead(), told("notes"), dead(), **again) == Publish(living(epoch=1), T)
    assert decided(None, told("notes"), dead(4), **again) == Publish(living(epoch=5), T)
    assert decided(OLD, told("notes"), dead(), **again) == RemoveLocal(StoredEntry(dead(), T))
    made_anew = told("notes", createdAt=at(40))
    assert decided(OLD, made_anew, dead(), **again) == Publish(LiveEntry(ID, made_anew, 1), T)
    assert decided(dead(), told("notes"), None, **again) == Publish(living(epoch=1), ABSENT)


def test_with_shared_records_the_registry_is_written_but_not_followed() -> None:
    assert decided(OLD, told("notes"), NEW, here_decides=True) == Publish(OLD, T)
    assert decided(OLD, told("new", 1), OTHER, here_decides=True) == Publish(NEW, T)
    assert decided(OLD, told("notes"), dead(), here_decides=True) == RemoveLocal(
        StoredEntry(dead(), T)
    )


def test_registry_records_merge_key_by_key() -> None:
    base = told(config={"quota": {"files": 1, "bytes": 2}, "harness": {"enabled": True}})
    here = told(minute=1, config={"quota": {"files": 9, "bytes": 2}, "harness": {"enabled": True}})
    there = told("new", 2, config={"quota": {"files": 1, "bytes": 8}}, description="d")
    expected = told("new", 2, config={"quota": {"files": 9, "bytes": 8}}, description="d")
    assert merge_records(base, here, there) == (expected, ())
    assert merge_records(base, there, here) == (expected, ())


def test_a_value_changed_on_both_sides_takes_the_later_record_and_is_reported() -> None:
    base, here = told(config={"a": 1, "b": [1]}), told(minute=3, config={"a": 2, "b": [1, 2]})
    there = told(minute=2, config={"b": [1, 3], "c": 0})
    expected = told(minute=3, config={"a": 2, "b": [1, 2], "c": 0})
    record, clashes = merge_records(base, here, there)
    assert (record, sorted(clashes)) == (expected, ["config.a", "config.b"])
    mirrored, clashes = merge_records(base, there, here)
    assert (mirrored, sorted(clashes)) == (expected, ["config.a", "config.b"])


class Shared:
    """One entry, and three machines that look at it, each with what it last agreed on."""

    def __init__(self) -> None:
        self.there: RegistryEntry | None = None
        self.bases: list[RegistryEntry | None] = [None, None, None]
        self.heres: list[dict[str, Any] | None] = [told(), None, None]

    def step(self, machine: int) -> bool:
        base, here = self.bases[machine], self.heres[machine]
        action = decided(base, here, self.there, is_wanted=True)
        match action:
            case Publish(entry):
                self.there = self.bases[machine] = entry
            case PublishDeletion(was):
                self.there = self.bases[machine] = Tombstone(ID, "notes", at(30), was.epoch)
            case Apply(record, seen):
                self.heres[machine], self.bases[machine] = dict(record), seen.entry
            case RemoveLocal(seen):
                self.heres[machine], self.bases[machine] = None, seen.entry
            case MarkSynced(seen):
                self.bases[machine] = seen.entry
            case DropEntry():
                self.bases[machine] = None
            case None:
                return False
        return True


@pytest.mark.parametrize("seed", range(300))
def test_registries_of_three_machines_converge_after_random_changes(seed: int) -> None:
    chance, shared, was_deleted = random.Random(seed), Shared(), False
    shared.step(0)
    for minute in range(40):
        machine, what = chance.randrange(3), chance.random()
        here = shared.heres[machine]
        if what < 0.4 and here is not None:
            changed = {**here, chance.choice("abc"): minute, "updatedAt": at(minute)}
            shared.heres[machine] = changed
        elif what < 0.43 and here is not None and shared.bases[machine] is not None:
            shared.heres[machine], was_deleted = None, True
        else:
            shared.step(machine)
    rounds = iter(range(10))
    while [machine for machine in range(3) if shared.step(machine)]:
        assert next(rounds, None) is not None, f"seed {seed}: it does not end"
    assert len({str(sorted((here or {}).items())) for here in shared.heres}) == 1, f"seed {seed}"
    assert isinstance(shared.there, Tombstone) == was_deleted, f"seed {seed}"
    assert (shared.heres[0] is None) == was_deleted, f"seed {seed}"
