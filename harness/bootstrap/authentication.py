"""Authentication: from the secret that a program sends to the principal that it acts as.

A program sends a key of an account, a key of a user, or a start token. A key of an account acts as the
account's owner, or as the user that the request names. A user's key acts as that user only. A start token has
the rights of an account key of the home's default account: `harness up` creates one at each start and prints
it for the person at this machine.

Start tokens are files of the home. They are not records, because other machines may share the records. A
token is valid while any server process of this home lives. Each server holds a shared lock. A server that
starts while no other process holds the lock removes the tokens of dead servers. Only the hash of a token is
stored.
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

from harness.bootstrap.browser_session import BrowserSessions, SecretKind
from harness.bootstrap.composition import Application
from workspaces.accounts.account import AccountRecord
from workspaces.accounts.key import (
    SECRET_BYTES,
    KeyOwner,
    KeyRecord,
    key_hash,
    owner_of_key,
    owner_of_key_hash,
)
from workspaces.accounts.principal import Principal
from workspaces.accounts.user import Users
from workspaces.errors import Forbidden, NotFound, Unauthorized, Unavailable
from workspaces.home.layout import Home

T = TypeVar("T")


class Access:
    """The authentication of secrets for one home."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.sessions = BrowserSessions(application.records, application.clock)

    def principal_of(self, secret: str, *, as_user: str | None = None) -> Principal:
        """Return the principal that this secret acts as. `as_user` is a user's id, or the id that a platform
        gave the user.

        Raises: Unauthorized for an unknown secret; Forbidden when a user's key names another user.
        """
        application = self._application
        if is_start_token(application.settings.home, secret):
            return self._account_principal(application.accounts.default(), as_user)
        return self._key_principal(
            owner_of_key(secret, application.records, application.clock), as_user
        )

    def sign_in(self, secret: str) -> str:
        """Begin a session of a browser for a secret, and return the session's id.

        Raises: Unauthorized for an unknown secret.
        """
        self.principal_of(secret)
        home = self._application.settings.home
        kind: SecretKind = "start" if is_start_token(home, secret) else "key"
        digest = _digest(secret) if kind == "start" else key_hash(secret)
        return self.sessions.create(kind, digest)

    def principal_of_session(self, session_id: str, *, as_user: str | None = None) -> Principal:
        """Return the principal of a session: that of the secret with which it began.

        Raises: Unauthorized when the session has ended, or its key was revoked.
        """
        application = self._application
        session = self.sessions.find(session_id)
        if session is None:
            raise Unauthorized
        if session.kind == "key":
            owner = owner_of_key_hash(session.digest, application.records, application.clock)
            return self._key_principal(owner, as_user)
        if not _is_served_token(application.settings.home, session.digest):
            raise Unauthorized
        return self._account_principal(application.accounts.default(), as_user)

    def _key_principal(self, owner: KeyOwner | None, as_user: str | None) -> Principal:
        if owner is None:
            raise Unauthorized
        application = self._application
        account = self._require(lambda: application.accounts.get(owner.account_id))
        if owner.key.user_id is None:
            return self._account_principal(account, as_user)
        user_id = owner.key.user_id
        user = self._require(lambda: self._users(account).get(user_id))
        if as_user not in (None, user.id, user.external_id):
            raise Forbidden("act as another user")
        return self._require(lambda: application.accounts.owner(account)).as_user(
            user, may_configure=False
        )

    def owner(self, *, as_user: str | None = None) -> Principal:
        """Return the owner of the home's default account, or the named user of that account.

        For a server that asks for no keys."""
        return self._account_principal(self._application.accounts.default(), as_user)

    def key_of(self, secret: str) -> KeyRecord | None:
        """Return the record of the key with this secret; None for a start token."""
        owner = owner_of_key(secret, self._application.records, self._application.clock)
        return owner.key if owner else None

    def is_admin(self, secret: str) -> bool:
        """Return True if this is the key that may create accounts."""
        expected = self._application.settings.admin_key or admin_key(
            self._application.settings.home
        )
        return hmac.compare_digest(_bytes(secret), _bytes(expected))

    def _account_principal(self, account: AccountRecord, as_user: str | None) -> Principal:
        owner = self._require(lambda: self._application.accounts.owner(account))
        if as_user is None:
            return owner
        users, autocreate = self._users(account), account.config.users.autocreate
        user = users.named_by_platform(as_user, autocreate=autocreate)
        return owner.as_user(user, may_configure=True)

    def _users(self, account: AccountRecord) -> Users:
        return Users(account.id, self._application.records, self._application.clock)

    @staticmethod
    def _require(look: Callable[[], T]) -> T:
        """Return the result of `look`. A key whose account or user is deleted, or just being deleted, is not
        valid.

        Raises: Unauthorized when `look` raises NotFound.
        """
        try:
            return look()
        except NotFound as error:
            raise Unauthorized from error


@contextmanager
def start_token(home: Home) -> Generator[str]:
    """Yield a token that is valid as long as this process, or another server of the home, lives."""
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
    return _is_served_token(home, _digest(secret))


def _is_served_token(home: Home, digest: str) -> bool:
    try:
        return (home.start_tokens / digest).exists() and _is_served(home)
    except OSError as error:
        raise Unavailable(f"home {home.root}", error.strerror or str(error)) from error


def admin_key(home: Home) -> str:
    """Return the admin key of the home. The first call creates it, whole or not at all.

    Two processes that call this first at the same time read the same key.
    """
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
        with suppress(FileExistsError):  # another process created it at the same moment
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


def _is_served(home: Home) -> bool:
    """Return True if a process holds the shared lock.

    A process that holds the lock itself asks through a file descriptor of its own.
    """
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
