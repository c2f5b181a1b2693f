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
from workspaces.home.locations import local_file
from workspaces.home.workspaces import Workspaces
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore
from workspaces.storage.sqlite import wipe_records


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
    )
