"""Building forgetting for one principal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from harness.conversations.conversation import Conversations
from harness.forgetting.forgettings import Forgettings
from harness.forgetting.workspace_rewrite import WorkspaceForgetting
from harness.jobs.job import Jobs
from harness.runtime.settings import Settings
from harness.sandboxes.bundled_programs import ripgrep
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.home.locations import is_database, local_file
from workspaces.home.workspaces import Workspaces
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore
from workspaces.storage.sqlite import wipe_records

POSTGRES_KEEPS = (
    "PostgreSQL keeps replaced rows in its files until `VACUUM FULL harness_records`, which locks the table; "
    "its log, replicas and backups keep them for as long as they are set to"
)
DYNAMODB_KEEPS = (
    "point-in-time recovery of the table keeps earlier states for up to 35 days, and backups of it until "
    "they are deleted"
)


def open_forgettings(
    principal: Principal,
    settings: Settings,
    *,
    records: RecordStore,
    large: BlobStore,
    clock: Clock,
    jobs: Jobs,
    workspaces: Workspaces,
    conversations: Conversations,
    rules: RuleRecords,
    place: SharedBucket | None,
    publish: Callable[[], None],
) -> Forgettings:
    return Forgettings(
        principal=principal,
        home=settings.home,
        records=records,
        large=large,
        clock=clock,
        jobs=jobs,
        workspaces=workspaces,
        conversations=conversations,
        rules=rules,
        rewriter=WorkspaceForgetting(workspaces, settings.home, principal.author("api")),
        state=local_file(settings.records, settings.home.root),
        wipe_records=wipe_records,
        ripgrep=partial(ripgrep, None),
        place=place,
        publish=publish,
        records_keep=_kept_by_records(settings.records),
    )


def _kept_by_records(records: str) -> str:
    """Return a sentence on the earlier states that a store of records keeps. It is empty for a file of this
    machine, because that is written anew."""
    if is_database(records):
        return POSTGRES_KEEPS
    return DYNAMODB_KEEPS if records.startswith("dynamodb:") else ""
