"""The small composition root: the workspaces of a home, for a command that reads or writes files.

Such a command needs no agents, conversations or models, and it does not wait for their modules. A stored
record was validated when it was written, and is not validated again. Where more is needed, as for a shared
workspace, the caller's `Workspaces` are opened: they are the same classes over the same files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.runtime.settings import Settings
from workspaces.accounts.principal import PARTITION, Principal, stored_owner
from workspaces.accounts.stored_items import StoredItems, partition_of
from workspaces.accounts.stored_workspace import StoredWorkspace, is_private
from workspaces.clock import Clock, clock_ahead
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.forgetting.pattern_search import PatternSearch
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.home.layout import Home
from workspaces.home.locations import local_file, records_at
from workspaces.home.opening import open_tree
from workspaces.ids import AccountId, WorkspaceId, namespace
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.storage.records import Key, RecordStore, with_prefix
from workspaces.workspace.protection import Protection, PutBack
from workspaces.workspace.workspace import Workspace

if TYPE_CHECKING:
    from workspaces.search.embeddings import Embedder


class LocalFiles:
    """The workspaces of one account that are only on this machine, as its owner uses them."""

    def __init__(
        self, settings: Settings, principal: Principal, records: RecordStore, clock: Clock
    ) -> None:
        self.principal = principal
        self.clock = clock
        self._settings = settings
        self._records = records
        self._items = StoredItems("workspace", partition_of(principal.account_id), records)
        self._forbidden = forbidden_texts(RuleRecords(principal.account_id, records, clock))
        self._open: list[Workspace] = []

    def get(self, reference: str) -> Workspace | None:
        """Return the workspace with this id or name. Return None if it is shared, or its files are missing.

        Raises: NotFound.
        """
        return self._opened(StoredWorkspace(self._items.get(reference).value))

    def list(self) -> list[Workspace] | None:
        """Return the workspaces that are not private, ordered by name. Return None if one is shared."""
        opened = [self._opened(record) for record in self.stored()]
        known = [workspace for workspace in opened if workspace is not None]
        return known if len(known) == len(opened) else None

    def stored(self) -> Sequence[StoredWorkspace]:
        """Return the records of the workspaces that are not private, ordered by name."""
        records = [StoredWorkspace(item.value) for item in self._items.list()]
        shown = (record for record in records if not is_private(record.id))
        return sorted(shown, key=lambda one: one.name)

    def untidy(self) -> list[WorkspaceId]:
        """Return the opened workspaces whose history is due for packing."""
        return [workspace.id for workspace in self._open if workspace.history.needs_packing]

    def close(self) -> None:
        self._records.close()

    def _opened(self, record: StoredWorkspace) -> Workspace | None:
        home = self._settings.home
        name = namespace(self.principal.account_id, record.id)
        if record.is_shared or not home.tree(name).is_dir():
            return None
        workspace = open_tree(
            record,
            name,
            home,
            self.principal,
            self.clock,
            embedder=embedder_of(self._settings),
            protection=protection_of_memory(),
            forbidden=self._forbidden,
        )
        self._open.append(workspace)
        return workspace


def open_local_files(settings: Settings, account: str | None) -> LocalFiles | None:
    """Open the records of a home and return the files of an account, or of the default one.

    Return None for a home that shares files or records, and for one that its first start has not completed.
    Also return None if the account has webhooks: the whole home tells them of a change.

    Raises: NotFound for an unknown account. Unavailable if the records cannot be opened.
    """
    file = local_file(settings.records, settings.home.root)
    if settings.s3 is not None or file is None or not file.exists():
        return None
    if not cards_mark(settings.home).exists():
        return None
    clock = clock_of(settings)
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    try:
        default = stored_owner(records)
        if default is not None and records.get(defaults_mark(default.account_id)) is not None:
            owner = default if account is None else stored_owner(records, account)
            if owner is not None and not _has_webhooks(owner, records):
                return LocalFiles(settings, owner, records, clock)
    except BaseException:
        records.close()
        raise
    records.close()
    return None


def _has_webhooks(owner: Principal, records: RecordStore) -> bool:
    """Return True if somebody is told of changes. See `harness/webhooks/webhook.py`."""
    return any(True for _ in with_prefix(records, partition_of(owner.account_id), "webhook:"))


def clock_of(settings: Settings) -> Clock:
    """Return the system's clock, shifted if the settings say so."""
    return clock_ahead(float(settings.clock_shift or 0))


def embedder_of(settings: Settings) -> Embedder | None:
    """Return the embedder of the settings. None if they name no endpoint."""
    if settings.embeddings_url is None:
        return None
    from harness.models.embedding import EmbeddingEndpoint

    return EmbeddingEndpoint(
        settings.embeddings_url, settings.embeddings_model, settings.embeddings_key
    )


def protection_of_memory() -> Protection:
    """Return the rules for what a model may not change in memory. A rule is imported when it is asked."""

    def fact(
        path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
    ) -> PutBack | None:
        from harness.memory.facts.fact_protection import protect_fact

        return protect_fact(path, before, after, by)

    def decision(
        path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
    ) -> PutBack | None:
        from harness.memory.decisions.decision_protection import protect_decision

        return protect_decision(path, before, after, by)

    def is_decision(path: WorkspacePath) -> bool:
        if not path.startswith("decisions/"):  # it is asked for every file of a workspace
            return False
        from harness.memory.decisions.decision_files import is_decision_path

        return is_decision_path(path)

    return Protection((fact, decision), is_decision)


def forbidden_texts(rules: RuleRecords) -> ForbiddenTexts:
    """Return the gate of an account. Programs and detectors are looked for when there is a rule."""

    def program() -> Path | None:
        from harness.sandboxes.bundled_programs import ripgrep

        return ripgrep(None)

    def keys(text: str) -> list[tuple[int, int]]:
        from harness.memory.secrets import find_secrets

        return [(secret.start, secret.end) for secret in find_secrets(text)]

    def cards(text: str) -> list[tuple[int, int]]:
        from harness.memory.card_numbers import find_card_numbers

        return find_card_numbers(text)

    return ForbiddenTexts(rules, PatternSearch(program), {"cards": cards, "keys": keys})


def defaults_mark(account_id: AccountId) -> Key:
    """Return the key of the record that exists once an account has its defaults."""
    return Key(PARTITION, f"born:{account_id}")


def cards_mark(home: Home) -> Path:
    """Return the file that exists once every workspace of a home has a card."""
    return home.cards / ".complete"
