"""The catalog of records: names, configurations, patches, and adopting the records of other machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workspaces.accounts.record_catalog import Catalog, merge_patch
from workspaces.accounts.user import USERS, UserRecord
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists, Conflict, NotFound, Refused
from workspaces.home.workspaces import Workspaces
from workspaces.storage.in_memory import MemoryRecords
from workspaces.timestamp import stamp_of


@pytest.fixture
def workspaces(open_workspaces: Callable[[], Workspaces]) -> Workspaces:
    return open_workspaces()


def test_a_record_is_found_by_its_id_and_by_its_name(workspaces: Workspaces) -> None:
    record = workspaces.create("notes", description="  what we know ").record
    assert workspaces.get(record.id).record == record
    assert workspaces.get("notes").record == record
    assert record.description == "what we know"


def test_a_record_name_is_trimmed_and_unique(workspaces: Workspaces) -> None:
    workspaces.create("  notes ")
    with pytest.raises(AlreadyExists):
        workspaces.create("notes")
    assert [record.name for record in workspaces.list()] == ["notes"]


@pytest.mark.parametrize("name", ["", "   ", "two\nlines", "x" * 101, 7, None])
def test_a_bad_record_name_is_refused(workspaces: Workspaces, name: object) -> None:
    with pytest.raises(Refused) as caught:
        workspaces.create(name)  # type: ignore[arg-type]
    assert caught.value.field == "name"
    assert workspaces.list() == []


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"storage": {"provider": "ftp"}}, "config.storage.provider"),
        ({"storage": {"provider": "s3"}}, "config.storage.provider"),
        ({"storage": "s3"}, "config.storage"),
        ({"harness": {"enabled": "yes"}}, "config.harness.enabled"),
        ({"harness": {"enabeld": True}}, "config.harness.enabeld"),
        ({"memory": {"maxLength": 0}}, "config.memory.maxLength"),
        ({"memory": {"maxLength": 1.5}}, "config.memory.maxLength"),
        ({"colour": "red"}, "config.colour"),
    ],
)
def test_a_bad_configuration_is_refused_naming_the_field(
    workspaces: Workspaces, config: dict[str, object], field: str
) -> None:
    with pytest.raises(Refused) as caught:
        workspaces.create("notes", config=config)
    assert caught.value.field == field


def test_an_unknown_configuration_key_is_refused_with_the_nearest_valid_key(
    workspaces: Workspaces,
) -> None:
    with pytest.raises(Refused) as caught:
        workspaces.create("notes", config={"harness": {"enabeld": True}})
    assert caught.value.remedy == "did you mean 'enabled'?"


def test_a_record_patch_merges_objects_and_null_clears_a_field(
    workspaces: Workspaces, clock: ManualClock
) -> None:
    record = workspaces.create("notes", description="x").record
    clock.advance(1)
    patched = workspaces.patch(
        "notes", {"description": None, "config": {"harness": {"enabled": False}}}
    )
    assert patched.description is None
    assert not patched.config.harness.enabled
    assert patched.config.storage.provider == "local"
    assert patched.updated_at > record.updated_at
    assert patched.created_at == record.created_at


def test_an_updated_at_far_in_the_future_does_not_date_later_changes(
    workspaces: Workspaces, clock: ManualClock
) -> None:
    clock.jump(400 * 86_400)
    workspaces.create("notes")
    clock.jump(-400 * 86_400)
    assert workspaces.patch("notes", {"description": "x"}).updated_at == stamp_of(clock.now())


def test_a_renamed_record_is_found_only_by_its_new_name(workspaces: Workspaces) -> None:
    workspaces.create("notes")
    workspaces.create("other")
    workspaces.patch("notes", {"name": "journal"})
    assert workspaces.get("journal").record.name == "journal"
    with pytest.raises(NotFound):
        workspaces.get("notes")
    with pytest.raises(AlreadyExists):
        workspaces.patch("journal", {"name": "other"})
    workspaces.create("notes")


@pytest.mark.parametrize(
    "patch", [{"id": "ws_x"}, {"createdAt": "x"}, {"config": {"x": 1}}, {"name": None}]
)
def test_a_patch_of_a_read_only_field_is_refused(
    workspaces: Workspaces, patch: dict[str, object]
) -> None:
    record = workspaces.create("notes").record
    with pytest.raises(Refused):
        workspaces.patch("notes", patch)
    assert workspaces.get("notes").record == record


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a"], {"b": 1}, {"b": 1}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7396(target: object, patch: object, result: object) -> None:
    assert merge_patch(target, patch) == result


NOW, LATER = "2026-11-18T14:00:00.000000Z", "2026-11-18T15:00:00.000000Z"


def catalog(clock: ManualClock) -> Catalog[UserRecord]:
    return Catalog(USERS, "account:acct_1", MemoryRecords(clock), clock)


def stated(name: str, at: str = NOW, **more: object) -> dict[str, object]:
    return {"id": "usr_" + 24 * "a", "name": name, "createdAt": NOW, "updatedAt": at, **more}


def test_an_existing_name_with_invisible_characters_stays_and_new_names_are_refused(
    clock: ManualClock,
) -> None:
    """As older versions gave them, and as another machine still has one."""
    users = catalog(clock)
    old = "A\u202enn"
    users.adopt(stated(old), instead_of=None)
    assert [one.name for one in users.list()] == [old]
    assert users.get(old).name == old
    assert users.patch(old, {"externalId": "x-1"}).name == old
    for name in ("A\u2066nn", "A\x9bnn", "A\u200bnn", "A\ufe01nn"):
        with pytest.raises(Refused, match=rf"U\+{ord(name[1]):04X}"):
            users.patch("x-1", {"name": name})
        with pytest.raises(Refused, match=rf"U\+{ord(name[1]):04X}"):
            users.add({"name": name})


def test_an_adopted_record_of_another_machine_is_found_by_its_new_name(
    clock: ManualClock,
) -> None:
    users = catalog(clock)
    assert users.adopt(stated("Ann"), instead_of=None).as_json() == stated("Ann")
    users.adopt(stated("Anna", LATER), instead_of=stated("Ann"))
    assert users.get("Anna").updated_at == LATER
    with pytest.raises(NotFound):
        users.get("Ann")
    users.add({"name": "Ann"})


def test_adopting_a_record_conflicts_if_the_record_to_replace_has_changed(
    clock: ManualClock,
) -> None:
    users = catalog(clock)
    with pytest.raises(Conflict):
        users.adopt(stated("Ann"), instead_of=stated("Anna"))
    users.adopt(stated("Ann"), instead_of=None)
    for seen in (None, stated("Anna")):
        with pytest.raises(Conflict):
            users.adopt(stated("Eve", LATER), instead_of=seen)
    assert users.list()[0].name == "Ann"


def test_an_adopted_record_is_validated_and_cannot_take_a_used_name(
    clock: ManualClock,
) -> None:
    users = catalog(clock)
    users.add({"name": "Ann"})
    with pytest.raises(AlreadyExists):
        users.adopt(stated("Ann"), instead_of=None)
    users.adopt(stated("Eve"), instead_of=None)
    with pytest.raises(AlreadyExists):
        users.adopt(stated("Ann", LATER), instead_of=stated("Eve"))
    for wrong in (
        stated("usr_" + 24 * "b"),
        stated("two\nlines"),
        stated("x", colour="red"),
    ):
        with pytest.raises(Refused):
            users.adopt(wrong, instead_of=stated("Eve"))
    assert sorted(user.name for user in users.list()) == ["Ann", "Eve"]
