"""Joining: a home that nobody has used becomes another machine of an account that a place knows.

It takes over the ids of the account and of its owner, from which everything follows: namespaces are
hashes of them, so the same workspaces are the same prefixes. Keys do not travel; the machine makes one of
its own.

**It may be interrupted anywhere.** A note (`JOINING`) stands from before the first change until after the
last, and every step looks before it makes. While the note stands the home has no default account, so no
other command works on half a home; `harness join` again goes on. What a home was merely born with
(somebody looked at it before) is deleted first and lies in the trash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bootstrap.composition import Application, PrincipalServices, wire
from harness.bootstrap.first_start import adopt_joined_account
from harness.runtime.settings import Settings, read_settings, write_setting
from harness.sync.registry_sync import SyncResult
from workspaces.accounts.account import JOINING, AccountRecord
from workspaces.accounts.user import Users
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.home.locations import are_shared, bucket_at
from workspaces.ids import AccountId
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import InvalidEntry, LiveEntry, RegistryEntry, Tombstone
from workspaces.storage.records import Delete, Put
from workspaces.validation import parse

KEY_LABEL = "joined"


@dataclass(frozen=True, slots=True)
class Joined:
    account: AccountRecord
    location: str
    secret: str | None = field(default=None, repr=False)
    """A key of the account, which cannot be shown again. None: this home had joined before."""
    followed: SyncResult = field(default_factory=SyncResult)
    others: tuple[str, ...] = ()
    """Names of other accounts of the place."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The accounts of a place, and what lies there that cannot be believed."""

    accounts: list[AccountRecord]
    doubts: list[InvalidEntry]

    def named(self, reference: str) -> AccountRecord | None:
        matching = [one for one in self.accounts if reference in (one.id, one.name)]
        return matching[0] if len(matching) == 1 else None

    def listed(self) -> str:
        return ", ".join(f"{one.name} ({one.id})" for one in self.accounts) or "none"


def join(
    home: Path | None,
    location: str,
    *,
    account: str | None = None,
    place: SharedBucket | None = None,
) -> Joined:
    """`location` as in s3://bucket/prefix; `account` is its name or id, where the place has several.
    `place`: what lies there, for tests.

    Refused, with what to do about it, when the home holds other data; NotFound when nobody is there.
    """
    settings = read_settings(home)
    _check_settings(settings, location)
    place = place or bucket_at(location)
    house = wire(replace(settings, s3=location), place=place)
    try:
        place.check()
        found = _found(place)
        is_begun = house.records.get(JOINING) is not None
        here = house.accounts.default() if house.accounts.has_default() else None
        if here is not None and not is_begun and _is_joined(here, account, found, settings):
            others = tuple(one.name for one in found.accounts if one.id != here.id)
            return Joined(here, location, others=others)
        chosen = _chosen(found, account, location)
        _begin(house, settings, location, chosen)
        return _carry_out(house, place, chosen)
    finally:
        house.close()


def _check_settings(settings: Settings, location: str) -> None:
    if are_shared(settings.records):
        rule = "are shared with the other machines already"
        remedy = "there is nothing to join: set HARNESS_S3 to the same place as on the others"
        raise Refused("records", settings.records, rule, remedy=remedy)
    if settings.s3 is not None and not _is_same(settings.s3, location):
        remedy = "take it out of harness.yaml and of HARNESS_S3, or name an empty home with --home"
        raise Refused("s3", settings.s3, f"is set, and is not {location}", remedy=remedy)


def _found(place: SharedBucket) -> _Found:
    ids, doubts = place.accounts()
    accounts: list[AccountRecord] = []
    for account_id in ids:
        try:
            seen = place.registry(account_id).read("account", account_id)
            if seen is not None and isinstance(seen.entry, LiveEntry):
                accounts.append(parse(AccountRecord, seen.entry.record, within=account_id))
        except (Refused, OverLimit) as failure:
            doubts.append(InvalidEntry(f"{account_id}/account.json", str(failure)))
    return _Found(sorted(accounts, key=lambda one: (one.name, one.id)), doubts)


def _is_joined(here: AccountRecord, account: str | None, found: _Found, settings: Settings) -> bool:
    """Whether there is nothing to do: the home's account is one of those, and no other was asked for."""
    if settings.s3 is None or here.id not in [one.id for one in found.accounts]:
        return False
    return account is None or account in (here.id, here.name)


def _chosen(found: _Found, account: str | None, location: str) -> AccountRecord:
    told = "".join(f"; {doubt.name} {doubt.reason}" for doubt in found.doubts)
    if account is not None:
        one = found.named(account)
        if one is None:
            remedy = f"name one of these, by its id where names repeat: {found.listed()}{told}"
            raise NotFound(f"account at {location} called", account, remedy=remedy)
        return one
    if len(found.accounts) > 1:
        remedy = f"name one with --account: {found.listed()}"
        raise Refused("account", None, f"must be named: {location} has several", remedy=remedy)
    if not found.accounts:
        remedy = (
            "on the machine that has the workspaces, set HARNESS_S3 and run `harness sync`; "
            f"to begin a new account there, set HARNESS_S3 here{told}"
        )
        raise NotFound("account at", location, remedy=remedy)
    return found.accounts[0]


def _begin(house: Application, settings: Settings, location: str, chosen: AccountRecord) -> None:
    """The note, once it is certain that nothing of a person's is in the way."""
    note = house.records.get(JOINING)
    if note is not None:
        begun = AccountId(note.value["accountId"])
        if begun != chosen.id or not _is_same(note.value["location"], location):
            rule = f"is being joined already: {begun} at {note.value['location']}"
            remedy = "join that to the end, or name an empty home with --home"
            raise Refused("home", str(settings.home.root), rule, remedy=remedy)
        return
    why = next(_touched(house, settings), None)
    if why is not None:
        rule = f"holds data of its own ({why}), which would be another account's"
        remedy = (
            "name an empty home with --home; `harness export` and `harness import` bring files over"
        )
        raise Refused("home", str(settings.home.root), rule, remedy=remedy)
    house.records.write(Put(JOINING, {"location": location, "accountId": chosen.id}))


def _carry_out(house: Application, place: SharedBucket, chosen: AccountRecord) -> Joined:
    for account in house.accounts.list():
        if account.id != chosen.id:
            house.rooms(house.accounts.owner(account)).deletion.account()
    account = _adopted(house, place, chosen)
    rooms = house.rooms(house.accounts.owner(account))
    adopt_joined_account(rooms)
    write_setting(house.settings.home, "s3", place.location)
    for key in rooms.keys.list():  # of an attempt that was interrupted: nobody has seen it
        rooms.keys.revoke(key.id)
    _, secret = rooms.keys.create(label=KEY_LABEL)
    house.accounts.make_default(account)
    house.records.write(Delete(JOINING))
    followed = rooms.registry_sync.sync_if_reachable() if rooms.registry_sync else SyncResult()
    return Joined(account, place.location, secret, followed)


def _adopted(house: Application, place: SharedBucket, chosen: AccountRecord) -> AccountRecord:
    """The owner first: an account that can be found has one."""
    users = Users(chosen.id, house.records, house.clock)
    try:
        users.get(chosen.owner_id)
    except NotFound:
        match _entry(place, chosen):
            case LiveEntry(record=record):
                users.adopt(record, instead_of=None)
            case None:  # whoever told of the account was interrupted
                at = chosen.created_at
                made = {"id": chosen.owner_id, "name": "owner", "createdAt": at, "updatedAt": at}
                users.adopt(made, instead_of=None)
            case Tombstone():
                raise Refused("account", chosen.name, "has an owner who was deleted") from None
    try:
        return house.accounts.get(chosen.id)
    except NotFound:
        return house.accounts.adopt(chosen.as_json(), instead_of=None)


def _entry(place: SharedBucket, chosen: AccountRecord) -> RegistryEntry | None:
    """The owner's."""
    seen = place.registry(chosen.id).read("user", chosen.owner_id)
    return seen.entry if seen else None


def _touched(house: Application, settings: Settings) -> Iterator[str]:
    """What somebody has made of this home, beyond what it was born with."""
    accounts = house.accounts.list()
    if len(accounts) > 1:
        yield f"{len(accounts)} accounts"
    for account in accounts:
        if account.updated_at != account.created_at:
            yield "an account that was changed"
        yield from _touched_rooms(house.rooms(house.accounts.owner(account)), settings)
    if not accounts:
        yield from (f"files in {tree}" for tree in settings.home.trees.iterdir())


def _touched_rooms(rooms: PrincipalServices, settings: Settings) -> Iterator[str]:
    for record in rooms.workspaces.list(private=True):
        workspace = rooms.workspaces.open(record)
        is_planted = len(workspace.log(limit=2)) <= 1 and not workspace.pending()
        if record.name != settings.default_workspace or not is_planted:
            yield f"the workspace {record.name!r}"
    for agent in rooms.agents.list():
        if agent.name != settings.default_agent or agent.updated_at != agent.created_at:
            yield f"the agent {agent.name!r}"
    for sandbox in rooms.sandboxes.list():
        if sandbox.name != "default" or sandbox.updated_at != sandbox.created_at:
            yield f"the sandbox {sandbox.name!r}"
    if rooms.conversations.list():
        yield "conversations"
    if rooms.keys.list():
        yield "keys"
    if len(rooms.users.list()) > 1:
        yield "users"


def _is_same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
