"""A home that has lost its records: find the trees that no record names, and make a tree another's.

A tree and its history are named by a namespace, a hash that tells nothing. `cards` keeps what it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from workspaces.accounts.account import Accounts
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import Refused
from workspaces.history.history import History
from workspaces.home.layout import Home
from workspaces.ids import Namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.localfs.sqlite_file import remove
from workspaces.tree.directory import FileBlobs

LOST_REMEDY = (
    "put back a copy of the record store; or run `harness admin adopt --dry-run`, which shows what can be "
    "made again"
)


def check_has_records(home: Home, accounts: Accounts, location: str) -> None:
    """Check that a home with trees has an account. `location` names the record store for a person.

    Raises: Refused otherwise. A new, empty account would hide that the records were lost.
    """
    if accounts.has_default() or accounts.list():
        return
    count = sum(1 for _ in stored_namespaces(home))
    if count == 0:  # a new home
        return
    noun = "workspace" if count == 1 else "workspaces"
    message = (
        f"{home.root} has the files of {count} {noun}, but no records of them: "
        f"{location} is new or was emptied"
    )
    rule = "has files and no records"
    raise Refused("home", str(home.root), rule, message=message, remedy=LOST_REMEDY)


def stored_namespaces(home: Home) -> Iterator[Namespace]:
    """Yield the namespaces that have a tree or a history in this home, in order."""
    trees = {entry.name for entry in _directories(home.trees)}
    histories = _directories(home.root / "history")
    bare = {entry.name.removesuffix(".git") for entry in histories if entry.suffix == ".git"}
    yield from (Namespace(name) for name in sorted(trees | bare) if _is_namespace(name))


def move_tree(home: Home, old: Namespace, new: Namespace, clock: Clock) -> None:
    """Move a tree, its history and its displaced files to another namespace.

    A history without a tree gets the files of its newest revision. What can be rebuilt is removed.

    Raises: Unavailable. A crash in the middle may leave tree and history under different namespaces.
    """
    with WriterLock(home.lock(old)).hold("an adoption"):
        has_tree = home.tree(old).is_dir()
        try:
            for source, target in (
                (home.staging(old), home.staging(new)),
                (home.history(old), home.history(new)),
                (home.tree(old), home.tree(new)),
            ):
                with suppress(FileNotFoundError):
                    source.rename(target)
            for database in (home.search(old), home.sync(old)):
                remove(database)
                remove(database.with_suffix(".view.db"))
        except OSError as error:
            raise as_failure(error, str(home.tree(old))) from error
        home.prepare_namespace(new)
        if not has_tree:
            _write_newest_revision(home, new, clock)


def _write_newest_revision(home: Home, name: Namespace, clock: Clock) -> None:
    history = History(home.history(name), clock)
    blobs = FileBlobs(home.tree(name), home.staging(name))
    for path, blob in history.tree(history.tip()).items():
        data = history.read(blob)
        blobs.write(path, data, expect=ABSENT)


def _directories(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _is_namespace(name: str) -> bool:
    return name.startswith("fs-") and name[3:].isalnum()
