"""The directories of a home: what lies where on this machine, and with which permissions.

Run as root, commands of agents run as another user, who must be able to *reach* the trees and nothing
else: so the home and three of its directories may be passed through (0711), and the rest stays closed.
Trees belong to that user: what the host writes into one, it gives away to the owner of its root.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workspaces.errors import Unavailable
from workspaces.ids import AccountId, Namespace, new_id
from workspaces.timestamp import Stamp

_CLOSED = 0o700
_PRIVATE = 0o600
_PASSABLE_AS_ROOT = 0o711
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

COMMAND_UID = 61_001
"""Whoever runs commands in a home of root's: a number above those that distributions give to people
and services, and below those that systemd takes for its own."""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int


_CLOSED_DIRECTORIES = (
    "history",
    "locks",
    "search",
    "sync",
    "entries",
    "staging/entries",
    "tokens",
    "trash",
)


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    def __post_init__(self) -> None:
        """Absolute: a home does not move when the process changes its working directory."""
        object.__setattr__(self, "root", self.root.absolute())

    @property
    def settings(self) -> Path:
        return self.root / "harness.yaml"

    @property
    def templates(self) -> Path:
        """Directories that a person made: what a new workspace may begin with."""
        return self.root / "templates"

    @property
    def used(self) -> Path:
        """What was changed in other programs' configurations, so that it can be taken back."""
        return self.root / "used"

    @property
    def trees(self) -> Path:
        """Holds the trees of all workspaces, of every account, each under its namespace."""
        return self.root / "workspaces"

    def tree(self, namespace: Namespace) -> Path:
        return self.trees / namespace

    def staging(self, namespace: Namespace) -> Path:
        """Temporary files of one namespace: on the file system of its tree, outside of it."""
        return self.root / "staging" / namespace

    def history(self, namespace: Namespace) -> Path:
        return self.root / "history" / f"{namespace}.git"

    def search(self, namespace: Namespace) -> Path:
        """What can be found faster than by reading: rebuilt from the files and the history."""
        return self.root / "search" / f"{namespace}.db"

    def sync(self, namespace: Namespace) -> Path:
        """What this machine and S3 last agreed on."""
        return self.root / "sync" / f"{namespace}.db"

    def lock(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}.lock"

    def records_lock(self, account_id: AccountId) -> Path:
        """Held by whoever brings the records of an account together with its roster."""
        return self.root / "locks" / f"{account_id}-records.lock"

    def sync_lock(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}-sync.lock"

    def outbox(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}-outbox.lock"

    @property
    def trash_root(self) -> Path:
        return self.root / "trash"

    def trash(self, namespace: Namespace, stamp: Stamp) -> Path:
        """Where a deleted workspace lies, files and history, until somebody empties the trash."""
        return self.trash_root / f"{stamp.replace(':', '')}-{namespace}"

    @property
    def admin_key(self) -> Path:
        """The key that makes accounts: made on first use, for whoever can read this home."""
        return self.root / "admin.key"

    @property
    def start_tokens(self) -> Path:
        """One empty file for each start token that is valid, named by the token's hash."""
        return self.root / "tokens"

    @property
    def servers(self) -> Path:
        """Locked, shared, by every server process of the home."""
        return self.root / "locks" / "servers.lock"

    @property
    def state(self) -> Path:
        return self.root / "state.db"

    @property
    def entries(self) -> Path:
        """Transcript entries too large for the record store."""
        return self.root / "entries"

    @property
    def entries_staging(self) -> Path:
        return self.root / "staging" / "entries"

    @property
    def programs(self) -> Path:
        """Copies of programs, for a user who cannot reach where they were installed."""
        return self.root / "bin"

    @property
    def command_user(self) -> User | None:
        """Whom root becomes to run a command: the home's owner if that is not root. None: this process
        is not root, and commands run as its own user."""
        if os.geteuid() != 0:
            return None
        owner = self.root.stat()
        return User(owner.st_uid or COMMAND_UID, owner.st_gid or COMMAND_UID)

    @property
    def machine(self) -> str:
        """Which of the machines that share records this home is: an id of its own, made on first use."""
        file = self.root / "machine"
        try:
            with suppress(FileExistsError), file.open("x") as stream:
                file.chmod(_PRIVATE)
                stream.write(new_id("machine") + "\n")
            return file.read_text().strip()
        except OSError as error:
            raise Unavailable(f"home {self.root}", error.strerror or str(error)) from error

    def prepare(self) -> None:
        """Make what is missing. Unavailable when this place cannot be a home."""
        passable = _PASSABLE_AS_ROOT if os.geteuid() == 0 else _CLOSED
        try:
            self.root.mkdir(mode=passable, parents=True, exist_ok=True)
            for name in ("workspaces", "staging", "bin"):
                (self.root / name).mkdir(mode=passable, exist_ok=True)
            for name in _CLOSED_DIRECTORIES:
                (self.root / name).mkdir(mode=_CLOSED, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"home {self.root}",
                error.strerror or str(error),
                remedy="name a directory that you can write with --home or HARNESS_HOME",
            ) from error

    def check_writable(self) -> None:
        """Raise Unavailable unless the disk keeps what is written into the home."""
        file = self.root / "staging" / "ready"
        try:
            descriptor = os.open(file, _WRITE_ANEW, _PRIVATE)
            try:
                os.write(descriptor, b"ready\n")
                os.fsync(descriptor)  # a full disk may say so no earlier
            finally:
                os.close(descriptor)
                file.unlink(missing_ok=True)  # another process may look at the same time
        except OSError as error:
            raise Unavailable(f"home {self.root}", error.strerror or str(error)) from error

    def prepare_namespace(self, namespace: Namespace) -> None:
        try:
            for directory in (self.tree(namespace), self.staging(namespace)):
                directory.mkdir(mode=_CLOSED, exist_ok=True)
            self.hand_over(namespace)
        except OSError as error:
            raise Unavailable(f"home {self.root}", error.strerror or str(error)) from error

    def hand_over(self, namespace: Namespace) -> None:
        """Give the root of a tree to the user that runs commands, as root, if it is still root's."""
        user = self.command_user
        tree = self.tree(namespace)
        if user is not None and tree.stat().st_uid == 0:
            os.chown(tree, user.uid, user.gid)


def default_root() -> Path:
    return Path("/var/lib/harness") if os.geteuid() == 0 else Path.home() / ".harness"
