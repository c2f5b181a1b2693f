"""Adoption: make records again for the trees and histories of a home that has lost its records.

Each tree is named by a hash, so its record cannot be found in it. A card beside the records tells account,
workspace and owner. With a card, the same ids come back. Without a card, a tree gets a new id under a name
that the caller gives, and its directories are renamed. Trees that nobody names stay where they are.

A damaged record store is moved aside first and never deleted. Nothing is adopted while a server uses the
home. Every step looks before it acts, so an interrupted adoption can be repeated.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bootstrap.composition import Application, wire
from harness.runtime.settings import read_settings
from workspaces.accounts.account import AccountRecord
from workspaces.accounts.stored_items import partition_of
from workspaces.accounts.user import Users
from workspaces.clock import SystemClock
from workspaces.errors import AlreadyExists, Busy, Failure, NotFound, Refused, Unavailable
from workspaces.history.history import History
from workspaces.home.cards import Card, read_card
from workspaces.home.known_backups import known_backups, rules_at
from workspaces.home.layout import Home
from workspaces.home.locations import local_file
from workspaces.home.lost_records import move_tree, stored_namespaces
from workspaces.home.trash import unfinished_disposals
from workspaces.ids import Namespace, namespace
from workspaces.localfs.sqlite_file import is_damaged, move_aside
from workspaces.storage.records import Key, with_prefix
from workspaces.timestamp import Stamp, stamp_of

GONE = (
    "users except the owner of each account",
    "API keys",
    "agents and sandboxes",
    "conversations and jobs",
    "recorded usage",
)
"""Records that no card holds. They are lost with the record store."""

PREFIX_CHARACTERS_MIN = 6
"""Characters of a namespace that name it: `fs-` and three digits, as long as only one begins with them."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A workspace that has a record again."""

    namespace: Namespace
    workspace_id: str
    name: str
    account: str
    is_same: bool
    """True if it has the ids that it had before. False for a new workspace around the old files."""


@dataclass(frozen=True, slots=True)
class Left:
    """A tree without a record that stays as it is."""

    namespace: Namespace
    files: int
    newest: Stamp | None
    """The time of its newest revision."""
    reason: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of an adoption, or the plan of one."""

    restored: tuple[Restored, ...] = ()
    left: tuple[Left, ...] = ()
    moved_aside: Path | None = None
    """The damaged record store, where it is now or would be."""
    unheard: tuple[str, ...] = ()
    """Backups that did not say what was forgotten, and why."""


@dataclass(slots=True)
class _Plan:
    same: list[Card] = field(default_factory=list[Card])
    named: list[tuple[Namespace, str]] = field(default_factory=list[tuple[Namespace, str]])
    left: list[Left] = field(default_factory=list[Left])


def adopt(home: Path | None, *, names: Mapping[str, str], is_dry_run: bool = False) -> Adoption:
    """Make records for the trees of a home that have none.

    `names` gives a name to trees without a card, by the beginning of their namespace. A dry run changes
    nothing.

    Raises: Busy while a server uses the home. Refused for a name of no such tree. Unavailable.
    """
    settings = read_settings(home)
    with no_server(settings.home):
        file = local_file(settings.records, settings.home.root)
        damaged = file is not None and is_damaged(file)
        aside = None
        if damaged and file is not None:
            stamp = stamp_of(SystemClock().now()).replace(":", "")
            aside = file.with_name(f"{file.name}.damaged-{stamp}")
            if not is_dry_run:
                move_aside(file, aside)
        if is_dry_run and file is not None and (damaged or not file.exists()):
            settings = replace(settings, records="memory:")  # a plan creates no file
        application = wire(settings)
        try:
            plan = _plan(application, names)
            if is_dry_run:
                return Adoption(_foreseen(plan), tuple(plan.left), aside)
            restored, left = _carry_out(application, plan)
            unheard = _forget_again(application) if restored else ()
            return Adoption(restored, (*plan.left, *left), aside, unheard)
        finally:
            application.close()


@contextmanager
def no_server(home: Home) -> Generator[None]:
    """Keep servers from starting on the home in this block.

    Raises: Busy while a server runs: it would go on with the records that are replaced here.
    """
    try:
        descriptor = os.open(home.servers, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"home {home.root}", error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"home {home.root}", holder="a running `harness up`") from error
        yield
    finally:
        os.close(descriptor)


def orphans(application: Application) -> list[Namespace]:
    """Return the namespaces of the trees and histories that no record names, in order.

    Those on their way to the trash are left out. Most trees have a card, so that one read of a record
    decides. Only for the others, the records of all accounts are listed.
    """
    home = application.settings.home
    unsure = [name for name in stored_namespaces(home) if not _has_recorded_card(application, name)]
    known = _recorded(application) if unsure else set[Namespace]()
    return [
        name for name in unsure if name not in known and unfinished_disposals(home, name) is None
    ]


def _has_recorded_card(application: Application, name: Namespace) -> bool:
    """Return True if a tree has a card whose workspace has a record."""
    try:
        card = read_card(application.settings.home, name)
    except Failure:
        return False
    if card is None:
        return False
    key = Key(partition_of(card.account.id), f"workspace:{card.workspace.id}")
    return application.records.get(key) is not None


def _plan(application: Application, names: Mapping[str, str]) -> _Plan:
    home = application.settings.home
    found = orphans(application)
    given = _given_names(names, found)
    plan = _Plan()
    for name in found:
        try:
            card = read_card(home, name)
            reason = "it has no card; give it a name with --name to make a new workspace of it"
        except Failure as failure:
            card, reason = None, str(failure)
        if card is not None:
            plan.same.append(card)
        elif name in given:
            plan.named.append((name, given[name]))
        else:
            plan.left.append(_left(application, name, reason))
    return plan


def _recorded(application: Application) -> set[Namespace]:
    """Return the namespaces of all workspaces that have a record."""
    names = set[Namespace]()
    for account in application.accounts.list():
        partition = partition_of(account.id)
        for item in with_prefix(application.records, partition, "workspace:"):
            names.add(namespace(account.id, item.key.sort.removeprefix("workspace:")))
    return names


def _given_names(names: Mapping[str, str], unnamed: Sequence[Namespace]) -> dict[Namespace, str]:
    given: dict[Namespace, str] = {}
    for prefix, name in names.items():
        found = [one for one in unnamed if one.startswith(prefix)]
        if len(prefix) < PREFIX_CHARACTERS_MIN or len(found) != 1:
            rule = f"names {len(found) or 'no'} trees without a record"
            remedy = "`harness admin adopt --dry-run` lists them"
            raise Refused("--name", prefix, rule, remedy=remedy)
        given[found[0]] = name
    return given


def _left(application: Application, name: Namespace, reason: str) -> Left:
    """Return the facts by which a person can recognise a tree. No file is read."""
    home = application.settings.home
    files = sum(1 for path in home.tree(name).rglob("*") if path.is_file())
    newest = None
    if home.history(name).exists():
        log = History(home.history(name), application.clock).log(limit=1)
        newest = log[0].at if log else None
    return Left(name, files, newest, reason)


def _foreseen(plan: _Plan) -> tuple[Restored, ...]:
    same = (_restored(card) for card in plan.same)
    new = (Restored(name, "", given, "", is_same=False) for name, given in plan.named)
    return (*same, *new)


def _carry_out(
    application: Application, plan: _Plan
) -> tuple[tuple[Restored, ...], tuple[Left, ...]]:
    restored: list[Restored] = []
    left: list[Left] = []
    clock = application.clock
    for card in plan.same:
        try:
            account = _account_of(application, card)
            services = application.rooms(application.accounts.owner(account))
            services.workspaces.restore_record(card.workspace)
        except Failure as failure:
            why = str(failure) if failure.remedy is None else f"{failure}: {failure.remedy}"
            left.append(_left(application, card.namespace, why))
        else:
            restored.append(_restored(card))
    if plan.same and not application.accounts.has_default() and application.accounts.list():
        _choose_default(application, plan.same)
    for name, given in plan.named:
        account = application.accounts.default()
        services = application.rooms(application.accounts.owner(account))
        try:
            record = services.workspaces.create_around(
                given, lambda new, old=name: move_tree(application.settings.home, old, new, clock)
            )
        except Failure as failure:
            left.append(_left(application, name, str(failure)))
        else:
            new = namespace(account.id, record.id)
            restored.append(Restored(new, record.id, given, account.name, is_same=False))
    return tuple(restored), tuple(left)


def _forget_again(application: Application) -> tuple[str, ...]:
    """Take out what the backups of this home say was forgotten. The records that knew it are lost, and the
    files may be older. Return the backups that do not answer.

    With a bucket, the next sync does it.
    """
    unheard: list[str] = []
    for account in application.accounts.list():
        forgettings = application.rooms(application.accounts.owner(account)).forgettings
        for backup in known_backups(application.settings.home):
            try:
                rules = rules_at(backup.place)
                if rules is None:
                    raise Unavailable("the directory", "it is not there now")
                forgettings.rules.adopt(rules.read(account.id))
            except Failure as failure:
                unheard.append(f"{backup.place}: {failure}")
        forgettings.hear()
        if application.place is None:
            forgettings.run_pending()
    return tuple(unheard)


def _account_of(application: Application, card: Card) -> AccountRecord:
    """Return the account of a card. It and its owner are made again with their ids, if they are missing."""
    account, accounts = card.account, application.accounts
    try:
        return accounts.get(account.id)
    except NotFound:
        pass
    now = stamp_of(application.clock.now())
    stamps = {"createdAt": now, "updatedAt": now}
    users = Users(account.id, application.records, application.clock)
    try:
        users.get(account.owner_id)
    except NotFound:
        users.adopt({"id": account.owner_id, "name": account.owner_name, **stamps}, instead_of=None)
    fields = {"id": account.id, "ownerId": account.owner_id, **stamps}
    try:
        return accounts.adopt({**fields, "name": account.name}, instead_of=None)
    except AlreadyExists:  # the new account of an earlier adoption took the name
        return accounts.adopt(
            {**fields, "name": f"{account.name} {account.id[-6:]}"}, instead_of=None
        )


def _choose_default(application: Application, cards: Sequence[Card]) -> None:
    """Make the account the default that was it, else the first one."""
    wanted = next((card for card in cards if card.account.is_default), cards[0])
    application.accounts.make_default(application.accounts.get(wanted.account.id))


def _restored(card: Card) -> Restored:
    record = card.workspace
    return Restored(card.namespace, record.id, record.name, card.account.name, is_same=True)
