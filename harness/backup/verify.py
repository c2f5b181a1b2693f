"""Verify a backup: every piece is there with its hash, and every reference resolves.

    pieces       each is read once, and hashed
    records      SQLite finds the copy whole; each large value that a record names is in the backup
    workspaces   each has its tree and its history, and git reaches every object from the newest revision

Git runs on a copy of the objects in a directory of its own, with a configuration of ours: a backup may come
from anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.backup.depot import Depot, DepotContent, depot_at
from harness.backup.listing import RECORDS, BackupSnapshot, ListedDirectory, ListedFile
from harness.backup.records_copy import RecordsCopy
from workspaces.errors import Refused, Unavailable
from workspaces.history.git.branch import NAME
from workspaces.history.git.program import run_git

OnPiece = Callable[[int, int], None]
"""Hears of the pieces that were read, and of their number."""

_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


@dataclass(slots=True)
class Verified:
    """The result of a check."""

    snapshot: BackupSnapshot
    pieces: int = 0
    references: int = 0
    """Large values and workspaces that the records name."""
    histories: int = 0
    missing: list[str] = field(default_factory=list[str])
    """What is damaged or missing, one sentence each."""

    @property
    def is_whole(self) -> bool:
        return not self.missing


def verify(
    place: str, *, stamp: str | None = None, on_piece: OnPiece = lambda _done, _of: None
) -> Verified:
    """Check one snapshot of a backup, by default the newest.

    Raises: NotFound if there is none. Refused if the snapshot or its listing is damaged.
    """
    depot = depot_at(place)
    snapshot = depot.snapshot(stamp)
    content = depot.content(snapshot)
    verified = Verified(snapshot)
    damaged = _check_pieces(depot, content, verified, on_piece)
    with TemporaryDirectory(prefix="harness-verify-") as directory:
        if snapshot.records:
            _check_records(depot, content, Path(directory) / "records.db", verified)
        for name, files in sorted(_histories(content).items()):
            if damaged.isdisjoint(part.piece.digest for file in files for part in file.ranges):
                _check_history(depot, name, files, Path(directory), verified)
    return verified


def _check_pieces(
    depot: Depot, content: DepotContent, verified: Verified, on_piece: OnPiece
) -> set[str]:
    """Read every piece once. Return those that are damaged."""
    damaged = set[str]()
    users: dict[str, str] = {}
    for file in content.files:
        for part in file.ranges:
            users.setdefault(part.piece.digest, file.path)
    for digest, damage in depot.damage(users):
        verified.pieces += 1
        on_piece(verified.pieces, len(users))
        if damage is not None:
            damaged.add(digest)
            verified.missing.append(f"piece {digest} {damage.rule}; {users[digest]} needs it")
    return damaged


def _check_records(depot: Depot, content: DepotContent, to: Path, verified: Verified) -> None:
    """Check the records, and that each of their references resolves."""
    records = content.listed.get(RECORDS)
    if not isinstance(records, ListedFile):
        verified.missing.append("records state.db is missing")
        return
    try:
        write_out(depot, records, to)
        copy = RecordsCopy(to)
    except Refused as failure:
        verified.missing.append(f"records {failure}")
        return
    with closing(copy):
        for record, name in copy.large_values():
            verified.references += 1
            if not isinstance(content.listed.get(f"entries/{name}"), ListedFile):
                verified.missing.append(f"value entries/{name} is missing; {record} refers to it")
        for workspace in copy.workspaces():
            verified.references += 1
            needed = {
                "tree": f"workspaces/{workspace.name}",
                "history": f"history/{workspace.name}.git",
            }
            there = [isinstance(content.listed.get(at), ListedDirectory) for at in needed.values()]
            if workspace.is_shared and not any(there):
                continue  # its files are in S3
            verified.missing += [
                f"{kind} of the workspace {workspace.workspace!r} is missing ({at})"
                for (kind, at), is_there in zip(needed.items(), there, strict=True)
                if not is_there
            ]


def _histories(content: DepotContent) -> dict[str, list[ListedFile]]:
    """Return the files of each history, by its path."""
    found: dict[str, list[ListedFile]] = {
        path: [] for path in content.listed if path.startswith("history/") and path.count("/") == 1
    }
    for file in content.files:
        name = "/".join(file.path.split("/", 2)[:2])
        if name in found:
            found[name].append(file)
    return found


def _check_history(
    depot: Depot, name: str, files: Iterable[ListedFile], within: Path, verified: Verified
) -> None:
    """Check that every object of a history can be reached from its newest revision."""
    with TemporaryDirectory(dir=within) as place:
        git = Path(place)
        (git / "objects").mkdir()
        (git / "refs").mkdir()
        (git / "HEAD").write_text(f"ref: {NAME}\n")
        (git / "config").write_text(_CONFIG)
        has_revision = False
        for file in files:
            inside = file.path.removeprefix(f"{name}/")
            if not (inside.startswith("objects/") or inside == NAME):
                continue
            if inside.startswith("objects/info/"):  # it may lead to objects elsewhere
                continue
            has_revision = has_revision or inside == NAME
            write_out(depot, file, git / inside)
        verified.histories += 1
        if not has_revision:
            return
        try:
            run_git(
                f"--git-dir={git}", "rev-list", "--objects", "--quiet", "--end-of-options", NAME
            )
        except Unavailable as failure:
            verified.missing.append(f"history {name} is incomplete: {failure.reason}")


def write_out(depot: Depot, file: ListedFile, to: Path) -> None:
    """Write a file of a backup to a new path.

    Raises: DamagedPiece. Unavailable if the disk does not take it.
    """
    try:
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with to.open("xb") as stream:
            for data in depot.bytes_of(file):
                stream.write(data)
    except OSError as error:
        raise Unavailable(str(to), error.strerror or str(error)) from error
