"""Records of one family in one account: workspaces, agents, users, sandboxes.

A record lies under its id, and its name under an index item beside it; both change in one batch, so
a name is unique at every instant, whoever writes. Families differ in their shape and in what they
check before a write, not in how they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from workspaces.clock import Clock
from workspaces.errors import AlreadyExists, Conflict, NotFound, Refused
from workspaces.expect import ABSENT
from workspaces.ids import AccountId, looks_like_id, new_id
from workspaces.parse import Shape, parse
from workspaces.records import Change, Delete, Item, Key, Put, RecordStore, with_prefix
from workspaces.stamp import Stamp, next_stamp, stamp_of

TRIES_MAX = 20
"""A patch is repeated on what is there now; twenty losses in a row mean something is broken."""


class Named(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Shape)


@dataclass(frozen=True, slots=True)
class Family(Generic[R]):
    name: str
    """As in `agent`: how errors and keys call it."""
    prefix: str
    """As in `agent_…`: what ids begin with."""
    shape: type[R]


class Catalog(Generic[R]):
    def __init__(
        self,
        family: Family[R],
        account_id: AccountId,
        records: RecordStore,
        clock: Clock,
        *,
        check: Callable[[R], None] = lambda _: None,
    ) -> None:
        """`check` refuses a record whose references do not hold."""
        self._family = family
        self._partition = f"account:{account_id}"
        self._records = records
        self._clock = clock
        self._check = check

    def check_new(self, fields: Mapping[str, Any]) -> R:
        """What `create` would make of these fields now; refuses what it would refuse."""
        record = self._new(fields, None)
        if self._records.get(self._name_key(_name(record))) is not None:
            raise AlreadyExists(self._family.name, _name(record))
        return record

    def create(self, fields: Mapping[str, Any], *, record_id: str | None = None) -> R:
        record = self._new(fields, record_id)
        try:
            self._records.write(
                Put(self._key(_id(record)), record.as_json(), expect=ABSENT),
                Put(self._name_key(_name(record)), {"id": _id(record)}, expect=ABSENT),
            )
        except Conflict as error:
            raise AlreadyExists(self._family.name, _name(record)) from error
        return record

    def get(self, reference: str) -> R:
        """By id, else by name. NotFound."""
        return self._shaped(self._item(reference))

    def list(self) -> list[R]:
        """In the order of their names."""
        found = with_prefix(self._records, self._partition, f"{self._family.name}:")
        return sorted((self._shaped(item) for item in found), key=_name)

    def patch(self, reference: str, patch: Mapping[str, Any]) -> R:
        """An RFC 7396 merge patch: null removes a key, objects merge, the rest replaces."""
        for key in ("id", "createdAt", "updatedAt"):
            if key in patch:
                raise Refused(key, patch[key], "cannot be changed")
        for _ in range(TRIES_MAX):
            item = self._item(reference)
            old = self._shaped(item)
            merged = _trimmed(merge_patch(item.value, patch))
            stamp = next_stamp(self._clock.now(), cast(Stamp, item.value["updatedAt"]))
            record = self._parsed({**merged, "updatedAt": stamp})
            try:
                self._records.write(
                    Put(item.key, record.as_json(), expect=item.counter),
                    *self._rename(_name(old), _name(record), _id(record)),
                )
            except Conflict as error:
                if error.name == str(self._name_key(_name(record))):
                    raise AlreadyExists(self._family.name, _name(record)) from error
                continue
            return record
        raise Conflict(self._family.name, reference, expected="a quiet moment", actual="none")

    def delete(self, reference: str) -> R:
        record = self.get(reference)
        self._records.write(Delete(self._key(_id(record))), Delete(self._name_key(_name(record))))
        return record

    def _item(self, reference: str) -> Item:
        could_name = _could_name(reference)
        found = self._records.get(self._key(reference)) if could_name else None
        if found is None and could_name:
            named = self._records.get(self._name_key(reference))
            found = self._records.get(self._key(named.value["id"])) if named else None
        if found is None:
            raise NotFound(self._family.name, reference)
        return found

    def _rename(self, old: str, new: str, record_id: str) -> tuple[Change, ...]:
        if old == new:
            return ()
        return (
            Delete(self._name_key(old)),
            Put(self._name_key(new), {"id": record_id}, expect=ABSENT),
        )

    def _new(self, fields: Mapping[str, Any], record_id: str | None) -> R:
        now = stamp_of(self._clock.now())
        stated = {
            "id": record_id or new_id(self._family.prefix),
            "createdAt": now,
            "updatedAt": now,
        }
        return self._parsed({**_trimmed(fields), **stated})

    def _parsed(self, fields: Mapping[str, Any]) -> R:
        record = parse(self._family.shape, fields)
        if looks_like_id(_name(record)) and _name(record) != _id(record):
            rule = "looks like an id: a record is found by either, so they must differ"
            raise Refused("name", _name(record), rule)
        self._check(record)
        return record

    def _shaped(self, item: Item) -> R:
        return parse(self._family.shape, item.value, within=str(item.key))

    def _key(self, record_id: str) -> Key:
        return Key(self._partition, f"{self._family.name}:{record_id}")

    def _name_key(self, name: str) -> Key:
        return Key(self._partition, f"{self._family.name}-name:{name}")


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
    """What is empty or no text (bytes of the command line that are no UTF-8) names no record, and no
    store could look for it."""
    try:
        return bool(reference.encode())
    except UnicodeEncodeError:
        return False


def _id(record: Shape) -> str:
    return cast(Named, record).id


def _name(record: Shape) -> str:
    return cast(Named, record).name
