"""Join: an unused home becomes another machine of an account that exists in S3.

The home takes over the ids of the account and of its owner. Everything else follows from them: namespaces are
hashes of these ids, so the same workspaces have the same prefixes. Keys are not shared; this machine creates
a key of its own.

**The procedure may be interrupted anywhere.** A note (`JOINING`) exists from before the first change until
after the last one, and every step looks before it creates. While the note exists the home has no default
account, so no other command works on half a home. `harness join` again goes on. The defaults of a first start
(the home was opened before) are deleted first and moved to the trash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bootstrap.composition import Application, wire
from harness.bootstrap.first_start import adopt_joined_account
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runtime.settings import Settings, read_settings, write_setting
from harness.sync.registry_sync import SyncResult
from workspaces.accounts.account import JOINING, AccountRecord
from workspaces.accounts.user import Users
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.home.locations import are_shared, bucket_at
from workspaces.home.lost_records import check_has_records
from workspaces.ids import AccountId
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import InvalidEntry, LiveEntry, RegistryEntry, Tombstone
from workspaces.storage.records import Delete, Put
from workspaces.validation import parse

KEY_LABEL = "joined"


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a join."""

    account: AccountRecord
    location: str
    secret: str | None = field(default=None, repr=False)
    """A key of the account, which cannot be shown again. None: this home had joined before."""
    sync_result: SyncResult = field(default_factory=SyncResult)
    others: tuple[str, ...] = ()
    """The names of other accounts in the bucket."""


@dataclass(frozen=True, slots=True)
class _FoundAccounts:
    """The accounts in a bucket, and the objects there that are not valid."""

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
    """Join an account.

    `location` is written as s3://bucket/prefix. `account` is a name or id, needed where the bucket has
    several accounts. `place` is the bucket itself, for tests.

    Raises: Refused, with a remedy, when the home holds other data; NotFound when the bucket has no such
    account.
    """
    settings = read_settings(home)
    _check_settings(settings, location)
    place = place or bucket_at(location)
    application = wire(replace(settings, s3=location), place=place)
    try:
        check_has_records(settings.home, application.accounts, settings.records_shown)
        place.check()
        candidates = _found(place)
        is_begun = application.records.get(JOINING) is not None
        here = application.accounts.default() if application.accounts.has_default() else None
        if here is not None and not is_begun and _is_joined(here, account, candidates, settings):
            others = tuple(one.name for one in candidates.accounts if one.id != here.id)
            return Joined(here, location, others=others)
        chosen = _chosen(candidates, account, location)
        _begin(application, settings, location, chosen)
        return _carry_out(application, place, chosen)
    finally:
        application.close()


def _check_settings(settings: Settings, location: str) -> None:
    if are_shared(settings.records):
        rule = "are already shared with the other machines"
        remedy = "there is nothing to join: set HARNESS_S3 as on the other machines"
        raise Refused("records", settings.records_shown, rule, remedy=remedy)
    if settings.s3 is not None and not _is_same(settings.s3, location):
        remedy = "remove it from harness.yaml and HARNESS_S3, or name an empty home with --home"
        raise Refused("s3", settings.s3, f"is set, and is not {location}", remedy=remedy)


def _found(place: SharedBucket) -> _FoundAccounts:
    ids, doubts = place.accounts()
    accounts: list[AccountRecord] = []
    for account_id in ids:
        try:
            seen = place.registry(account_id).read("account", account_id)
            if seen is not None and isinstance(seen.entry, LiveEntry):
                accounts.append(parse(AccountRecord, seen.entry.record, within=account_id))
        except (Refused, OverLimit) as failure:
            doubts.append(InvalidEntry(f"{account_id}/account.json", str(failure)))
    return _FoundAccounts(sorted(accounts, key=lambda one: (one.name, one.id)), doubts)


def _is_joined(
    here: AccountRecord, account: str | None, candidates: _FoundAccounts, settings: Settings
) -> bool:
    """Return True if the home already joined the account that the caller asks for."""
    if settings.s3 is None or here.id not in [one.id for one in candidates.accounts]:
        return False
    return account is None or account in (here.id, here.name)


def _chosen(candidates: _FoundAccounts, account: str | None, location: str) -> AccountRecord:
    invalid = "".join(f"; {doubt.name} {doubt.reason}" for doubt in candidates.doubts)
    if account is not None:
        one = candidates.named(account)
        if one is None:
            remedy = (
                f"name one of these, by its id where names repeat: {candidates.listed()}{invalid}"
            )
            raise NotFound(f"account at {location} called", account, remedy=remedy)
        return one
    if len(candidates.accounts) > 1:
        remedy = f"name one with --account: {candidates.listed()}"
        raise Refused(
            "account", None, f"must be named: {location} has several accounts", remedy=remedy
        )
    if not candidates.accounts:
        remedy = (
            "on the machine that has the workspaces, set HARNESS_S3 and run `harness sync`; "
            f"to begin a new account there, set HARNESS_S3 here{invalid}"
        )
        raise NotFound("account at", location, remedy=remedy)
    return candidates.accounts[0]


def _begin(
    application: Application, settings: Settings, location: str, chosen: AccountRecord
) -> None:
    """Write the note, once it is certain that no data of a person is in the way."""
    note = application.records.get(JOINING)
    if note is not None:
        begun = AccountId(note.value["accountId"])
        if begun != chosen.id or not _is_same(note.value["location"], location):
            rule = f"is already joining: {begun} at {note.value['location']}"
            remedy = "finish that join first, or name an empty home with --home"
            raise Refused("home", str(settings.home.root), rule, remedy=remedy)
        return
    change = next(_changes(application, settings), None)
    if change is not None:
        rule = f"holds data of its own ({change}), which belongs to another account"
        remedy = "name an empty home with --home; `harness export` and `harness import` copy files"
        raise Refused("home", str(settings.home.root), rule, remedy=remedy)
    application.records.write(Put(JOINING, {"location": location, "accountId": chosen.id}))


def _carry_out(application: Application, place: SharedBucket, chosen: AccountRecord) -> Joined:
    for account in application.accounts.list():
        if account.id != chosen.id:
            application.rooms(application.accounts.owner(account)).deletion.account()
    account = _adopted(application, place, chosen)
    services = application.rooms(application.accounts.owner(account))
    adopt_joined_account(services)
    write_setting(application.settings.home, "s3", place.location)
    for key in services.keys.list():  # from an interrupted attempt: its secret was never shown
        services.keys.revoke(key.id)
    _, secret = services.keys.create(label=KEY_LABEL)
    application.accounts.make_default(account)
    application.records.write(Delete(JOINING))
    services.forgettings.note_machine()
    sync_result = (
        services.registry_sync.sync_if_reachable() if services.registry_sync else SyncResult()
    )
    return Joined(account, place.location, secret, sync_result)


def _adopted(application: Application, place: SharedBucket, chosen: AccountRecord) -> AccountRecord:
    """Store the account and its owner; the owner first, because every account that exists has an owner."""
    users = Users(chosen.id, application.records, application.clock)
    try:
        users.get(chosen.owner_id)
    except NotFound:
        match _entry(place, chosen):
            case LiveEntry(record=record):
                users.adopt(record, instead_of=None)
            case None:  # the machine that published the account was interrupted
                at = chosen.created_at
                made = {"id": chosen.owner_id, "name": "owner", "createdAt": at, "updatedAt": at}
                users.adopt(made, instead_of=None)
            case Tombstone():
                raise Refused("account", chosen.name, "has an owner who was deleted") from None
    try:
        return application.accounts.get(chosen.id)
    except NotFound:
        return application.accounts.adopt(chosen.as_json(), instead_of=None)


def _entry(place: SharedBucket, chosen: AccountRecord) -> RegistryEntry | None:
    """Return the registry entry of the account's owner."""
    seen = place.registry(chosen.id).read("user", chosen.owner_id)
    return seen.entry if seen else None


def _changes(application: Application, settings: Settings) -> Iterator[str]:
    """Yield what a person changed in this home since its first start."""
    accounts = application.accounts.list()
    if len(accounts) > 1:
        yield f"{len(accounts)} accounts"
    for account in accounts:
        if account.updated_at != account.created_at:
            yield "an account that was changed"
        yield from _changed_services(
            application.rooms(application.accounts.owner(account)), settings
        )
    if not accounts:
        yield from (f"files in {tree}" for tree in settings.home.trees.iterdir())


def _changed_services(services: PrincipalServices, settings: Settings) -> Iterator[str]:
    for record in services.workspaces.list(private=True):
        workspace = services.workspaces.open(record)
        is_unchanged = len(workspace.log(limit=2)) <= 1 and not workspace.edits.pending()
        if record.name != settings.default_workspace or not is_unchanged:
            yield f"the workspace {record.name!r}"
    for agent in services.agents.list():
        if agent.name != settings.default_agent or agent.updated_at != agent.created_at:
            yield f"the agent {agent.name!r}"
    for sandbox in services.sandboxes.list():
        if sandbox.name != "default" or sandbox.updated_at != sandbox.created_at:
            yield f"the sandbox {sandbox.name!r}"
    if services.conversations.list():
        yield "conversations"
    if services.keys.list():
        yield "keys"
    if len(services.users.list()) > 1:
        yield "users"


def _is_same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
