"""Sync of an account's records between all of its machines, through the registry in S3.

One pass lists the registry, reads the entries that changed, decides for each record what to do
(`workspaces.remote.registry_merge`) and does it. The last synced state of each entry is stored in the
record store, one row for each entry, written after the effect. If the process dies in between, the next
pass meets the same entry again and finds nothing to do.

No list of pending changes is kept: a change is found by comparing the records with that state. So nothing
has to be published at the moment of a change. The end of a command or the background task of a server
publishes soon, and the next sync publishes the rest.

What is applied here: the account and its users; workspaces that are already here (`attach` brings one);
agents that mount one of these workspaces, or none; private workspaces of users and agents that are here.
What is published from here: all of these records that are shared. A workspace that this machine keeps to
itself is not published.

Deletions are carried out first, and workspaces before their owners. So files that were never pushed are
reported when the workspace itself is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from harness.sync.registry_state import EntryName, RegistryState, SyncedEntry, Trouble
from workspaces.accounts.stored_workspace import is_private
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import AlreadyExists, Busy, Conflict, Failure, NotFound, OverLimit, Refused
from workspaces.home.layout import Home
from workspaces.home.trash import TrashEntry
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
from workspaces.remote.rule_exchange import RuleExchange
from workspaces.timestamp import stamp_of

ROUNDS_MAX = 5
"""The most rounds of one pass. An applied record may make others wanted: an agent brings its private
workspaces. Other machines also change entries meanwhile. What five rounds leave is left to the next
pass."""

LATELY_S = 5.0
"""A turn that starts within so many seconds after a pass of this process does not start another pass."""

_LOG = logging.getLogger("harness.sync.registry_sync")


class RecordAdapter(Protocol):
    """The records of one kind, as this machine has them."""

    def here(self) -> Mapping[str, RecordJson | None]:
        """Return the published fields of each record, by id; None for a record that is not shared."""
        ...

    def wants(self, record: RecordJson) -> bool:
        """Return True if a record that is not on this machine should be brought here."""
        ...

    def apply(self, record: RecordJson, instead_of: RecordJson | None) -> None:
        """Store a record of another machine in place of `instead_of`.

        Raises: Conflict when `instead_of` is not the record of this machine; AlreadyExists, Refused,
        OverLimit.
        """
        ...

    def remove_local(self, there: RegistryEntry) -> TrashEntry | None:
        """Remove the local record, because it was deleted elsewhere.

        If `there` is a live entry, another record begins under this id, and the old one must go.

        Raises: Busy while the record is in use.
        """
        ...


@dataclass(slots=True)
class SyncResult:
    """The result of a pass."""

    published: list[str] = field(default_factory=list[str])
    applied: list[str] = field(default_factory=list[str])
    clashes: list[str] = field(default_factory=list[str])
    """Fields that two machines had changed; the later change counts."""
    deleted: list[str] = field(default_factory=list[str])
    """Records deleted on another machine, and now on this one."""
    trashed: list[TrashEntry] = field(default_factory=list[TrashEntry])
    """The workspaces among the deleted records."""
    troubles: list[Trouble] = field(default_factory=list[Trouble])


@dataclass(frozen=True, slots=True)
class Offer:
    """A shared workspace that is listed in the registry."""

    id: str
    name: str
    record: RecordJson = field(default_factory=dict[str, Any], hash=False)
    is_here: bool = False
    error: str | None = None
    """Why the entry is invalid."""


class RegistrySync:
    """The sync of one account's records. Threads may share it."""

    def __init__(
        self,
        registry: Registry,
        state: RegistryState,
        home: Home,
        clock: Clock,
        adapters: Mapping[RegistryKind, RecordAdapter],
        *,
        sweep: Callable[[StoredEntry], None],
        here_decides: bool,
        rules: RuleExchange,
        heard: Callable[[], object] = lambda: None,
        introduce: Callable[[], object] = lambda: None,
    ) -> None:
        """Create the sync. `heard` is called behind each pass, with the rules of other machines stored.
        `introduce` is called behind a pass that has found no note of this machine.

        `sweep` removes the remains of a deleted workspace in S3. `here_decides`: other machines use this
        very record store; the registry then serves only machines that join.
        """
        self._registry = registry
        self.state = state
        self._home = home
        self._clock = clock
        self._adapters = adapters
        self._sweep = sweep
        self._here_decides = here_decides
        self._rules = rules
        self._heard = heard
        self._introduce = introduce
        self._is_introduced = True
        self._read: dict[EntryName, StoredEntry | InvalidEntry] = {}
        self._last_at: float | None = None

    def sync(self) -> SyncResult:
        """Run one pass.

        Raises: Unavailable if S3 fails in the middle of the pass. The steps done so far stay done.
        """
        lock = WriterLock(self._home.records_lock(self._registry.account_id))
        with lock.hold("another sync of the records"):
            result = self._run_rounds()
        self.state.stop_waiting()
        self._last_at = self._clock.monotonic()
        self._heard()
        if not self._is_introduced:
            self._introduce()
        return result

    def sync_if_reachable(self) -> SyncResult:
        """Run one pass, and log a failure instead of raising it. The next pass tries again.

        For callers that have other work to do.
        """
        try:
            result = self.sync()
        except Failure as failure:
            _LOG.warning("records are not up to date: %s", failure)
            return SyncResult()
        for entry in result.trashed:
            _LOG.warning("workspace %s was deleted; it is in the trash: %s", entry.id, entry.place)
        return result

    def sync_if_due(self) -> None:
        """Run one pass before other work begins, unless this process ran one a moment ago."""
        if self._last_at is None or self._clock.monotonic() - self._last_at > LATELY_S:
            self.sync_if_reachable()

    def publish_pending(self) -> None:
        """Publish pending changes at the end of other work, unless an attempt failed a moment ago."""
        if not self.state.is_waiting and self.pending():
            self.state.wait(self._clock.now())
            self.sync_if_reachable()

    def pending(self) -> list[str]:
        """Return the names of records that were not published yet. Makes no request."""
        rows = self.state.all()
        names: list[str] = []
        for kind in KINDS:
            here = self._adapters[kind].here()
            for entry_id, record in here.items():
                row = rows.get((kind, entry_id))
                is_published = (
                    row and isinstance(row.entry, LiveEntry) and row.entry.record == record
                )
                if record is not None and not is_published:  # changed only here
                    names.append(_label(kind, entry_id, record))
            for (of, entry_id), row in rows.items():
                if of == kind and isinstance(row.entry, LiveEntry) and entry_id not in here:
                    # deleted only here
                    names.append(_label(kind, entry_id, row.entry.record))
        return names

    def is_over(self, workspace_id: WorkspaceId) -> bool:
        """Return True if the next pass would remove the local copy of a workspace. Reads this
        workspace's entry only."""
        named: EntryName = ("workspace", workspace_id)
        seen = self._registry.read(*named)
        local = self._adapters["workspace"].here().get(workspace_id)
        if seen is None or local is None:
            return False
        action = self._action(*named, self.state.all().get(named), local, seen)
        return isinstance(action, RemoveLocal)

    def offered(self) -> list[Offer]:
        """Return the shared workspaces of the account, whether they are on this machine or not."""
        listing = self._registry.look()
        self._is_introduced = self._home.machine in listing.machines
        wanted = [one for one in listing.tokens if _is_shared_workspace(one)]
        here = self._adapters["workspace"].here()
        offers: list[Offer] = []
        for (_, entry_id), seen in self._registry.read_all(wanted).items():
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
        """Bring a shared workspace here, by its id or name, and sync.

        The agents that mount it, and the private workspaces of those agents, come along. The next sync of
        the workspace brings its files.

        Raises: NotFound, AlreadyExists, Refused.
        """
        matching = [one for one in self.offered() if reference in (one.id, one.name)]
        if not matching:
            remedy = "`harness workspace attach` lists the shared workspaces"
            raise NotFound("workspace in S3", reference, remedy=remedy)
        if len(matching) > 1:
            ids = ", ".join(one.id for one in matching)
            raise Refused(
                "workspace", reference, "names several workspaces", remedy=f"name one by id: {ids}"
            )
        (offer,) = matching
        if offer.error is not None:
            raise Refused(
                "workspace", reference, f"has an invalid entry: {offer.error}", remedy=_LOOK
            )
        if not offer.is_here:
            self._adapters["workspace"].apply(offer.record, None)
        return offer.id, self.sync()

    def _run_rounds(self) -> SyncResult:
        result = SyncResult()
        for _ in range(ROUNDS_MAX):
            result.troubles = []
            plan = self._plan(result)
            if not plan:
                break
            has_more = [self._try_action(*one, result) for one in plan]
            if not any(has_more):
                break
        self._remove_leftovers(result)
        self.state.save_troubles(result.troubles)
        return result

    # Compare and decide.

    def _plan(
        self, result: SyncResult
    ) -> list[tuple[RegistryKind, str, RegistryAction, RecordJson | None]]:
        """Return the actions of a round, each with the local record that it was decided from."""
        rows = self.state.all()
        here: dict[RegistryKind, Mapping[str, RecordJson | None]] = {
            k: self._adapters[k].here() for k in KINDS
        }
        there = self._remote_entries(rows, here, result)
        account = there.get(("account", self._registry.account_id))
        if isinstance(account, StoredEntry) and isinstance(account.entry, Tombstone):
            self._is_introduced = True  # nothing may be written for a deleted account
        self._sweep_all(there)
        plan: list[tuple[RegistryKind, str, RegistryAction, RecordJson | None]] = []
        for kind in KINDS:
            of_kind = [one for known in (rows, there) for of, one in known if of == kind]
            for entry_id in dict.fromkeys((*here[kind], *of_kind)):
                seen, row = there.get((kind, entry_id)), rows.get((kind, entry_id))
                local = here[kind].get(entry_id)
                if isinstance(seen, InvalidEntry):
                    result.troubles.append(Trouble(seen.name, seen.reason, _LOOK))
                    continue
                if local is None and entry_id in here[kind]:
                    action = DropEntry() if row else None  # not shared: published no more
                else:
                    action = self._action(kind, entry_id, row, local, seen)
                if action is not None:
                    plan.append((kind, entry_id, action, local))
        return sorted(plan, key=_order)

    def _action(
        self,
        kind: RegistryKind,
        entry_id: str,
        row: SyncedEntry | None,
        local: RecordJson | None,
        seen: StoredEntry | None,
    ) -> RegistryAction | None:
        is_wanted = (
            seen is not None
            and isinstance(seen.entry, LiveEntry)
            and self._adapters[kind].wants(seen.entry.record)
        )
        return decide(
            entry_id,
            row.entry if row else None,
            local,
            seen,
            is_wanted=is_wanted,
            comes_again=kind == "workspace" and is_private(WorkspaceId(entry_id)),
            here_decides=self._here_decides,
        )

    def _remote_entries(
        self,
        rows: Mapping[EntryName, SyncedEntry],
        here: Mapping[RegistryKind, Mapping[str, RecordJson | None]],
        result: SyncResult,
    ) -> dict[EntryName, StoredEntry | InvalidEntry]:
        """Return the entries of the registry that may matter here. Only entries that are not known yet
        are read."""
        listing = self._registry.look()
        self._is_introduced = self._home.machine in listing.machines
        # first, because everything that comes in later is held against the rules
        doubts = [*self._rules.run(listing.rules), *listing.doubts]
        result.troubles += [Trouble(one.name, one.reason, _LOOK) for one in doubts]
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
        for named, found in self._registry.read_all(unknown).items():
            if found is not None:
                there[named] = self._read[named] = found
        return there

    def _sweep_all(self, there: Mapping[EntryName, StoredEntry | InvalidEntry]) -> None:
        """Finish interrupted deletions in S3 before anything new begins there."""
        for (kind, _), seen in there.items():
            match seen:
                case StoredEntry(entry=Tombstone(is_swept=False)) if kind == "workspace":
                    self._sweep(seen)
                case _:
                    pass

    # Carry out.

    def _try_action(
        self,
        kind: RegistryKind,
        entry_id: str,
        action: RegistryAction,
        local: RecordJson | None,
        result: SyncResult,
    ) -> bool:
        """Carry out one action. Return True if another round may find more to do."""
        try:
            return self._carry_out(kind, entry_id, action, local, result)
        except AlreadyExists as error:
            reason = f"another {kind} on this machine already has this name"
            result.troubles.append(Trouble(str(error.name), reason, "rename one of the two"))
        except Conflict:
            return True  # another process or machine changed it first: look again
        except (Refused, OverLimit, Busy) as failure:
            label = _label(kind, entry_id, local)
            result.troubles.append(Trouble(label, str(failure), failure.remedy))
        return False

    def _carry_out(
        self,
        kind: RegistryKind,
        entry_id: str,
        action: RegistryAction,
        local: RecordJson | None,
        result: SyncResult,
    ) -> bool:
        adapter = self._adapters[kind]
        match action:
            case Publish(entry, expect):
                token = self._registry.write(kind, entry, expect=expect)
                self.state.mark_synced(kind, StoredEntry(entry, token))
                result.published.append(_label(kind, entry_id, entry.record))
                return False
            case PublishDeletion(was):
                name = _label(kind, entry_id, was.record if isinstance(was, LiveEntry) else None)
                now = stamp_of(self._clock.now())
                self.state.mark_synced(
                    kind, self._registry.write_tombstone(kind, entry_id, name, now)
                )
                result.published.append(name)
                return False
            case Apply(record, there, clashes):
                adapter.apply(record, local)
                self.state.mark_synced(kind, there)
                name = _label(kind, entry_id, record)
                result.applied.append(name)
                result.clashes += [f"{name}: {clash}" for clash in clashes]
                return True
            case RemoveLocal(there):
                entry = adapter.remove_local(there.entry)
                result.trashed += [entry] if entry else []
                if isinstance(there.entry, Tombstone):
                    if kind == "workspace":  # this machine may have written to S3 meanwhile
                        self._sweep(there)
                    self.state.mark_synced(kind, there)
                    result.deleted.append(_label(kind, entry_id, local))
                return True
            case MarkSynced(there):
                self.state.mark_synced(kind, there)
                return False
            case DropEntry():
                self.state.forget(kind, entry_id)
                return False
            case _:
                assert_never(action)

    def _remove_leftovers(self, result: SyncResult) -> None:
        """Finish removals of local workspaces that were interrupted."""
        workspaces = self._adapters["workspace"]
        here = workspaces.here()
        for (kind, entry_id), row in self.state.all().items():
            if kind == "workspace" and isinstance(row.entry, Tombstone) and entry_id not in here:
                entry = workspaces.remove_local(row.entry)
                result.trashed += [entry] if entry else []


_LOOK = "inspect the object in the bucket; machines ignore entries that are not valid"


def _order(
    one: tuple[RegistryKind, str, RegistryAction, RecordJson | None],
) -> tuple[bool, bool, int]:
    kind, _, action, _ = one
    is_removal = isinstance(action, RemoveLocal)
    return not is_removal, is_removal and kind != "workspace", KINDS.index(kind)


def _may_matter(
    named: EntryName, here: Mapping[RegistryKind, Mapping[str, RecordJson | None]]
) -> bool:
    """Return False for a shared workspace that is not attached here; True for any other entry."""
    kind, entry_id = named
    return kind != "workspace" or is_private(WorkspaceId(entry_id)) or entry_id in here[kind]


def _is_shared_workspace(named: EntryName) -> bool:
    return named[0] == "workspace" and not is_private(WorkspaceId(named[1]))


def _label(kind: RegistryKind, entry_id: str, record: RecordJson | None) -> str:
    name = None if record is None else record.get("name")
    return f"{kind} {name}" if isinstance(name, str) else f"{kind} {entry_id}"
