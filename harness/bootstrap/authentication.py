"""Access: from what a program shows to the principal it acts as.

A program shows a key of an account, a key of a user, or a start token. A key of an account acts as the
account's owner, or as the user it names; a user's key acts as that user and nobody else. A start token
has the rights of an account key of the home's default account: `harness up` makes one at each start and
prints it for the person at this machine.

Start tokens live in the file system of the home, not in its records, which other machines may share: a
token is valid while any server process of this home lives. Each holds a shared lock; whoever starts and
finds nobody holding it sweeps the tokens of the dead. Only the hash of a token is ever stored.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TypeVar

from harness.bootstrap.composition import Application
from workspaces.accounts.account import AccountRecord, Principal
from workspaces.accounts.key import SECRET_BYTES, KeyRecord, owner_of_key
from workspaces.accounts.user import Users
from workspaces.errors import Forbidden, NotFound, Unauthorized, Unavailable
from workspaces.home.layout import Home

T = TypeVar("T")


class Access:
    def __init__(self, house: Application) -> None:
        self._house = house

    def principal_of(self, secret: str, *, as_user: str | None = None) -> Principal:
        """Whoever shows this acts as; `as_user` is an id or a platform's own id. Unauthorized."""
        house = self._house
        if is_start_token(house.settings.home, secret):
            return self._of_account(house.accounts.default(), as_user)
        holder = owner_of_key(secret, house.records, house.clock)
        if holder is None:
            raise Unauthorized
        account = self._known(lambda: house.accounts.get(holder.account_id))
        if holder.key.user_id is None:
            return self._of_account(account, as_user)
        user_id = holder.key.user_id
        user = self._known(lambda: self._users(account).get(user_id))
        if as_user not in (None, user.id, user.external_id):
            raise Forbidden("act as another user")
        return self._known(lambda: house.accounts.owner(account)).as_user(user, may_configure=False)

    def key_of(self, secret: str) -> KeyRecord | None:
        """The record of the key that is shown; None for a start token."""
        holder = owner_of_key(secret, self._house.records, self._house.clock)
        return holder.key if holder else None

    def is_admin(self, secret: str) -> bool:
        """Whether this is the key that makes accounts."""
        expected = self._house.settings.admin_key or admin_key(self._house.settings.home)
        return hmac.compare_digest(_bytes(secret), _bytes(expected))

    def _of_account(self, account: AccountRecord, as_user: str | None) -> Principal:
        owner = self._known(lambda: self._house.accounts.owner(account))
        if as_user is None:
            return owner
        users, autocreate = self._users(account), account.config.users.autocreate
        user = users.named_by_platform(as_user, autocreate=autocreate)
        return owner.as_user(user, may_configure=True)

    def _users(self, account: AccountRecord) -> Users:
        return Users(account.id, self._house.records, self._house.clock)

    @staticmethod
    def _known(look: Callable[[], T]) -> T:
        """A key whose account or user is gone, or just going, is no key any more."""
        try:
            return look()
        except NotFound as error:
            raise Unauthorized from error


@contextmanager
def start_token(home: Home) -> Generator[str]:
    """A token for as long as this process, or another server of the home, lives."""
    token = secrets.token_urlsafe(SECRET_BYTES)
    servers = os.open(home.servers, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _sweep_if_alone(home, servers)
        fcntl.flock(servers, fcntl.LOCK_SH)
        (home.start_tokens / _digest(token)).touch(0o600)
        yield token
    finally:
        os.close(servers)


def is_start_token(home: Home, secret: str) -> bool:
    try:
        return (home.start_tokens / _digest(secret)).exists() and _somebody_serves(home)
    except OSError as error:
        raise Unavailable(f"home {home.root}", error.strerror or str(error)) from error


def admin_key(home: Home) -> str:
    """Made on first use, whole or not at all: two processes that are first read the same key."""
    for _ in range(2):
        with suppress(FileNotFoundError):
            return home.admin_key.read_text().strip()
        _make_admin_key(home)
    raise Unavailable(f"home {home.root}", "its admin.key cannot be read back")


def _make_admin_key(home: Home) -> None:
    mine = home.root / "staging" / f"admin.key.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"wha_{secrets.token_urlsafe(SECRET_BYTES)}\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # somebody made it in the same instant
            os.link(mine, home.admin_key)
        mine.unlink()
    except OSError as error:
        raise Unavailable(f"home {home.root}", error.strerror or str(error)) from error


def _sweep_if_alone(home: Home, servers: int) -> None:
    try:
        fcntl.flock(servers, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    for token in home.start_tokens.iterdir():
        token.unlink(missing_ok=True)


def _somebody_serves(home: Home) -> bool:
    """Whether the shared lock is held; a process that holds it itself asks through a file of its own."""
    descriptor = os.open(home.servers, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _digest(secret: str) -> str:
    return sha256(_bytes(secret)).hexdigest()


def _bytes(secret: str) -> bytes:
    return secret.encode(errors="surrogatepass")
