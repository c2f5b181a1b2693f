"""Restore a backup into a home without records and trees.

Everything is written into one directory in `staging/` first, with every hash checked. The records are changed
there: what held leases and claims is gone, and no notice of the past is sent. When all of it is durable, a
mark is made, and then each part is renamed into its place, the records last. A restore that dies before the
mark has changed nothing. One that dies after it is finished by the next.

The home gets a new identity, because the old machine may still run. The baseline of a shared workspace is
made from what the backup knows; so its first sync pulls what has changed since.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from harness.backup.depot import Depot, DepotContent, depot_at
from harness.backup.listing import AGREED, RECORDS, ListedDirectory, ListedFile
from harness.backup.records_copy import forget_the_past, is_unused
from harness.bootstrap.adoption import no_server
from harness.bootstrap.composition import wire
from harness.forgetting.forgetting import Forgetting
from harness.runtime.settings import Settings, has_own_values, read_settings
from workspaces.errors import OverLimit, Refused, Unavailable
from workspaces.history.git.objects import ObjectId, sync_below
from workspaces.home.known_backups import note_backup
from workspaces.home.layout import Home
from workspaces.home.locations import local_file
from workspaces.home.lost_records import stored_namespaces
from workspaces.ids import Version
from workspaces.localfs.safe_open import SafeRoot, as_failure
from workspaces.localfs.sqlite_file import remove
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Token
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile

OnFile = Callable[[int, int], None]
"""Hears of the bytes that were written, and of their number."""

_MARK = "complete"
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = "name an empty home with --home"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredHome:
    """The result of a restore."""

    home: Path
    stamp: str
    files: int
    size: int
    has_records: bool
    settings_kept: bool
    """True if the home had settings of its own, which stay."""
    was_finished: bool = False
    """True if an interrupted restore was brought to its end."""
    forgotten: int = 0
    """Forgettings since that backup whose texts were taken out again."""
    left: tuple[str, ...] = ()
    """Why a forgetting is not done yet. Its job goes on."""


def restore(
    home: Path | None,
    place: str,
    *,
    stamp: str | None = None,
    files_only: bool = False,
    on_file: OnFile = lambda _done, _of: None,
) -> RestoredHome:
    """Restore a snapshot, by default the newest, into a home without records and trees.

    Raises: Refused for a used home, a damaged backup, or records that are elsewhere. NotFound. Busy while a
    server uses the home. Unavailable, with the home as it was.
    """
    depot = depot_at(place)
    settings = read_settings(home)
    target = settings.home
    with no_server(target):
        staged = target.restored
        if (staged / _MARK).exists() and _is_waiting(target, staged):
            return _finished(place, _move_in(target, staged, was_finished=True))
        snapshot = depot.snapshot(stamp)
        content = depot.content(snapshot)
        has_records = snapshot.records and not files_only
        if not snapshot.records and not files_only:
            rule = "holds no records, only files and histories"
            remedy = "restore the records where they are, and add --files-only"
            raise Refused("snapshot", snapshot.stamp, rule, remedy=remedy)
        if has_records and local_file(settings.records, target.root) is None:
            remedy = (
                "unset HARNESS_RECORDS, or add --files-only and restore the records where they are"
            )
            raise Refused(
                "records", settings.records_shown, "are not on this machine", remedy=remedy
            )
        _check_unused(target)
        _check_space(target, snapshot.size)
        _remove(staged)
        try:
            staged.mkdir(mode=0o700)
            _write(depot, content, staged, on_file, has_records=has_records)
            _prepare(depot, target, staged, content, has_records=has_records)
        except OSError as error:
            raise as_failure(error, str(staged)) from error
        return _finished(place, _move_in(target, staged))


def _is_waiting(home: Home, staged: Path) -> bool:
    """Return True if an interrupted restore has not moved everything yet."""
    if (staged / RECORDS).exists():
        return True
    waiting = (staged / one for one in ("history", "workspaces", "entries"))
    return any(any(one.iterdir()) for one in waiting if one.is_dir()) and _has_no_records(home)


def _has_no_records(home: Home) -> bool:
    records = local_file(read_settings(home.root).records, home.root)
    return records is None or is_unused(records)


def _check_unused(home: Home) -> None:
    """Raise Refused if the home has anything that a restore could overwrite or mix with."""
    what = None
    if not _has_no_records(home):
        what = "records"
    elif (name := next(stored_namespaces(home), None)) is not None:
        what = f"the files of a workspace ({name})"
    elif any(home.entries.iterdir()):
        what = "transcript entries"
    if what is not None:
        rule = f"has {what}: a backup is restored only into a home without records and files"
        raise Refused("home", str(home.root), rule, remedy=_ELSEWHERE)


def _check_space(home: Home, needed: int) -> None:
    free = shutil.disk_usage(home.root).free
    if needed > free:
        raise OverLimit("size of the backup", maximum=free, actual=needed, unit="bytes")


def _write(
    depot: Depot, content: DepotContent, staged: Path, on_file: OnFile, *, has_records: bool
) -> None:
    """Write all files below `staged`. No open follows a link."""
    written = 0
    root = SafeRoot(staged)
    try:
        for path, one in sorted(content.listed.items()):
            if path == RECORDS and not has_records:
                continue
            if isinstance(one, ListedDirectory):
                with root.directory(path, create=True, made_in=set()):
                    continue
            parent, _, name = path.rpartition("/")
            with root.directory(parent, create=True, made_in=set()) as directory:
                _write_file(depot, one, directory, name)
            written += one.size
            on_file(written, content.snapshot.size)
        for path, one in sorted(content.listed.items(), reverse=True):
            if isinstance(one, ListedDirectory):  # from below, so that each can still be entered
                with root.directory(path) as directory:
                    os.fchmod(directory, one.mode | 0o700)
    finally:
        root.close()


def _write_file(depot: Depot, file: ListedFile, directory: int, name: str) -> None:
    fd = os.open(name, _WRITE_NEW, 0o600, dir_fd=directory)
    try:
        for data in depot.bytes_of(file):
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
        os.fchmod(fd, file.mode)
        if file.mtime:
            os.utime(fd, ns=(file.mtime, file.mtime))
    finally:
        os.close(fd)


def _prepare(
    depot: Depot, home: Home, staged: Path, content: DepotContent, *, has_records: bool
) -> None:
    """Make the staged files a home of their own, make them durable, and mark them as complete.

    What the target keeps of an earlier life goes first: its machine identity, its indexes and its baselines.
    """
    if has_records:
        forget_the_past(staged / RECORDS)
    _make_baselines(staged)
    (home.root / "machine").unlink(missing_ok=True)
    for directory in ("search", "sync"):  # of an earlier life: the home has no trees
        for file in (home.root / directory).glob("*.db*"):
            file.unlink(missing_ok=True)
    settings = read_settings(home.root)
    if has_records:
        _hear(depot, replace(settings, records=f"sqlite:{staged / RECORDS}", s3=None))
    elif local_file(settings.records, home.root) is None:  # they know more than the files, or less
        _hear(depot, settings)
    sync_below(home.root)
    mark = {
        "at": content.snapshot.stamp,
        "files": content.snapshot.files,
        "bytes": content.snapshot.size,
        "records": has_records,
    }
    unfinished = staged / f"{_MARK}.new"
    unfinished.write_text(json.dumps(mark))
    sync_below(staged)
    unfinished.rename(staged / _MARK)
    sync_below(staged)


def _hear(depot: Depot, settings: Settings) -> None:
    """Let the records know what was forgotten since the backup. The jobs are then due in them, so a restored
    home forgets even if this process dies.

    Raises: Refused if it cannot be known.
    """
    application = wire(settings)
    try:
        for account in application.accounts.list():
            rules = depot.rules.read(account.id)
            forgettings = application.rooms(application.accounts.owner(account)).forgettings
            forgettings.rules.adopt(rules)
            forgettings.hear()
    finally:
        application.close()


def _finished(place: str, restored: RestoredHome) -> RestoredHome:
    """Take out of a restored home what was forgotten since its backup. What is forgotten there later concerns
    the backups at this place too, so they are noted.

    Files that are shared in a bucket are rewritten there. So a home with a bucket does it when it syncs.
    """
    settings = read_settings(restored.home)
    note_backup(settings.home, place, restored.stamp)
    if settings.s3 is not None:
        return restored
    application = wire(settings)
    try:
        ended: list[Forgetting] = []
        for account in application.accounts.list():
            forgettings = application.rooms(application.accounts.owner(account)).forgettings
            ended += forgettings.run_pending()
    finally:
        application.close()
    left = tuple(one.waits_for or one.status for one in ended if one.status != "done")
    return replace(restored, forgotten=len(ended) - len(left), left=left)


def _make_baselines(staged: Path) -> None:
    """Make the baseline of each workspace that had one, for its directory here."""
    (staged / "sync").mkdir(mode=0o700)
    for file in sorted((staged / AGREED).glob("*.json")):
        tree = staged / "workspaces" / file.stem
        if not tree.is_dir():
            continue
        try:
            document = cast("dict[str, Any]", json.loads(file.read_bytes()))
            place = str(document["place"])
            rows = [
                BaselineChange(WorkspacePath(path), None, _row(*row))
                for path, row in document["files"].items()
            ]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(f"{AGREED}/{file.name}", None, f"is damaged ({error})") from error
        status = tree.stat()
        baseline = Baseline(staged / "sync" / f"{file.stem}.db")
        try:
            baseline.note("place", place)
            baseline.note("root", f"{status.st_dev}:{status.st_ino}")
            baseline.take(rows)
        finally:
            baseline.close()


def _row(version: str, object_id: str, token: str) -> SyncedFile:
    return SyncedFile(Version(version), ObjectId(object_id), Token(token))


def _move_in(home: Home, staged: Path, *, was_finished: bool = False) -> RestoredHome:
    """Rename what was staged into its place, the records last. The call may be repeated."""
    mark = json.loads((staged / _MARK).read_text())
    kept = False
    try:
        for directory in ("history", "workspaces", "sync", "entries", "cards", "templates", "used"):
            _move_entries(staged / directory, home.root / directory)
        for file in sorted(staged.glob("*.yaml")):
            if file.name == home.settings.name and has_own_values(home):
                kept = True
                file.unlink()
            else:
                file.replace(home.root / file.name)
        if (staged / "admin.key").exists():
            (staged / "admin.key").replace(home.admin_key)
        for name in stored_namespaces(home):
            home.prepare_namespace(name)
        if (staged / RECORDS).exists():
            _move_records(home, staged / RECORDS)
        sync_below(home.root)
    except OSError as error:
        raise as_failure(error, str(home.root)) from error
    _remove(staged)
    return RestoredHome(
        home=home.root,
        stamp=str(mark["at"]),
        files=int(mark["files"]),
        size=int(mark["bytes"]),
        has_records=bool(mark["records"]),
        settings_kept=kept,
        was_finished=was_finished,
    )


def _move_entries(source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    if not target.exists():
        source.rename(target)
        return
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if place.is_dir():  # such as cards that a person put there
            _move_entries(entry, place)
        else:
            entry.replace(place)


def _move_records(home: Home, file: Path) -> None:
    settings = read_settings(home.root)
    records = local_file(settings.records, home.root)
    if records is None:
        remedy = "unset HARNESS_RECORDS, or add --files-only"
        raise Refused("records", settings.records_shown, "are elsewhere", remedy=remedy)
    if is_unused(records):
        remove(records)
    file.replace(records)


def _remove(directory: Path) -> None:
    """Remove what an earlier restore left in staging."""
    try:
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
    except OSError as error:
        raise Unavailable(str(directory), error.strerror or str(error)) from error
