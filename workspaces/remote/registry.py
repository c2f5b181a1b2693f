"""The roster: what the machines of one account tell each other of its records, in the place.

    .records/<accountId>/account.json
    .records/<accountId>/{users,workspaces,agents}/<id>.json        `:` of a private workspace's id is `.`

An entry says what a record is (*living*), or that it was deleted (a *tombstone*, which stays for ever).
It holds no secret: no key, no hash of one, and nothing that decides what a machine may do (see
`harness.agents.agent` on sandboxes). Entries are replaced under conditions only, so nobody overwrites what it
has not seen.

**Epochs.** Each entry has an epoch, 0 at first. It grows when what a workspace was is over and something
else begins under the same id: a private workspace that was deleted and is needed again, a history from
which something was erased. A machine whose own epoch is older has nothing to bring to the new one: what
it has is buried (`Workspaces.bury`), files and history, and it begins anew with what is there. The epoch
of a workspace is the one in its entry, wherever else it may be repeated.

**Whom to believe.** Whoever can write to the place can write here, and what is read is a stranger's: an
entry is as large as it may be, is JSON, stands under its own id, and its record passes the same shape as
one that comes over HTTP. What does not is listed with the reason and touches nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NoReturn, assert_never, cast

from pydantic import Field

from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, NotFound, OverLimit, Refused, Unavailable
from workspaces.ids import ID_HEX_DIGITS, AccountId
from workspaces.storage.blobs import BlobStore, Expect, Stat, Token
from workspaces.timestamp import Stamp, moment_of, stamp_of
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import NAME_CHARACTERS_MAX

RegistryKind = Literal["account", "user", "workspace", "agent"]

KINDS: tuple[RegistryKind, ...] = ("account", "user", "workspace", "agent")
"""In the order in which they refer to each other."""

PREFIX = ".records"

FORMAT = 1

ENTRY_BYTES_MAX = 60 * 1024
"""A record fits in an item of the record store (64 KiB), and so does what is remembered of its entry."""

ENTRIES_MAX = 20_000
"""Of one account: what a listing of twenty requests brings."""

YEAR_MAX = 9000
"""Stamps grow by a microsecond at each change, and years end at 9999."""

EPOCH_MAX = 2**31

RACES_MAX = 20
"""How often a deletion is said anew; twenty changes in a row are no accident."""

THREADS = 16
"""Entries that are read at the same time: a join of a thousand at 50 ms each takes three seconds."""

_FOLDERS: Mapping[RegistryKind, str] = {
    "user": "users",
    "workspace": "workspaces",
    "agent": "agents",
}

_OWN = rf"[0-9a-f]{{{ID_HEX_DIGITS}}}"
_IDS: Mapping[RegistryKind, re.Pattern[str]] = {
    "account": re.compile(rf"acct_{_OWN}"),
    "user": re.compile(rf"usr_{_OWN}"),
    "workspace": re.compile(
        rf"ws_{_OWN}|agent:agent_{_OWN}|user:usr_{_OWN}|user:usr_{_OWN}:agent:agent_{_OWN}"
    ),
    "agent": re.compile(rf"agent_{_OWN}"),
}


@dataclass(frozen=True, slots=True)
class LiveEntry:
    id: str
    record: Mapping[str, Any] = field(hash=False)
    """As the API shows it, but for what is a machine's own business."""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    id: str
    name: str
    at: Stamp
    epoch: int = 0
    """Of the life that has ended."""
    is_swept: bool = False
    """Whether nothing of it is left in the place."""


RegistryEntry = LiveEntry | Tombstone


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it was found."""

    entry: RegistryEntry
    token: Token


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """What lies there and cannot be believed."""

    name: str
    reason: str


@dataclass(slots=True)
class RegistryListing:
    """What is there, unread."""

    tokens: dict[tuple[RegistryKind, str], Token] = field(
        default_factory=dict[tuple[RegistryKind, str], Token]
    )
    doubts: list[InvalidEntry] = field(default_factory=list[InvalidEntry])


class Registry:
    """Of one account. Threads may share it."""

    def __init__(
        self, account_id: AccountId, store: BlobStore, walk: Callable[[], Iterable[Stat]]
    ) -> None:
        """`walk`: every object of the account, under a good name or not."""
        self.account_id = account_id
        self._store = store
        self._walk = walk

    def look(self) -> RegistryListing:
        """One listing, and nothing read."""
        listing = RegistryListing()
        for stat in self._walk():
            named = _named(self.account_id, stat.name)
            if named is None:
                listing.doubts.append(InvalidEntry(stat.name, "is no name of an entry"))
            elif len(listing.tokens) >= ENTRIES_MAX:
                listing.doubts.append(InvalidEntry(stat.name, f"is beyond {ENTRIES_MAX:,} entries"))
            elif stat.size > ENTRY_BYTES_MAX:
                listing.doubts.append(InvalidEntry(stat.name, _too_large(stat.size)))
            elif stat.token is not None:
                listing.tokens[named] = stat.token
        return listing

    def read(self, kind: RegistryKind, entry_id: str) -> StoredEntry | None:
        """None when there is none. Refused, OverLimit when it cannot be believed."""
        try:
            blob = self._store.read(_name(kind, entry_id))
        except NotFound:
            return None
        return StoredEntry(decoded(kind, entry_id, blob.data), blob.token)

    def read_all(
        self, wanted: Iterable[tuple[RegistryKind, str]]
    ) -> dict[tuple[RegistryKind, str], StoredEntry | InvalidEntry | None]:
        """Several at the same time."""
        keys = list(wanted)
        if len(keys) <= 1:
            return {key: self._read(key) for key in keys}
        with ThreadPoolExecutor(min(THREADS, len(keys))) as pool:
            return dict(zip(keys, pool.map(self._read, keys), strict=True))

    def write(self, kind: RegistryKind, entry: RegistryEntry, *, expect: Expect) -> Token:
        """Conflict when somebody has been there; OverLimit."""
        return self._store.write(_name(kind, entry.id), encoded(kind, entry), expect=expect)

    def entomb(self, kind: RegistryKind, entry_id: str, name: str, at: Stamp) -> StoredEntry:
        """The tombstone of a record, as it stands there from now on, whatever was told of it before."""
        for _ in range(RACES_MAX):
            there = self.read(kind, entry_id)
            if there is not None and isinstance(there.entry, Tombstone):
                return there
            tombstone = Tombstone(entry_id, name, at, there.entry.epoch if there else 0)
            expect = there.token if there else ABSENT
            with suppress(Conflict):  # changed in this instant: what it is now is deleted
                return StoredEntry(tombstone, self.write(kind, tombstone, expect=expect))
        raise Unavailable(f"{kind} {entry_id}", "other machines keep changing its record")

    def _read(self, key: tuple[RegistryKind, str]) -> StoredEntry | InvalidEntry | None:
        try:
            return self.read(*key)
        except (Refused, OverLimit) as failure:
            return InvalidEntry(_name(*key), str(failure))


def accounts_in(walk: Iterable[Stat]) -> tuple[list[AccountId], list[InvalidEntry]]:
    """The accounts that have an `account.json` somewhere below `.records`, from a listing of it."""
    found: list[AccountId] = []
    doubts: list[InvalidEntry] = []
    for stat in walk:
        folder, _, name = stat.name.partition("/")
        if name != "account.json":
            continue
        if _IDS["account"].fullmatch(folder):
            found.append(AccountId(folder))
        else:
            doubts.append(InvalidEntry(stat.name, "is not below the id of an account"))
    return found, doubts


def is_id(kind: RegistryKind, text: str) -> bool:
    """Whether it is an id as this system gives them: what others call an id is no name of a file."""
    return _IDS[kind].fullmatch(text) is not None


def swept(tombstone: Tombstone) -> Tombstone:
    return replace(tombstone, is_swept=True)


def encoded(kind: RegistryKind, entry: RegistryEntry) -> bytes:
    """For people too, who look into the bucket."""
    if not is_id(kind, entry.id):
        raise Refused(f"{kind}.id", entry.id, "is not an id as this system gives them")
    text = json.dumps(as_document(entry), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    data = text.encode()
    if len(data) > ENTRY_BYTES_MAX:
        limit = f"what other machines are told of {kind} {entry.id}"
        raise OverLimit(limit, maximum=ENTRY_BYTES_MAX, actual=len(data), unit="bytes")
    return data


def decoded(kind: RegistryKind, entry_id: str, data: bytes) -> RegistryEntry:
    """Refused, OverLimit."""
    name = _name(kind, entry_id)
    if len(data) > ENTRY_BYTES_MAX:
        raise OverLimit(f"size of {name}", maximum=ENTRY_BYTES_MAX, actual=len(data), unit="bytes")
    try:
        document = json.loads(data.decode(), parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise Refused(name, data[:40], f"is not JSON: {error}") from error
    return of_document(kind, entry_id, document)


def as_document(entry: RegistryEntry) -> dict[str, Any]:
    match entry:
        case LiveEntry(_, record, epoch):
            return {"format": FORMAT, "epoch": epoch, "record": dict(record)}
        case Tombstone(_, name, at, epoch, is_swept):
            deleted = {"name": name, "at": at, "swept": is_swept}
            return {"format": FORMAT, "epoch": epoch, "deleted": deleted}
        case _:
            assert_never(entry)


def of_document(kind: RegistryKind, entry_id: str, document: object) -> RegistryEntry:
    name = _name(kind, entry_id)
    shaped = parse(_Document, document, within=name)
    if shaped.deleted is not None and shaped.record is None:
        deleted = shaped.deleted
        _check_stamp(f"{name}.deleted.at", deleted.at)
        return Tombstone(entry_id, deleted.name, Stamp(deleted.at), shaped.epoch, deleted.swept)
    if shaped.record is None or shaped.deleted is not None:
        raise Refused(name, document, "must have either a record or a deletion")
    record = shaped.record
    if record.get("id") != entry_id:
        raise Refused(f"{name}.record.id", record.get("id"), "is not the id that it stands under")
    for key in ("createdAt", "updatedAt"):
        _check_stamp(f"{name}.record.{key}", record.get(key))
    return LiveEntry(entry_id, record, shaped.epoch)


class _Deleted(StrictModel):
    name: Annotated[str, Field(max_length=2 * NAME_CHARACTERS_MAX)]
    at: str
    swept: bool = False


class _Document(StrictModel):
    format: Literal[1]
    epoch: Annotated[int, Field(ge=0, le=EPOCH_MAX)] = 0
    record: dict[str, Any] | None = None
    deleted: _Deleted | None = None


def _check_stamp(field_name: str, stated: object) -> None:
    """A time that is none, or so late that nothing comes after it, would break whoever counts on from it."""
    try:
        moment = moment_of(Stamp(cast(str, stated).removesuffix("Z")))
        if moment.year <= YEAR_MAX and stamp_of(moment) == stated:
            return
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise Refused(field_name, stated, "is not a stamp as revisions have them")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _name(kind: RegistryKind, entry_id: str) -> str:
    if kind == "account":
        return "account.json"
    return f"{_FOLDERS[kind]}/{entry_id.replace(':', '.')}.json"


def _named(account_id: AccountId, name: str) -> tuple[RegistryKind, str] | None:
    """Which entry a name is of; no two ids have the same."""
    if name == "account.json":
        return "account", account_id
    folder, _, file = name.partition("/")
    for kind, stated in _FOLDERS.items():
        if folder == stated and file.endswith(".json"):
            entry_id = file.removesuffix(".json").replace(".", ":")
            return (kind, entry_id) if is_id(kind, entry_id) else None
    return None


def _too_large(size: int) -> str:
    return f"has {size:,} bytes, and an entry at most {ENTRY_BYTES_MAX:,}"
