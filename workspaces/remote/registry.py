"""The registry: the records of one account as its machines publish them to each other, in the bucket.

    .records/<accountId>/account.json
    .records/<accountId>/{users,workspaces,agents}/<id>.json        `:` of a private workspace's id is `.`
    .records/<accountId>/ticks/<agentId>/<tick>                     see `tick_claim`
    .records/<accountId>/forbidden/<id>.json                        see `rule_exchange`
    .records/<accountId>/machines/<id>.json                         see `machine_notes`

An entry holds a record (*live*), or states that the record was deleted (a *tombstone*, which is kept for
ever). It holds no secret: no key, no hash of a key, and no setting that decides what a machine may do
(see `harness.agents.agent` on sandboxes). Entries are replaced under conditions only, so no machine
overwrites a version that it has not read.

**Epochs.** Each entry has an epoch, 0 at first. It grows when the old workspace is over and another
begins under the same id: a private workspace that was deleted and is needed again. A history from which a
text was erased is the same life. A machine whose own epoch is older must not publish to the new one. Its
local files and history go to the trash, and it starts again from the state in the bucket.
The epoch of a workspace is the one in its entry, wherever else it may be repeated.

**Trust.** Any program that can write to the bucket can write here, so entries are untrusted input. An
entry must keep its size limit, be JSON, and stand under its own id. Its record must pass the same
validation as one that arrives over HTTP. An invalid entry is listed with the reason and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NoReturn, assert_never, cast

from pydantic import Field

from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, NotFound, OverLimit, Refused
from workspaces.ids import ID_HEX_DIGITS, AccountId
from workspaces.storage.blobs import BlobStore, Expect, Stat, Token
from workspaces.storage.contention import until_written
from workspaces.timestamp import Stamp, moment_of, stamp_of
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import NAME_CHARACTERS_MAX

RegistryKind = Literal["account", "user", "workspace", "agent"]

KINDS: tuple[RegistryKind, ...] = ("account", "user", "workspace", "agent")
"""In the order in which their records refer to each other."""

PREFIX = ".records"

TICKS = "ticks/"
"""The folder of the claims of scheduled ticks, beside the entries."""

MACHINES = "machines/"
"""The folder of the notes of machines, beside the entries."""

FORBIDDEN = "forbidden/"
"""The folder of the rules that forbid texts, beside the entries."""

FORMAT = 1

ENTRY_BYTES_MAX = 60 * 1024
"""Size limit that lets a record, and the stored copy of its entry, fit in an item of the record store
(64 KiB)."""

ENTRIES_MAX = 20_000
"""Entries of one account, as many as a listing of twenty requests returns."""

YEAR_MAX = 9000
"""Latest year of a stamp. Stamps grow by a microsecond at each change, and years end at 9999."""

EPOCH_MAX = 2**31

THREADS = 16
"""Entries read at the same time. A join of a thousand at 50 ms each takes three seconds."""

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
    """The record as the API shows it, without the fields that concern one machine only."""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    id: str
    name: str
    at: Stamp
    epoch: int = 0
    """The epoch of the life that has ended."""
    is_swept: bool = False
    """True if no object of the deleted record is left in the bucket."""


RegistryEntry = LiveEntry | Tombstone


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it was read from the bucket."""

    entry: RegistryEntry
    token: Token


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An object among the entries that cannot be trusted."""

    name: str
    reason: str


@dataclass(slots=True)
class RegistryListing:
    """A listing of the entries, which have not been read."""

    tokens: dict[tuple[RegistryKind, str], Token] = field(
        default_factory=dict[tuple[RegistryKind, str], Token]
    )
    doubts: list[InvalidEntry] = field(default_factory=list[InvalidEntry])
    rules: dict[str, Token] = field(default_factory=dict[str, Token])
    """The rules that forbid texts, by the name of their object. See `RuleExchange`."""
    machines: set[str] = field(default_factory=set[str])
    """The ids of the machines that have noted themselves. See `MachineNotes`."""


class Registry:
    """The registry of one account. Threads may share it."""

    def __init__(
        self, account_id: AccountId, store: BlobStore, walk: Callable[[], Iterable[Stat]]
    ) -> None:
        """Open the registry of an account. `walk` yields every object of the account, under a valid name
        or not."""
        self.account_id = account_id
        self._store = store
        self._walk = walk

    def look(self) -> RegistryListing:
        """List all entries without reading them."""
        listing = RegistryListing()
        for stat in self._walk():
            key = _parse_name(self.account_id, stat.name)
            if stat.name.startswith(MACHINES):
                listing.machines.add(stat.name.removeprefix(MACHINES).removesuffix(".json"))
                continue  # no entry: see `MachineNotes`
            if stat.name.startswith(TICKS):
                continue  # no entry: see `TickClaims`
            if stat.name.startswith(FORBIDDEN):
                if stat.token is not None and stat.size <= ENTRY_BYTES_MAX:
                    listing.rules[stat.name] = stat.token
                continue  # no entry: see `RuleExchange`
            if key is None:
                listing.doubts.append(InvalidEntry(stat.name, "is not the name of an entry"))
            elif len(listing.tokens) >= ENTRIES_MAX:
                listing.doubts.append(
                    InvalidEntry(stat.name, f"exceeds the limit of {ENTRIES_MAX:,} entries")
                )
            elif stat.size > ENTRY_BYTES_MAX:
                listing.doubts.append(InvalidEntry(stat.name, _too_large(stat.size)))
            elif stat.token is not None:
                listing.tokens[key] = stat.token
        return listing

    def read(self, kind: RegistryKind, entry_id: str) -> StoredEntry | None:
        """Return one entry, or None if there is none.

        Raises: Refused or OverLimit if the entry is not valid.
        """
        try:
            blob = self._store.read(_name(kind, entry_id))
        except NotFound:
            return None
        return StoredEntry(decoded(kind, entry_id, blob.data), blob.token)

    def read_all(
        self, wanted: Iterable[tuple[RegistryKind, str]]
    ) -> dict[tuple[RegistryKind, str], StoredEntry | InvalidEntry | None]:
        """Read several entries at the same time."""
        keys = list(wanted)
        if len(keys) <= 1:
            return {key: self._read(key) for key in keys}
        with ThreadPoolExecutor(min(THREADS, len(keys))) as pool:
            return dict(zip(keys, pool.map(self._read, keys), strict=True))

    def write(self, kind: RegistryKind, entry: RegistryEntry, *, expect: Expect) -> Token:
        """Write an entry, and return its token.

        Raises: Conflict if another machine has changed it; OverLimit if it is too large.
        """
        return self._store.write(_name(kind, entry.id), encoded(kind, entry), expect=expect)

    @until_written("a record of the account", lost=(Conflict, AlreadyExists))
    def write_tombstone(
        self, kind: RegistryKind, entry_id: str, name: str, at: Stamp
    ) -> StoredEntry:
        """Replace any entry of a record by a tombstone, and return the tombstone that is now stored.

        Raises: Unavailable if other machines keep changing the entry.
        """
        there = self.read(kind, entry_id)
        if there is not None and isinstance(there.entry, Tombstone):
            return there
        tombstone = Tombstone(entry_id, name, at, there.entry.epoch if there else 0)
        expect = there.token if there else ABSENT
        return StoredEntry(tombstone, self.write(kind, tombstone, expect=expect))

    def _read(self, key: tuple[RegistryKind, str]) -> StoredEntry | InvalidEntry | None:
        try:
            return self.read(*key)
        except (Refused, OverLimit) as failure:
            return InvalidEntry(_name(*key), str(failure))


def accounts_in(walk: Iterable[Stat]) -> tuple[list[AccountId], list[InvalidEntry]]:
    """Return the accounts with an `account.json` below `.records`, and the invalid names, from a listing."""
    account_ids: list[AccountId] = []
    doubts: list[InvalidEntry] = []
    for stat in walk:
        folder, _, name = stat.name.partition("/")
        if name != "account.json":
            continue
        if _IDS["account"].fullmatch(folder):
            account_ids.append(AccountId(folder))
        else:
            doubts.append(InvalidEntry(stat.name, "is not below an account id"))
    return account_ids, doubts


def is_id(kind: RegistryKind, text: str) -> bool:
    """Return True if this system issues ids of this form. Any other id must not become the name of a file."""
    return _IDS[kind].fullmatch(text) is not None


def swept(tombstone: Tombstone) -> Tombstone:
    return replace(tombstone, is_swept=True)


def encoded(kind: RegistryKind, entry: RegistryEntry) -> bytes:
    """Return the bytes of an entry, formatted so that people who browse the bucket can read it.

    Raises: Refused if the id is not valid; OverLimit if the entry is too large.
    """
    if not is_id(kind, entry.id):
        raise Refused(f"{kind}.id", entry.id, "is not an id issued by this system")
    text = json.dumps(as_document(entry), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    data = text.encode()
    if len(data) > ENTRY_BYTES_MAX:
        limit = f"registry entry of {kind} {entry.id}"
        raise OverLimit(limit, maximum=ENTRY_BYTES_MAX, actual=len(data), unit="bytes")
    return data


def decoded(kind: RegistryKind, entry_id: str, data: bytes) -> RegistryEntry:
    """Return the entry stored in these bytes.

    Raises: Refused if it is not valid; OverLimit if it is too large.
    """
    name = _name(kind, entry_id)
    if len(data) > ENTRY_BYTES_MAX:
        raise OverLimit(f"size of {name}", maximum=ENTRY_BYTES_MAX, actual=len(data), unit="bytes")
    try:
        document = json.loads(data.decode(), parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()  # refuses a lone surrogate
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
    parsed = parse(_Document, document, within=name)
    if parsed.deleted is not None and parsed.record is None:
        deleted = parsed.deleted
        _check_stamp(f"{name}.deleted.at", deleted.at)
        return Tombstone(entry_id, deleted.name, Stamp(deleted.at), parsed.epoch, deleted.swept)
    if parsed.record is None or parsed.deleted is not None:
        raise Refused(name, document, "must have either a record or a deletion")
    record = parsed.record
    if record.get("id") != entry_id:
        raise Refused(
            f"{name}.record.id", record.get("id"), "is not the id in the name of the entry"
        )
    for key in ("createdAt", "updatedAt"):
        _check_stamp(f"{name}.record.{key}", record.get(key))
    return LiveEntry(entry_id, record, parsed.epoch)


class _Deleted(StrictModel):
    name: Annotated[str, Field(max_length=2 * NAME_CHARACTERS_MAX)]
    at: str
    swept: bool = False


class _Document(StrictModel):
    format: Literal[1]
    epoch: Annotated[int, Field(ge=0, le=EPOCH_MAX)] = 0
    record: dict[str, Any] | None = None
    deleted: _Deleted | None = None


def _check_stamp(field_name: str, value: object) -> None:
    """Check a stamp: one that is malformed, or too late for any later stamp, would break code that
    counts on from it.

    Raises: Refused if the value is not such a stamp.
    """
    try:
        moment = moment_of(Stamp(cast(str, value).removesuffix("Z")))
        if moment.year <= YEAR_MAX and stamp_of(moment) == value:
            return
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise Refused(field_name, value, "is not a valid stamp")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _name(kind: RegistryKind, entry_id: str) -> str:
    if kind == "account":
        return "account.json"
    return f"{_FOLDERS[kind]}/{entry_id.replace(':', '.')}.json"


def _parse_name(account_id: AccountId, name: str) -> tuple[RegistryKind, str] | None:
    """Return the kind and id that a name belongs to. No two ids have the same name."""
    if name == "account.json":
        return "account", account_id
    folder, _, file = name.partition("/")
    for kind, kind_folder in _FOLDERS.items():
        if folder == kind_folder and file.endswith(".json"):
            entry_id = file.removesuffix(".json").replace(".", ":")
            return (kind, entry_id) if is_id(kind, entry_id) else None
    return None


def _too_large(size: int) -> str:
    return f"has {size:,} bytes, but an entry may have at most {ENTRY_BYTES_MAX:,}"
