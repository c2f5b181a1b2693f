"""Users: the principals inside an account.

A user of a platform has the platform's own id (`externalId`). It is unique in the account, and the user is
found by it. The names of such users may repeat, as names of people do. A user without an external id is
found by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from workspaces.accounts.record_catalog import Catalog, RecordKind
from workspaces.accounts.stored_items import partition_of
from workspaces.clock import Clock
from workspaces.errors import AlreadyExists, NotFound
from workspaces.ids import AccountId, UserId, looks_like_id
from workspaces.storage.records import RecordStore
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import NAME_CHARACTERS_MAX, Name

EXTERNAL_ID_CHARACTERS_MAX = 200
"""Enough for an address or a URN. Four times as many bytes still fit a record's key."""

ExternalId = Annotated[
    str, Field(min_length=1, max_length=EXTERNAL_ID_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class UserRecord(StrictModel):
    id: UserId
    name: Name
    external_id: ExternalId | None = None
    """The id of this user on the platform."""
    created_at: Stamp
    updated_at: Stamp


USERS = RecordKind("user", "usr", UserRecord, handles=("external_id", "name"))


class Users(Catalog[UserRecord]):
    def __init__(
        self,
        account_id: AccountId,
        records: RecordStore,
        clock: Clock,
        *,
        may_change: bool = True,
        only: UserId | None = None,
    ) -> None:
        """Store the dependencies. `only` is the single user that the caller can see; others are not found."""
        self._only = only
        super().__init__(USERS, partition_of(account_id), records, clock, may_change=may_change)

    def add(self, fields: Mapping[str, Any], *, record_id: str | None = None) -> UserRecord:
        """Create a user. Without a name it is named after its external id."""
        external = fields.get("externalId")
        default = {"name": external[:NAME_CHARACTERS_MAX]} if isinstance(external, str) else {}
        return super().add({**default, **fields}, record_id=record_id)

    def get(self, reference: str, *, by: tuple[str, ...] | None = None) -> UserRecord:
        """Return the user with this id or external id, or with this name and no external id.

        Raises: NotFound if there is none or the caller cannot see it.
        """
        user = super().get(reference, by=by)
        if self._only not in (None, user.id):
            raise NotFound(USERS.name, reference)
        return user

    def list(self) -> list[UserRecord]:
        return super().list() if self._only is None else [self.get(self._only)]

    def named_by_platform(self, reference: str, *, autocreate: bool) -> UserRecord:
        """Return the user with this id or external id of a platform; create it on first use.

        Names do not count: a platform's user `owner` is not the owner of the account.

        Raises: NotFound if the user does not exist and may not be created.
        """
        try:
            return super().get(reference, by=("external_id",))
        except NotFound:
            if not autocreate or looks_like_id(reference):
                raise
        try:
            return self.add({"externalId": reference})
        except AlreadyExists:  # another process created it at the same time
            return self.get(reference)
