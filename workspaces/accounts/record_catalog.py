"""Catalogs: records of one kind in one partition.

Examples are the accounts of a home, and the workspaces, agents, users and sandboxes of an account.

A record is stored under its id. An index item beside it holds its handle, a second key for lookups (usually
its name). Both change in one batch, so a handle is unique at every instant, whichever process writes. Kinds
of records differ in their fields and in the checks before a write, not in the way they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic.alias_generators import to_camel

from workspaces import invisible_characters
from workspaces.accounts.stored_items import Handle, StoredItems
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, Forbidden, Refused
from workspaces.ids import looks_like_id, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import Delete, Item, Put, RecordChange, RecordStore
from workspaces.timestamp import Stamp, next_stamp, stamp_of
from workspaces.validation import StrictModel, parse

GIVEN = ("id", "createdAt", "updatedAt")
"""Fields of every record that only the system sets."""


class NamedRecord(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=StrictModel)


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[R]):
    name: str
    """The name of the kind in errors and keys, such as `agent`."""
    prefix: str
    """The prefix of its ids, such as `agent` in `agent_…`."""
    shape: type[R]
    handles: tuple[str, ...] = ("name",)
    """Fields for lookups. The first one that a record has is its handle, which is unique."""
    fixed: tuple[str, ...] = ()
    """Fields that no patch changes, besides the id and the stamps."""


class Catalog(Generic[R]):
    def __init__(
        self,
        kind: RecordKind[R],
        partition: str,
        records: RecordStore,
        clock: Clock,
        *,
        check: Callable[[R, R | None], None] = lambda _record, _before: None,
        also: Callable[[R, R | None], Sequence[RecordChange]] = lambda _record, _before: (),
        may_change: bool = True,
    ) -> None:
        """Store the dependencies.

        `check` refuses a record with broken references. It also receives the record before the change, so
        that a reference that broke earlier does not block other changes. `also` returns changes that follow
        from the new record, to be written in the same batch. A catalog that may not change its
        records answers every attempt with Forbidden.
        """
        self._kind = kind
        self._items = StoredItems(kind.name, partition, records, handles=kind.handles)
        self._may_change = may_change
        self._records = records
        self._clock = clock
        self._check = check
        self._also = also

    def check_new(self, fields: Mapping[str, Any]) -> R:
        """Return the record that `create` would make of these fields now.

        Raises: the errors that `create` would raise.
        """
        self._check_right("create")
        record = self._new(fields, None)
        handle = self._handle(record)
        if self._records.get(self._items.handle_key(handle)) is not None:
            raise AlreadyExists(self._kind.name, handle.value)
        return record

    def add(self, fields: Mapping[str, Any], *, record_id: str | None = None) -> R:
        self._check_right("create")
        record = self._new(fields, record_id)
        handle = self._handle(record)
        try:
            self._records.write(
                Put(self._items.key(_id(record)), record.as_json(), expect=ABSENT),
                Put(self._items.handle_key(handle), {"id": _id(record)}, expect=ABSENT),
                *self._also(record, None),
            )
        except Conflict as error:
            raise AlreadyExists(self._kind.name, handle.value) from error
        return record

    def get(self, reference: str, *, by: tuple[str, ...] | None = None) -> R:
        """Return the record with this id, else with this value in one of the handles `by` (default: any).

        Raises: NotFound if there is none.
        """
        return self._record(self._items.get(reference, by))

    def list(self) -> list[R]:
        """Return all records, ordered by name."""
        return sorted((self._record(item) for item in self._items.list()), key=_name)

    @until_written("the record")
    def patch(self, reference: str, patch: Mapping[str, Any]) -> R:
        """Apply an RFC 7396 merge patch: null removes a key, objects merge, other values replace.

        Raises: NotFound, Refused, or AlreadyExists if another record has the new name.
        """
        self._check_right("change")
        for key in (*GIVEN, *self._kind.fixed):
            if key in patch:
                raise Refused(key, patch[key], "cannot be changed")
        item = self._items.get(reference)
        old = self._record(item)
        merged = _trimmed(merge_patch(item.value, patch))
        stamp = next_stamp(self._clock.now(), cast(Stamp, item.value["updatedAt"]))
        record = self._parsed({**merged, "updatedAt": stamp}, old)
        put = Put(item.key, record.as_json(), expect=item.counter)
        renaming = self._rename(self._handle(old), self._handle(record), _id(record))
        self._write(record, put, *renaming, *self._also(record, old))
        return record

    def adopt(self, fields: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None) -> R:
        """Store a whole record of another machine, with its id and stamps.

        `instead_of` is the local record on which the caller decided that; None if there was none.

        Raises: Conflict if the local record differs by now. AlreadyExists if another record has its name.
        Refused if the record is invalid.
        """
        self._check_right("adopt")
        record = parse(self._kind.shape, fields)
        self._check_whole(record, record)
        item = self._records.get(self._items.key(_id(record)))
        old = self._record(item) if item else None
        if (old.as_json() if old else None) != instead_of:
            expected = "the version that was read" if instead_of else None
            raise Conflict(self._kind.name, _id(record), expected=expected, actual="another")
        for key in self._kind.fixed:
            if instead_of is not None and instead_of.get(key) != fields.get(key):
                rule = "differs from the local value, and this field never changes"
                raise Refused(key, fields.get(key), rule)
        handle = self._handle(record)
        index = Put(self._items.handle_key(handle), {"id": _id(record)}, expect=ABSENT)
        renaming = (index,) if old is None else self._rename(self._handle(old), handle, _id(record))
        expect = item.counter if item else ABSENT
        put = Put(self._items.key(_id(record)), record.as_json(), expect=expect)
        self._write(record, put, *renaming, *self._also(record, old))
        return record

    @until_written("the record")
    def delete(self, reference: str) -> R:
        self._check_right("delete")
        item = self._items.get(reference)
        record = self._record(item)
        handle = self._items.handle_key(self._handle(record))
        self._records.write(Delete(item.key, expect=item.counter), Delete(handle))
        return record

    def _write(self, record: R, *changes: RecordChange) -> None:
        """Write changes of a record.

        Raises: Conflict; AlreadyExists if another record has its name.
        """
        try:
            self._records.write(*changes)
        except Conflict as error:
            handle = self._handle(record)
            if error.name == str(self._items.handle_key(handle)):
                raise AlreadyExists(self._kind.name, handle.value) from error
            raise

    def _check_right(self, deed: str) -> None:
        if not self._may_change:
            raise Forbidden(f"{deed} {self._kind.name}s")

    def _rename(self, old: Handle, new: Handle, record_id: str) -> tuple[RecordChange, ...]:
        if old == new:
            return ()
        return (
            Delete(self._items.handle_key(old)),
            Put(self._items.handle_key(new), {"id": record_id}, expect=ABSENT),
        )

    def _new(self, fields: Mapping[str, Any], record_id: str | None) -> R:
        for key in GIVEN:
            if key in fields:
                raise Refused(key, fields[key], "is set by the system", remedy="leave it out")
        now = stamp_of(self._clock.now())
        system_fields = {
            "id": record_id or new_id(self._kind.prefix),
            "createdAt": now,
            "updatedAt": now,
        }
        return self._parsed({**_trimmed(fields), **system_fields}, None)

    def _parsed(self, fields: Mapping[str, Any], before: R | None) -> R:
        record = parse(self._kind.shape, fields)
        self._check_whole(record, before)
        return record

    def _check_whole(self, record: R, before: R | None) -> None:
        handle = self._handle(record)
        if looks_like_id(handle.value) and handle.value != _id(record):
            rule = "looks like an id; choose a name that does not"
            raise Refused(to_camel(handle.field), handle.value, rule)
        self._check_names(record, before)
        self._check(record, before)

    def _check_names(self, record: R, before: R | None) -> None:
        """Raise Refused for a new name with invisible characters.

        A name that the record already has may stay: it is shown with those characters escaped.
        """
        for field in {"name", *self._kind.handles}:
            name = getattr(record, field, None)
            if isinstance(name, str) and name != getattr(before, field, None):
                rule = invisible_characters.broken_rule(name)
                if rule is not None:
                    raise Refused(to_camel(field), name, rule)

    def _record(self, item: Item) -> R:
        return parse(self._kind.shape, item.value, within=str(item.key))

    def _handle(self, record: R) -> Handle:
        values = ((field, getattr(record, field)) for field in self._kind.handles)
        return next(Handle(field, value) for field, value in values if value is not None)


def merge_patch(target: object, patch: object) -> Any:
    """Return the target with an RFC 7396 merge patch applied."""
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
    """Return the fields with name and description stripped of blanks. An empty description is dropped."""
    trimmed = {
        key: value.strip() if key in {"name", "description"} and isinstance(value, str) else value
        for key, value in fields.items()
    }
    return {key: value for key, value in trimmed.items() if key != "description" or value}


def _id(record: StrictModel) -> str:
    return cast(NamedRecord, record).id


def _name(record: StrictModel) -> str:
    return cast(NamedRecord, record).name
