"""Users: the principals inside an account.

A user that a platform knows has the platform's own id (`externalId`), unique in the account, and is
found by it; names of such users may repeat, as names of people do. A user without one is found by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from workspaces.accounts.record_catalog import Catalog, RecordKind, partition_of
from workspaces.clock import Clock
from workspaces.errors import AlreadyExists, NotFound
from workspaces.ids import AccountId, UserId, looks_like_id
from workspaces.storage.records import RecordStore
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import NAME_CHARACTERS_MAX, Name

EXTERNAL_ID_CHARACTERS_MAX = 200
"""Room for an address or a URN; four times as many bytes still fit a record's key."""

ExternalId = Annotated[
    str, Field(min_length=1, max_length=EXTERNAL_ID_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class UserRecord(StrictModel):
    id: UserId
    name: Name
    external_id: ExternalId | None = None
    """The platform's own id of this user."""
    created_at: Stamp
    updated_at: Stamp


USERS = RecordKind("user", "usr", UserRecord, handles=("external_id", "name"))


class Users:
    def __init__(
        self,
        account_id: AccountId,
        records: RecordStore,
        clock: Clock,
        *,
        may_change: bool = True,
        only: UserId | None = None,
    ) -> None:
        """`only`: the one user there is for the caller; every other one is not found."""
        self._only = only
        self._catalog = Catalog(
            USERS, partition_of(account_id), records, clock, may_change=may_change
        )

    def create(self, fields: Mapping[str, Any], *, record_id: UserId | None = None) -> UserRecord:
        """Named after the external id where no name is stated."""
        external = fields.get("externalId")
        named = {"name": external[:NAME_CHARACTERS_MAX]} if isinstance(external, str) else {}
        return self._catalog.create({**named, **fields}, record_id=record_id)

    def get(self, reference: str) -> UserRecord:
        """By id, by external id, or by the name of a user that has none. NotFound."""
        found = self._catalog.get(reference)
        if self._only not in (None, found.id):
            raise NotFound(USERS.name, reference)
        return found

    def list(self) -> list[UserRecord]:
        return self._catalog.list() if self._only is None else [self._catalog.get(self._only)]

    def patch(self, reference: str, patch: Mapping[str, Any]) -> UserRecord:
        return self._catalog.patch(reference, patch)

    def adopt(
        self, stated: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None
    ) -> UserRecord:
        """See `Catalog.adopt`."""
        return self._catalog.adopt(stated, instead_of=instead_of)

    def delete(self, reference: str) -> UserRecord:
        return self._catalog.delete(reference)

    def named_by_platform(self, reference: str, *, autocreate: bool) -> UserRecord:
        """The user that a platform means by an id or an external id, made on first use. Never one
        by its name: a platform's `owner` is not the owner."""
        try:
            return self._catalog.get(reference, by=("external_id",))
        except NotFound:
            if not autocreate or looks_like_id(reference):
                raise
        try:
            return self.create({"externalId": reference})
        except AlreadyExists:  # somebody named it in the same instant
            return self.get(reference)
