"""Create a backup of a home that is in use.

    deletions are held off → state.db, as it is at one moment → large values
    → each workspace: baseline, tree and history → settings, templates, cards, keys → listing → snapshot

The order makes every reference resolve. What a record refers to is written before the record, and nothing is
deleted meanwhile; so what is copied later has it. A workspace is read twice: once while others write, and
once under its writer lock, after manual edits were committed. The second time only what changed is read, so
the lock is held for about as long as one stat for each file. A workspace that is as it was in the last backup
is not locked at all.

The baseline of a shared workspace is read before its tree, under the same lock. A baseline may be older than
its tree and never newer. So a restored home knows which files it had agreed on with S3: what has changed
there since is pulled, what was deleted there is deleted here, and only what was not pushed is pushed.

A backup that dies leaves pieces and no snapshot. The next one finds these pieces and goes on.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from harness.backup.depot import Depot, DepotContent, PieceWriter, depot_at, writing
from harness.backup.listing import (
    AGREED,
    RECORDS,
    BackupSnapshot,
    Listed,
    ListedFile,
)
from harness.backup.reader import HomeReader, OnBytes
from harness.backup.records_copy import copy_records, is_same, signature_of
from harness.bootstrap.composition import Application, wire
from harness.runtime.settings import Settings, read_settings
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import Failure, Refused, WorkspaceBusy
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.home.deletion_hold import hold_off_deletions
from workspaces.home.known_backups import note_backup
from workspaces.home.layout import Home
from workspaces.home.locations import is_database, local_file
from workspaces.home.lost_records import check_has_records, stored_namespaces
from workspaces.ids import Namespace, namespace
from workspaces.remote.bucket import SharedBucket
from workspaces.sync.baseline import Baseline
from workspaces.timestamp import Stamp, moment_of, stamp_of
from workspaces.workspace.workspace import Workspace

LOCK_WAIT_S = 900.0
"""Seconds to wait for a workspace in which a command runs. Longer than any command of an agent may take."""

LEFT_OUT = (
    "trash",
    "search indexes (made again)",
    "temporary files and locks",
    "start tokens and browser sessions",
    "the identity of this machine",
)
"""What no backup holds."""

_FILES_ONLY = "--files-only saves files and histories"
POINT_IN_TIME = (
    f"turn on point-in-time recovery of the table: it is the backup of the records; {_FILES_ONLY}"
)
DUMP = (
    f"save the table harness_records with pg_dump: it is the backup of the records; {_FILES_ONLY}"
)


@dataclass(slots=True)
class Created:
    """The result of a backup."""

    snapshot: BackupSnapshot
    stored: int
    """Bytes that the store did not have before."""
    troubles: list[str] = field(default_factory=list[str])
    """Workspaces that are damaged, with the reason. Their files are in the backup as they are."""


def create(
    home: Path | None,
    place: str,
    *,
    files_only: bool = False,
    again: bool = False,
    on_bytes: OnBytes = lambda _: None,
    bucket: SharedBucket | None = None,
) -> Created:
    """Back up a home to a place. With `again`, every file is read and every piece stored anew.

    `bucket` is the bucket in which workspaces are shared, whatever the settings say, for tests.

    Raises: Refused for a place inside the home, and for records that are elsewhere, without `files_only`.
    Busy while another backup runs. Unavailable.
    """
    settings = read_settings(home)
    records = local_file(settings.records, settings.home.root)
    if records is None and not files_only:
        rule = "are not on this machine, so no backup of this home can hold them"
        raise Refused("records", settings.records_shown, rule, remedy=_remedy(settings.records))
    depot = depot_at(place, home=settings.home, field="destination")
    application = wire(settings, place=bucket)
    try:
        check_has_records(settings.home, application.accounts, settings.records_shown)
        last = None if again else depot.last_of(settings.home.machine)
        with hold_off_deletions(settings.home), _writing(depot, last, is_again=again) as writer:
            known = dict[str, Listed]() if last is None else last.listed
            reader = HomeReader(settings.home.root, writer, known, on_bytes)
            run = _Run(application, reader, writer, last)
            if records is not None and not files_only:
                run.records(records)
            run.files()
            run.rules(depot)
            created = run.finish(depot, has_records=not files_only)
            note_backup(settings.home, place, created.snapshot.stamp)
            return created
    finally:
        application.close()


def _writing(
    depot: Depot, last: DepotContent | None, *, is_again: bool
) -> AbstractContextManager[PieceWriter]:
    known = set[str]()
    if last is not None:
        known.update(last.snapshot.listing)
        known.update(part.piece.digest for file in last.files for part in file.ranges)
    return writing(depot, known, is_again=is_again)


class _Run:
    """One backup while it is made."""

    def __init__(
        self,
        application: Application,
        reader: HomeReader,
        writer: PieceWriter,
        last: DepotContent | None,
    ) -> None:
        self._application = application
        self._settings: Settings = application.settings
        self._home: Home = application.settings.home
        self._clock: Clock = application.clock
        self._reader = reader
        self._writer = writer
        self._last = last
        self._listed: dict[str, Listed] = {}
        self._troubles: list[str] = []
        self._signature: tuple[int, ...] = ()
        self._before = _trees_in({} if last is None else last.listed)

    def records(self, file: Path) -> None:
        """Copy the records, unless they are those of the last backup."""
        before = self._last.snapshot.records_signature if self._last else ()
        known = self._reader.known.get(RECORDS)
        if isinstance(known, ListedFile) and is_same(before, signature_of(file)):
            self._signature, self._listed[RECORDS] = before, known
            return
        with self._temporary() as copy:
            self._signature = copy_records(file, copy)
            self._listed[RECORDS] = self._reader.copied(RECORDS, copy)
        self._writer.seal()

    def files(self) -> None:
        """Read everything but the records."""
        self._listed |= self._reader.take("entries")
        self._writer.seal()
        opened = self._workspaces()
        for name in sorted({*stored_namespaces(self._home), *opened}):
            self._workspace(name, opened.get(name))
            self._writer.seal()
        for path in ("cards", "templates", "used", "admin.key"):
            self._listed |= self._reader.take(path)
        for file in sorted(self._home.root.glob("*.yaml")):
            self._listed |= self._reader.take(file.name)

    def rules(self, depot: Depot) -> None:
        """Tell all backups at this place what is forbidden by now."""
        for account in self._application.accounts.list():
            rules = RuleRecords(account.id, self._application.records, self._clock)
            if entries := rules.entries():
                depot.rules.publish(account.id, entries)

    def finish(self, depot: Depot, *, has_records: bool) -> Created:
        """Store the listing, and then the snapshot."""
        self._writer.finish()
        lines = (one.as_line() for _, one in sorted(self._listed.items()))
        listing = self._writer.alone("".join(f"{line}\n" for line in lines).encode())
        self._writer.finish()
        files = [one for one in self._listed.values() if isinstance(one, ListedFile)]
        snapshot = BackupSnapshot(
            stamp=_new_stamp(self._clock, depot.stamps()),
            machine=self._home.machine,
            records=has_records,
            records_signature=self._signature,
            files=len(files),
            size=sum(one.size for one in files),
            listing=tuple(one.piece.digest for one in listing),
            left_out=tuple(sorted(_printable(one) for one in self._reader.left_out)),
        )
        depot.put_snapshot(snapshot)
        return Created(snapshot, self._writer.stored, self._troubles)

    def _workspaces(self) -> dict[Namespace, Callable[[], Workspace]]:
        """Find the workspaces that should have files here, each with a function that opens it."""
        found: dict[Namespace, Callable[[], Workspace]] = {}
        accounts = self._application.accounts
        for account in accounts.list():
            workspaces = self._application.rooms(accounts.owner(account)).workspaces
            for record in workspaces.list(private=True):
                if not record.is_shared or workspaces.has_copy(record):
                    found[namespace(account.id, record.id)] = partial(workspaces.open, record)
        return found

    def _workspace(self, name: Namespace, opened: Callable[[], Workspace] | None) -> None:
        agreed = self._agreed(name)  # first: it may be older than the tree, and never newer
        first = self._trees(name, {})
        if self._is_as_before(name, first):
            self._listed |= {**first, **agreed}
            return
        with ExitStack() as stack:
            try:
                if opened is None:  # no record names it: nobody's edits are committed
                    raise Refused("tree", name, "has no record")
                stack.enter_context(opened().at_rest(wait_s=LOCK_WAIT_S))
            except WorkspaceBusy:
                raise
            except Failure as failure:
                if opened is not None:
                    self._troubles.append(f"{name}: {failure}")
                lock = WriterLock(self._home.lock(name))
                stack.enter_context(lock.hold("a backup", wait_s=LOCK_WAIT_S))
            agreed = self._agreed(name)
            self._listed |= {**self._trees(name, first), **agreed}

    def _is_as_before(self, name: Namespace, found: dict[str, Listed]) -> bool:
        """Return True if tree and history are those of the last backup: then they agree without a lock.

        A writer that came between the two looks has changed the history or the tree, and so this answer.
        """
        before = self._before.get(name, {})
        return found.keys() == before.keys() and all(
            one == before[path] and not (isinstance(one, ListedFile) and one.signature is None)
            for path, one in found.items()
        )

    def _trees(self, name: Namespace, earlier: dict[str, Listed]) -> dict[str, Listed]:
        history = self._reader.take(
            f"history/{name}.git", earlier=earlier, leaves_out=_is_unfinished
        )
        tree = self._reader.take(f"workspaces/{name}", earlier=earlier, one_link=True)
        return {**history, **tree}

    def _agreed(self, name: Namespace) -> dict[str, Listed]:
        """Return a file of the rows on which this machine and S3 last agreed, if they ever did."""
        file = self._home.sync(name)
        if not file.exists():
            return {}
        baseline = Baseline(file)
        try:
            rows = {
                path: [row.version, row.object_id, row.token]
                for path, row in sorted(baseline.tree().items())
            }
            document = {"place": baseline.fact("place"), "files": rows}
        finally:
            baseline.close()
        if document["place"] is None:
            return {}
        path = f"{AGREED}/{name}.json"
        return {path: self._reader.made(path, json.dumps(document).encode())}

    @contextmanager
    def _temporary(self) -> Generator[Path]:
        """Yield a path for a temporary file. A killed backup leaves one, which is removed here."""
        for leftover in self._home.records_copies():
            leftover.unlink(missing_ok=True)
        file = self._home.records_copy(secrets.token_hex(8))
        try:
            yield file
        finally:
            with suppress(OSError):
                file.unlink(missing_ok=True)


def _remedy(records: str) -> str:
    """Return the remedy for records that are elsewhere."""
    return DUMP if is_database(records) else POINT_IN_TIME


def _trees_in(listed: Mapping[str, Listed]) -> dict[str, dict[str, Listed]]:
    """Group the entries of trees and histories by their namespace."""
    found = defaultdict[str, dict[str, Listed]](dict)
    for path, one in listed.items():
        root, _, rest = path.partition("/")
        if rest and root in ("workspaces", "history"):
            found[rest.partition("/")[0].removesuffix(".git")][path] = one
    return found


def _is_unfinished(name: str) -> bool:
    """Return True for a file of a history that no revision needs: it is being written, or was given up."""
    return name.startswith(("incoming-", "tmp_obj_", "tmp_pack_")) or name.endswith(".lock")


def _new_stamp(clock: Clock, stamps: list[str]) -> str:
    """Return a stamp after all others, however the clock moved."""
    now = clock.now()
    if stamps:
        last = stamps[-1]
        at = Stamp(f"{last[:13]}:{last[13:15]}:{last[15:]}")
        now = max(now, moment_of(at) + timedelta(microseconds=1))
    return stamp_of(now).replace(":", "")


def _printable(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()
