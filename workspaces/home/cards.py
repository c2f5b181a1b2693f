"""Cards: one file beside the records for each workspace, so that a lost record store loses no name.

A tree is found by its namespace, a hash of the ids of account and workspace. Without the records nobody can
tell whose tree it is. A card holds these ids, the workspace's record and the name of its account. It holds
no secret. It is written after the record, whole or not at all, and removed with the workspace. Nothing reads
the cards except an adoption.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from workspaces.accounts.account import Accounts
from workspaces.errors import Failure, Refused, Unavailable
from workspaces.home.layout import Home
from workspaces.ids import AccountId, Namespace, UserId, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import Name, WorkspaceRecord

CARD_BYTES_MAX = 64 * 2**10
"""Ten times the largest record of a workspace."""

_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CardAccount(StrictModel):
    """The account of a workspace, as far as its record can be made again."""

    id: AccountId
    name: Name
    owner_id: UserId
    owner_name: Name
    is_default: bool = False
    """True if commands of the home act in this account."""


class Card(StrictModel):
    format: Literal[1] = 1
    namespace: Namespace
    account: CardAccount
    workspace: WorkspaceRecord


DescribeAccount = Callable[[], CardAccount]


def card_account(accounts: Accounts, account_id: AccountId) -> CardAccount:
    """Describe an account for its cards."""
    account = accounts.get(account_id)
    owner = accounts.owner(account).owner
    return CardAccount(
        id=account.id,
        name=account.name,
        owner_id=owner.id,
        owner_name=owner.name,
        is_default=accounts.is_default(account),
    )


class Cards:
    """The cards of one account's workspaces."""

    def __init__(self, home: Home, account: DescribeAccount) -> None:
        self._home = home
        self._account = account

    def write(self, record: WorkspaceRecord) -> None:
        """Write the card of a workspace.

        Raises: Unavailable if the disk does not take it.
        """
        account = self._account()
        name = namespace(account.id, record.id)
        write_card(self._home, Card(format=1, namespace=name, account=account, workspace=record))

    def note(self, record: WorkspaceRecord) -> None:
        """Write the card of a workspace, if the disk takes it. The next opening tries again."""
        with suppress(Failure):
            self.write(record)

    def has(self, name: Namespace) -> bool:
        """Return True if the workspace of this namespace has a card."""
        return self._home.card(name).exists()


def write_card(home: Home, card: Card) -> None:
    """Write a card, whole or not at all.

    Raises: Unavailable if the disk does not take it.
    """
    file = home.card(card.namespace)
    staged = home.root / "staging" / f"card-{secrets.token_hex(8)}"
    text = json.dumps(card.as_json(), indent=1, ensure_ascii=False, sort_keys=True)
    try:
        home.cards.mkdir(mode=0o700, exist_ok=True)
        try:
            with os.fdopen(os.open(staged, _WRITE_NEW, 0o600), "w") as opened:
                opened.write(f"{text}\n")
                opened.flush()
                os.fsync(opened.fileno())
            staged.replace(file)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise as_failure(error, str(file)) from error


def remove_card(home: Home, name: Namespace) -> None:
    """Remove the card of a workspace that is deleted."""
    with suppress(OSError):
        home.card(name).unlink(missing_ok=True)


def read_card(home: Home, name: Namespace) -> Card | None:
    """Return the card of a namespace; None if there is none.

    Raises: Refused if the file is not a card of this namespace.
    """
    file = home.card(name)
    try:
        with file.open("rb") as opened:
            data = opened.read(CARD_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    card = _parsed(file, data)
    if namespace(card.account.id, card.workspace.id) != name or card.namespace != name:
        raise Refused(str(file), None, "is the card of another namespace")
    return card


def _parsed(file: Path, data: bytes) -> Card:
    if len(data) > CARD_BYTES_MAX:
        raise Refused(str(file), None, "is too long for a card")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(str(file), None, "is not JSON") from error
    return parse(Card, fields, within=str(file))
