"""Records of one family in one partition: accounts of a home; workspaces, agents, users, sandboxes
of an account.

A record lies under its id, and its handle (what it is also found by: its name, as a rule) under an
index item beside it; both change in one batch, so a handle is unique at every instant, whoever writes.
Families differ in their shape and in what they check before a write, not in how they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from pydantic.alias_generators import to_camel

from workspaces import invisible_characters
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, Forbidden, NotFound, Refused
from workspaces.ids import AccountId, looks_like_id, new_id
from workspaces.storage.records import (
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp, next_stamp, stamp_of
from workspaces.validation import StrictModel, parse

GIVEN = ("id", "createdAt", "updatedAt")
"""What the system says of every record."""

TRIES_MAX = 20
"""A change is repeated on what is there now; twenty losses in a row mean something is broken."""


REFERENCE_BYTES_MAX = 900
"""Longer than any name in bytes; with what is put before it, it still fits a record's key."""


class NamedRecord(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=StrictModel)


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[R]):
    name: str
    """As in `agent`: how errors and keys call it."""
    prefix: str
    """As in `agent_…`: what ids begin with."""
    shape: type[R]
    handles: tuple[str, ...] = ("name",)
    """A record is also found by the first of these fields that it has; no two have the same there."""
    fixed: tuple[str, ...] = ()
    """What no patch changes, beside the id and the stamps."""


class _Handle(NamedTuple):
    field: str
    value: str


def partition_of(account_id: AccountId) -> str:
    """Where the records of an account lie."""
    return f"account:{account_id}"


class Catalog(Generic[R]):
    def __init__(
        self,
        family: RecordKind[R],
        partition: str,
        records: RecordStore,
        clock: Clock,
        *,
        check: Callable[[R, R | None], None] = lambda _record, _before: None,
        may_change: bool = True,
    ) -> None:
        """`check` refuses a record whose references do not hold; it is given the record as it was too, so
        that what holds no longer stands in the way of no other change. A catalog that may not change its
        records answers every attempt with Forbidden."""
        self._family = family
        self._partition = partition
        self._may_change = may_change
        self._records = records
        self._clock = clock
        self._check = check

    def check_new(self, fields: Mapping[str, Any]) -> R:
        """What `create` would make of these fields now; refuses what it would refuse."""
        self._check_right("create")
        record = self._new(fields, None)
        handle = self._handle(record)
        if self._records.get(self._handle_key(handle)) is not None:
            raise AlreadyExists(self._family.name, handle.value)
        return record

    def create(self, fields: Mapping[str, Any], *, record_id: str | None = None) -> R:
        self._check_right("create")
        record = self._new(fields, record_id)
        handle = self._handle(record)
        try:
            self._records.write(
                Put(self._key(_id(record)), record.as_json(), expect=ABSENT),
                Put(self._handle_key(handle), {"id": _id(record)}, expect=ABSENT),
            )
        except Conflict as error:
            raise AlreadyExists(self._family.name, handle.value) from error
        return record

    def get(self, reference: str, *, by: tuple[str, ...] | None = None) -> R:
        """By id, else by one of these handles (any, unless stated). NotFound."""
        return self._shaped(self._item(reference, by))

    def list(self) -> list[R]:
        """In the order of their names."""
        found = with_prefix(self._records, self._partition, f"{self._family.name}:")
        return sorted((self._shaped(item) for item in found), key=_name)

    def patch(self, reference: str, patch: Mapping[str, Any]) -> R:
        """An RFC 7396 merge patch: null removes a key, objects merge, the rest replaces."""
        self._check_right("change")
        for key in (*GIVEN, *self._family.fixed):
            if key in patch:
                raise Refused(key, patch[key], "cannot be changed")
        for _ in range(TRIES_MAX):
            item = self._item(reference)
            old = self._shaped(item)
            merged = _trimmed(merge_patch(item.value, patch))
            stamp = next_stamp(self._clock.now(), cast(Stamp, item.value["updatedAt"]))
            record = self._parsed({**merged, "updatedAt": stamp}, old)
            try:
                self._records.write(
                    Put(item.key, record.as_json(), expect=item.counter),
                    *self._rename(self._handle(old), self._handle(record), _id(record)),
                )
            except Conflict as error:
                handle = self._handle(record)
                if error.name == str(self._handle_key(handle)):
                    raise AlreadyExists(self._family.name, handle.value) from error
                continue
            return record
        raise _restless(self._family.name, reference)

    def adopt(self, stated: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None) -> R:
        """A record as another machine has it, whole, with its id and stamps. `instead_of`: what was here when
        that was decided, None for nothing. Conflict when something else is by now; AlreadyExists when
        another
        record has its name; Refused."""
        self._check_right("adopt")
        record = parse(self._family.shape, stated)
        self._check_whole(record, record)
        item = self._records.get(self._key(_id(record)))
        old = self._shaped(item) if item else None
        if (old.as_json() if old else None) != instead_of:
            expected = "what was seen" if instead_of else None
            raise Conflict(self._family.name, _id(record), expected=expected, actual="another")
        for key in self._family.fixed:
            if instead_of is not None and instead_of.get(key) != stated.get(key):
                raise Refused(key, stated.get(key), "is not what it is here, and never changes")
        handle = self._handle(record)
        index = Put(self._handle_key(handle), {"id": _id(record)}, expect=ABSENT)
        moved = (index,) if old is None else self._rename(self._handle(old), handle, _id(record))
        expect = item.counter if item else ABSENT
        try:
            kept = Put(self._key(_id(record)), record.as_json(), expect=expect)
            self._records.write(kept, *moved)
        except Conflict as error:
            if error.name == str(self._handle_key(handle)):
                raise AlreadyExists(self._family.name, handle.value) from error
            raise
        return record

    def delete(self, reference: str) -> R:
        self._check_right("delete")
        for _ in range(TRIES_MAX):
            item = self._item(reference)
            record = self._shaped(item)
            handle = self._handle_key(self._handle(record))
            try:
                self._records.write(Delete(item.key, expect=item.counter), Delete(handle))
            except Conflict:
                continue  # renamed in the same instant: its handle is another one now
            return record
        raise _restless(self._family.name, reference)

    def _check_right(self, deed: str) -> None:
        if not self._may_change:
            raise Forbidden(f"{deed} {self._family.name}s")

    def _item(self, reference: str, by: tuple[str, ...] | None = None) -> Item:
        if _could_name(reference):
            found = self._records.get(self._key(reference))
            for field in self._family.handles if by is None else by:
                found = found or self._pointed_at(self._handle_key(_Handle(field, reference)))
            if found is not None:
                return found
        raise NotFound(self._family.name, reference)

    def _pointed_at(self, handle: Key) -> Item | None:
        pointer = self._records.get(handle)
        return self._records.get(self._key(pointer.value["id"])) if pointer else None

    def _rename(self, old: _Handle, new: _Handle, record_id: str) -> tuple[RecordChange, ...]:
        if old == new:
            return ()
        return (
            Delete(self._handle_key(old)),
            Put(self._handle_key(new), {"id": record_id}, expect=ABSENT),
        )

    def _new(self, fields: Mapping[str, Any], record_id: str | None) -> R:
        for key in GIVEN:
            if key in fields:
                raise Refused(key, fields[key], "is given by the system", remedy="leave it out")
        now = stamp_of(self._clock.now())
        stated = {
            "id": record_id or new_id(self._family.prefix),
            "createdAt": now,
            "updatedAt": now,
        }
        return self._parsed({**_trimmed(fields), **stated}, None)

    def _parsed(self, fields: Mapping[str, Any], before: R | None) -> R:
        record = parse(self._family.shape, fields)
        self._check_whole(record, before)
        return record

    def _check_whole(self, record: R, before: R | None) -> None:
        handle = self._handle(record)
        if looks_like_id(handle.value) and handle.value != _id(record):
            rule = "looks like an id: a record is found by either, so they must differ"
            raise Refused(to_camel(handle.field), handle.value, rule)
        self._check_names(record, before)
        self._check(record, before)

    def _check_names(self, record: R, before: R | None) -> None:
        """One that it has already stays: it is shown with what is not seen spelled out."""
        for field in {"name", *self._family.handles}:
            name = getattr(record, field, None)
            if isinstance(name, str) and name != getattr(before, field, None):
                rule = invisible_characters.broken_rule(name)
                if rule is not None:
                    raise Refused(to_camel(field), name, rule)

    def _shaped(self, item: Item) -> R:
        return parse(self._family.shape, item.value, within=str(item.key))

    def _key(self, record_id: str) -> Key:
        return Key(self._partition, f"{self._family.name}:{record_id}")

    def _handle(self, record: R) -> _Handle:
        values = ((field, getattr(record, field)) for field in self._family.handles)
        return next(_Handle(field, value) for field, value in values if value is not None)

    def _handle_key(self, handle: _Handle) -> Key:
        return Key(self._partition, f"{self._family.name}-{handle.field}:{handle.value}")


def merge_patch(target: object, patch: object) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(cast(Mapping[str, Any], target)) if isinstance(target, Mapping) else {}
    for key, value in cast(Mapping[str, Any], patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _trimmed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Names and descriptions without the blanks around them; an empty description is none."""
    trimmed = {
        key: value.strip() if key in {"name", "description"} and isinstance(value, str) else value
        for key, value in fields.items()
    }
    return {key: value for key, value in trimmed.items() if key != "description" or value}


def _could_name(reference: str) -> bool:
    """What is empty, endless or no text (bytes of the command line that are no UTF-8) names no
    record, and no store could look for it."""
    try:
        return 0 < len(reference.encode()) < REFERENCE_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _restless(family: str, reference: str) -> Conflict:
    return Conflict(family, reference, expected="a quiet moment", actual="none")


def _id(record: StrictModel) -> str:
    return cast(NamedRecord, record).id


def _name(record: StrictModel) -> str:
    return cast(NamedRecord, record).name
