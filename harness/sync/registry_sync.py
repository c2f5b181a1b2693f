"""Following: the records of an account become the same on all of its machines, by way of its roster.

One pass lists the roster, reads what has changed there, decides for each record what is to be done
(`workspaces.remote.registry_merge`) and does it. What was agreed on stands in the record store, one row
an entry, written after the effect. A process that dies in between meets the same entry again and finds
nothing to do. Nothing is remembered of a change but the change itself, so nothing has to be told at the
moment it is made; whoever can tells it soon (the end of a command, the resident of a server), and whoever
syncs next tells the rest.

What comes here: the account, its users; of the workspaces those that are here already (`attach` brings
one); agents that mount one of them, or none; private workspaces of users and agents that are here. What
goes from here: all of these that are shared. A workspace that this machine keeps to itself is nobody
else's business.

Deletions are carried out first, workspaces before whoever owns them: what was never pushed is told by the
workspace's own burial.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from harness.sync.registry_state import EntryName, RegistryState, SyncedEntry, Trouble
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import AlreadyExists, Busy, Conflict, Failure, NotFound, OverLimit, Refused
from workspaces.home.layout import Home
from workspaces.home.trash import TrashEntry
from workspaces.home.workspaces import is_private
from workspaces.ids import WorkspaceId
from workspaces.remote.registry import (
    KINDS,
    InvalidEntry,
    LiveEntry,
    Registry,
    RegistryEntry,
    RegistryKind,
    StoredEntry,
    Tombstone,
)
from workspaces.remote.registry_merge import (
    Apply,
    DropEntry,
    MarkSynced,
    Publish,
    PublishDeletion,
    RecordJson,
    RegistryAction,
    RemoveLocal,
    decide,
)
from workspaces.timestamp import stamp_of

ROUNDS_MAX = 5
"""What is taken may make more of it wanted (an agent, then what is private to it), and others change
entries meanwhile: what five rounds leave is left to the next pass."""

LATELY_S = 5.0
"""A turn that begins so soon after a pass of this process does without another one."""

_LOG = logging.getLogger("harness.sync.registry_sync")


class RecordAdapter(Protocol):
    """The records of one kind, as this machine has them."""

    def here(self) -> Mapping[str, RecordJson | None]:
        """What other machines are told of each, by id; None for what is no business of theirs."""
        ...

    def wants(self, told: RecordJson) -> bool:
        """Whether a record that is not here is to come."""
        ...

    def take(self, told: RecordJson, instead_of: RecordJson | None) -> None:
        """Conflict when `instead_of` is not what is here; AlreadyExists, Refused, OverLimit."""
        ...

    def bury(self, there: RegistryEntry) -> TrashEntry | None:
        """It was deleted, or where `there` is living, something else begins under its id. Busy."""
        ...


@dataclass(slots=True)
class SyncResult:
    """What a pass did."""

    published: list[str] = field(default_factory=list[str])
    applied: list[str] = field(default_factory=list[str])
    clashes: list[str] = field(default_factory=list[str])
    """What two machines had changed, where the later change counts."""
    deleted: list[str] = field(default_factory=list[str])
    """Deleted elsewhere, and here now."""
    trashed: list[TrashEntry] = field(default_factory=list[TrashEntry])
    """Workspaces among them."""
    troubles: list[Trouble] = field(default_factory=list[Trouble])


@dataclass(frozen=True, slots=True)
class Offer:
    """A shared workspace that the roster tells of."""

    id: str
    name: str
    record: RecordJson = field(default_factory=dict[str, Any], hash=False)
    is_here: bool = False
    error: str | None = None
    """Why it cannot be believed."""


class RegistrySync:
    """Of one account. Threads may share it."""

    def __init__(
        self,
        roster: Registry,
        agreements: RegistryState,
        home: Home,
        clock: Clock,
        members: Mapping[RegistryKind, RecordAdapter],
        *,
        sweep: Callable[[StoredEntry], None],
        here_decides: bool,
    ) -> None:
        """`sweep` removes what is left there of a deleted workspace. `here_decides`: other machines have
        these very records; the roster is for joiners."""
        self._roster = roster
        self._agreements = agreements
        self._home = home
        self._clock = clock
        self._members = members
        self._sweep = sweep
        self._here_decides = here_decides
        self._read: dict[EntryName, StoredEntry | InvalidEntry] = {}
        self._last_at: float | None = None

    def sync(self) -> SyncResult:
        """One pass. Unavailable in the middle of it, and then what is done is done."""
        lock = WriterLock(self._home.records_lock(self._roster.account_id))
        with lock.hold("another sync of the records"):
            followed = self._follow()
        self._agreements.wait_no_longer()
        self._last_at = self._clock.monotonic()
        return followed

    def sync_if_reachable(self) -> SyncResult:
        """For whoever has something else to do: what stands in the way is for the next pass."""
        try:
            followed = self.sync()
        except Failure as failure:
            _LOG.warning("records are not up to date: %s", failure)
            return SyncResult()
        for buried in followed.trashed:
            _LOG.warning("workspace %s is deleted; it lies in %s", buried.id, buried.place)
        return followed

    def sync_if_due(self) -> None:
        """For whoever begins something: unless it was done a moment ago."""
        if self._last_at is None or self._clock.monotonic() - self._last_at > LATELY_S:
            self.sync_if_reachable()

    def publish_pending(self) -> None:
        """At the end of something else: what nobody was told yet, unless that failed a moment ago."""
        if not self._agreements.is_waiting and self.pending():
            self._agreements.wait(self._clock.now())
            self.sync_if_reachable()

    def pending(self) -> list[str]:
        """What other machines have not been told yet. Asks nobody."""
        rows = self._agreements.all()
        found: list[str] = []
        for kind in KINDS:
            here = self._members[kind].here()
            for entry_id, told in here.items():
                row = rows.get((kind, entry_id))
                is_told = row and isinstance(row.entry, LiveEntry) and row.entry.record == told
                if told is not None and not is_told:
                    found.append(_called(kind, entry_id, told))
            for (of, entry_id), row in rows.items():
                if of == kind and isinstance(row.entry, LiveEntry) and entry_id not in here:
                    found.append(_called(kind, entry_id, row.entry.record))
        return found

    def is_over(self, workspace_id: WorkspaceId) -> bool:
        """Whether the next pass would bury what is here of a workspace. Asks for its entry alone."""
        named: EntryName = ("workspace", workspace_id)
        seen, told = self._roster.read(*named), self._members["workspace"].here().get(workspace_id)
        if seen is None or told is None:
            return False
        action = self._action(*named, self._agreements.all().get(named), told, seen)
        return isinstance(action, RemoveLocal)

    def troubles(self) -> list[Trouble]:
        """Of the last pass."""
        return self._agreements.troubles()

    def offered(self) -> list[Offer]:
        """The shared workspaces of the account, whether they are here or not."""
        listing = self._roster.look()
        wanted = [one for one in listing.tokens if _is_shared_workspace(one)]
        here = self._members["workspace"].here()
        offers: list[Offer] = []
        for (_, entry_id), seen in self._roster.read_all(wanted).items():
            match seen:
                case InvalidEntry(_, reason):
                    offers.append(Offer(entry_id, "", error=reason))
                case StoredEntry(entry=LiveEntry(record=record)):
                    is_here = here.get(entry_id) is not None
                    offers.append(Offer(entry_id, str(record.get("name")), record, is_here))
                case _:
                    pass  # it was deleted
        return sorted(offers, key=lambda one: (one.name, one.id))

    def attach(self, reference: str) -> tuple[str, SyncResult]:
        """Bring a shared workspace here, by its id or name, with the agents that mount it and what is private
        to them. Its files come with its sync. NotFound, AlreadyExists, Refused."""
        matching = [one for one in self.offered() if reference in (one.id, one.name)]
        if not matching:
            remedy = "`harness workspace attach` lists those that are there"
            raise NotFound("workspace in S3", reference, remedy=remedy)
        if len(matching) > 1:
            ids = ", ".join(one.id for one in matching)
            raise Refused("workspace", reference, "names several", remedy=f"name one by id: {ids}")
        (offer,) = matching
        if offer.error is not None:
            raise Refused(
                "workspace", reference, f"cannot be believed: {offer.error}", remedy=_LOOK
            )
        if not offer.is_here:
            self._members["workspace"].take(offer.record, None)
        return offer.id, self.sync()

    def forget(self) -> None:
        """The account is going away."""
        self._agreements.erase()

    def _follow(self) -> SyncResult:
        followed = SyncResult()
        for _ in range(ROUNDS_MAX):
            followed.troubles = []
            plan = self._plan(followed)
            if not plan:
                break
            again = [self._carried_out(*one, followed) for one in plan]
            if not any(again):
                break
        self._clear_up(followed)
        self._agreements.keep_troubles(followed.troubles)
        return followed

    # Looking, and deciding.

    def _plan(
        self, followed: SyncResult
    ) -> list[tuple[RegistryKind, str, RegistryAction, RecordJson | None]]:
        """With what is here of each, as it was when that was decided."""
        rows = self._agreements.all()
        here: dict[RegistryKind, Mapping[str, RecordJson | None]] = {
            k: self._members[k].here() for k in KINDS
        }
        there = self._there(rows, here, followed)
        self._sweep_all(there)
        plan: list[tuple[RegistryKind, str, RegistryAction, RecordJson | None]] = []
        for kind in KINDS:
            of_kind = [one for known in (rows, there) for of, one in known if of == kind]
            for entry_id in dict.fromkeys((*here[kind], *of_kind)):
                seen, row = there.get((kind, entry_id)), rows.get((kind, entry_id))
                told = here[kind].get(entry_id)
                if isinstance(seen, InvalidEntry):
                    followed.troubles.append(Trouble(seen.name, seen.reason, _LOOK))
                    continue
                if told is None and entry_id in here[kind]:
                    action = DropEntry() if row else None  # this machine keeps it to itself
                else:
                    action = self._action(kind, entry_id, row, told, seen)
                if action is not None:
                    plan.append((kind, entry_id, action, told))
        return sorted(plan, key=_order)

    def _action(
        self,
        kind: RegistryKind,
        entry_id: str,
        row: SyncedEntry | None,
        told: RecordJson | None,
        seen: StoredEntry | None,
    ) -> RegistryAction | None:
        is_wanted = (
            seen is not None
            and isinstance(seen.entry, LiveEntry)
            and self._members[kind].wants(seen.entry.record)
        )
        return decide(
            entry_id,
            row.entry if row else None,
            told,
            seen,
            is_wanted=is_wanted,
            comes_again=kind == "workspace" and is_private(WorkspaceId(entry_id)),
            here_decides=self._here_decides,
        )

    def _there(
        self,
        rows: Mapping[EntryName, SyncedEntry],
        here: Mapping[RegistryKind, Mapping[str, RecordJson | None]],
        followed: SyncResult,
    ) -> dict[EntryName, StoredEntry | InvalidEntry]:
        """What is in the roster and may matter here; read only where it is not known."""
        listing = self._roster.look()
        followed.troubles += [Trouble(one.name, one.reason, _LOOK) for one in listing.doubts]
        there: dict[EntryName, StoredEntry | InvalidEntry] = {}
        unknown: list[EntryName] = []
        for named, token in listing.tokens.items():
            row, read = rows.get(named), self._read.get(named)
            if row is not None and row.token == token:
                there[named] = StoredEntry(row.entry, token)
            elif isinstance(read, StoredEntry) and read.token == token:
                there[named] = read
            elif row is not None or _may_matter(named, here):
                unknown.append(named)
        for named, found in self._roster.read_all(unknown).items():
            if found is not None:
                there[named] = self._read[named] = found
        return there

    def _sweep_all(self, there: Mapping[EntryName, StoredEntry | InvalidEntry]) -> None:
        """What deletions that were interrupted have left in the place: before anything new begins there."""
        for (kind, _), seen in there.items():
            match seen:
                case StoredEntry(entry=Tombstone(is_swept=False)) if kind == "workspace":
                    self._sweep(seen)
                case _:
                    pass

    # Doing.

    def _carried_out(
        self,
        kind: RegistryKind,
        entry_id: str,
        action: RegistryAction,
        told: RecordJson | None,
        followed: SyncResult,
    ) -> bool:
        """Whether another look is worth it."""
        try:
            return self._carry_out(kind, entry_id, action, told, followed)
        except AlreadyExists as error:
            reason = f"another {kind} here has the name that it has there"
            followed.troubles.append(Trouble(str(error.name), reason, "rename one of the two"))
        except Conflict:
            return True  # somebody was faster, here or there
        except (Refused, OverLimit, Busy) as failure:
            called = _called(kind, entry_id, told)
            followed.troubles.append(Trouble(called, str(failure), failure.remedy))
        return False

    def _carry_out(
        self,
        kind: RegistryKind,
        entry_id: str,
        action: RegistryAction,
        told: RecordJson | None,
        followed: SyncResult,
    ) -> bool:
        members = self._members[kind]
        match action:
            case Publish(entry, expect):
                token = self._roster.write(kind, entry, expect=expect)
                self._agreements.agree(kind, StoredEntry(entry, token))
                followed.published.append(_called(kind, entry_id, entry.record))
                return False
            case PublishDeletion(was):
                name = _called(kind, entry_id, was.record if isinstance(was, LiveEntry) else None)
                now = stamp_of(self._clock.now())
                self._agreements.agree(
                    kind, self._roster.write_tombstone(kind, entry_id, name, now)
                )
                followed.published.append(name)
                return False
            case Apply(record, there, clashes):
                members.take(record, told)
                self._agreements.agree(kind, there)
                name = _called(kind, entry_id, record)
                followed.applied.append(name)
                followed.clashes += [f"{name}: {clash}" for clash in clashes]
                return True
            case RemoveLocal(there):
                buried = members.bury(there.entry)
                followed.trashed += [buried] if buried else []
                if isinstance(there.entry, Tombstone):
                    if kind == "workspace":  # this machine may have written there meanwhile
                        self._sweep(there)
                    self._agreements.agree(kind, there)
                    followed.deleted.append(_called(kind, entry_id, told))
                return True
            case MarkSynced(there):
                self._agreements.agree(kind, there)
                return False
            case DropEntry():
                self._agreements.forget(kind, entry_id)
                return False
            case _:
                assert_never(action)

    def _clear_up(self, followed: SyncResult) -> None:
        """What burials that were interrupted have left here."""
        workspaces = self._members["workspace"]
        here = workspaces.here()
        for (kind, entry_id), row in self._agreements.all().items():
            if kind == "workspace" and isinstance(row.entry, Tombstone) and entry_id not in here:
                buried = workspaces.bury(row.entry)
                followed.trashed += [buried] if buried else []


_LOOK = "look at it in the bucket: what machines cannot believe they leave alone"


def _order(
    one: tuple[RegistryKind, str, RegistryAction, RecordJson | None],
) -> tuple[bool, bool, int]:
    kind, _, action, _ = one
    is_burial = isinstance(action, RemoveLocal)
    return not is_burial, is_burial and kind != "workspace", KINDS.index(kind)


def _may_matter(
    named: EntryName, here: Mapping[RegistryKind, Mapping[str, RecordJson | None]]
) -> bool:
    """A shared workspace that nobody attached here does not."""
    kind, entry_id = named
    return kind != "workspace" or is_private(WorkspaceId(entry_id)) or entry_id in here[kind]


def _is_shared_workspace(named: EntryName) -> bool:
    return named[0] == "workspace" and not is_private(WorkspaceId(named[1]))


def _called(kind: RegistryKind, entry_id: str, told: RecordJson | None) -> str:
    name = None if told is None else told.get("name")
    return f"{kind} {name}" if isinstance(name, str) else f"{kind} {entry_id}"
