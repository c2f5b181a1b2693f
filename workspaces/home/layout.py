"""The directories of a home on this machine, and their permissions.

If the program runs as root, commands of agents run as another user. That user must be able to *reach* the
trees and nothing else. So it may pass through the home and three of its directories (0711), and the rest
stays closed. Trees belong to that user: the host gives files that it writes to the owner of the tree's root.
"""

from __future__ import annotations

import errno
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
_TAKES_NO_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

COMMAND_UID = 61_001
"""User id that runs commands in a home of root.

It is above the ids that distributions give to people and services, and below those that systemd reserves.
"""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int


_RECORDS_COPY = "backup-"

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
        """Make the root absolute, because the process may change its working directory."""
        object.__setattr__(self, "root", self.root.absolute())

    @property
    def settings(self) -> Path:
        return self.root / "harness.yaml"

    @property
    def templates(self) -> Path:
        """Return the directory of templates: user-made directories with the first files of a workspace."""
        return self.root / "templates"

    @property
    def used(self) -> Path:
        """Return the directory that records changes to other programs' configurations, for undoing them."""
        return self.root / "used"

    @property
    def trees(self) -> Path:
        """Return the directory of the trees of all workspaces of every account, each under its namespace."""
        return self.root / "workspaces"

    def tree(self, namespace: Namespace) -> Path:
        return self.trees / namespace

    def staging(self, namespace: Namespace) -> Path:
        """Return the directory for temporary files of a namespace.

        It is on the file system of the tree, outside of the tree.
        """
        return self.root / "staging" / namespace

    def history(self, namespace: Namespace) -> Path:
        return self.root / "history" / f"{namespace}.git"

    def search(self, namespace: Namespace) -> Path:
        """Return the file of the search index. It can be rebuilt from the files and the history."""
        return self.root / "search" / f"{namespace}.db"

    def sync(self, namespace: Namespace) -> Path:
        """Return the file of the baseline: the state on which this machine and S3 last agreed."""
        return self.root / "sync" / f"{namespace}.db"

    def lock(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}.lock"

    def records_lock(self, account_id: AccountId) -> Path:
        """Return the lock file of the process that syncs an account's records with its registry."""
        return self.root / "locks" / f"{account_id}-records.lock"

    def sync_lock(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}-sync.lock"

    def outbox(self, namespace: Namespace) -> Path:
        return self.root / "locks" / f"{namespace}-outbox.lock"

    @property
    def cards(self) -> Path:
        """Return the directory of cards. `*.json` are the cards of workspaces."""
        return self.root / "cards"

    def card(self, namespace: Namespace) -> Path:
        return self.cards / f"{namespace}.json"

    @property
    def trash_root(self) -> Path:
        return self.root / "trash"

    def trash(self, namespace: Namespace, stamp: Stamp) -> Path:
        """Return the trash directory of a deleted workspace: files and history, until a person empties it."""
        return self.trash_root / f"{stamp.replace(':', '')}-{namespace}"

    @property
    def admin_key(self) -> Path:
        """Return the file of the admin key, which creates accounts.

        It is created on first use. Every user who can read this home can use it.
        """
        return self.root / "admin.key"

    @property
    def start_tokens(self) -> Path:
        """Return the directory with one empty file for each valid start token, named by the token's hash."""
        return self.root / "tokens"

    @property
    def servers(self) -> Path:
        """Return the file on which every server process of the home holds a shared lock."""
        return self.root / "locks" / "servers.lock"

    @property
    def backup_lock(self) -> Path:
        """Return the file that a backup locks exclusively, and each deletion shared."""
        return self.root / "locks" / "backup.lock"

    @property
    def open_server(self) -> Path:
        """Return the file on which a server without keys holds a shared lock. It has the server's address."""
        return self.root / "locks" / "no-auth.lock"

    @property
    def state(self) -> Path:
        return self.root / "state.db"

    @property
    def entries(self) -> Path:
        """Return the directory of transcript entries that are too large for the record store."""
        return self.root / "entries"

    @property
    def entries_staging(self) -> Path:
        return self.root / "staging" / "entries"

    def records_copy(self, name: str) -> Path:
        """Return the file of a copy of the records, while a backup reads it."""
        return self.root / "staging" / f"{_RECORDS_COPY}{name}.db"

    def records_copies(self) -> list[Path]:
        """Return the copies of the records that a backup uses, or that killed ones have left."""
        return sorted((self.root / "staging").glob(f"{_RECORDS_COPY}*"))

    @property
    def restored(self) -> Path:
        """Return the directory in which a restore puts everything before it moves it to its place."""
        return self.root / "staging" / "restore"

    @property
    def programs(self) -> Path:
        """Return the directory of program copies, for a user who cannot reach the installed programs."""
        return self.root / "bin"

    @property
    def command_user(self) -> User | None:
        """Return the user as which root runs commands: the home's owner, unless that is root.

        Return None if this process is not root; then commands run as its own user.
        """
        if os.geteuid() != 0:
            return None
        owner = self.root.stat()
        return User(owner.st_uid or COMMAND_UID, owner.st_gid or COMMAND_UID)

    @property
    def machine(self) -> str:
        """Return this home's own id among the machines that share records. It is created on first use.

        Raises: Unavailable if the file cannot be written or read.
        """
        file = self.root / "machine"
        try:
            with suppress(FileExistsError), file.open("x") as stream:
                file.chmod(_PRIVATE)
                stream.write(new_id("machine") + "\n")
            return file.read_text().strip()
        except OSError as error:
            raise Unavailable(f"home {self.root}", error.strerror or str(error)) from error

    def prepare(self) -> None:
        """Create the missing directories.

        Raises: Unavailable if this directory cannot be a home.
        """
        passable = _PASSABLE_AS_ROOT if os.geteuid() == 0 else _CLOSED
        try:
            self.root.mkdir(mode=passable, parents=True, exist_ok=True)
            for name in ("workspaces", "staging", "bin"):
                (self.root / name).mkdir(mode=passable, exist_ok=True)
            for name in _CLOSED_DIRECTORIES:
                (self.root / name).mkdir(mode=_CLOSED, exist_ok=True)
        except OSError as error:
            if error.errno in _TAKES_NO_WRITE and self.settings.exists():
                return  # a home of a full or read-only disk can be read
            raise Unavailable(
                f"home {self.root}",
                error.strerror or str(error),
                remedy="use --home or HARNESS_HOME to name a directory that you can write",
            ) from error

    def check_writable(self) -> None:
        """Raise Unavailable unless the disk stores a file that is written into the home."""
        file = self.root / "staging" / "ready"
        try:
            descriptor = os.open(file, _WRITE_ANEW, _PRIVATE)
            try:
                os.write(descriptor, b"ready\n")
                os.fsync(descriptor)  # a full disk may report the error only here
            finally:
                os.close(descriptor)
                file.unlink(missing_ok=True)  # another process may check at the same time
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
        """Give the root of a tree to the user that runs commands, if root runs this and still owns it."""
        user = self.command_user
        tree = self.tree(namespace)
        if user is not None and tree.stat().st_uid == 0:
            os.chown(tree, user.uid, user.gid)


def default_root() -> Path:
    return Path("/var/lib/harness") if os.geteuid() == 0 else Path.home() / ".harness"
