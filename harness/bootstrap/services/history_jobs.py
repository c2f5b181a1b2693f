"""Jobs that a change of a workspace leaves behind: packing its history, and pushing it to S3."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from harness.jobs.job import Job, Jobs
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.ids import WorkspaceId
from workspaces.storage.records import JsonObject
from workspaces.workspace_record import WorkspaceRecord

_LOG = logging.getLogger("harness.bootstrap.history_jobs")

TIDY = "tidy"
"""The kind of job that packs the history of a workspace."""

FLUSH = "flush"
"""The beginning of a job kind that pushes to S3 what was written on one machine and no caller waited for.

Machines that share their records share their jobs. The kind ends with the machine's id, because only that
machine can do the job.
"""

FLUSH_WITHIN_S = 30.0
"""The most seconds of a workspace's history that are on one machine only, while a server runs there."""


def tidying(principal: Principal, workspace_id: WorkspaceId, clock: Clock) -> Job:
    """Return the job that packs the history of a workspace."""
    return Job(f"{TIDY}:{workspace_id}", TIDY, clock.now(), _payload(principal, workspace_id))


class Flushing:
    """A function that enqueues a flush of every shared workspace of a principal that was written to.

    Threads may share it. While a flush is enqueued and not yet due, it is not enqueued again.
    """

    def __init__(self, principal: Principal, jobs: Jobs, machine: str, clock: Clock) -> None:
        self._principal = principal
        self._kind = f"{FLUSH}:{machine}"
        self._jobs = jobs
        self._clock = clock
        self._due: dict[WorkspaceId, datetime] = {}

    def __call__(self, workspace: WorkspaceRecord) -> None:
        if not workspace.is_shared:
            return
        workspace_id, now = workspace.id, self._clock.now()
        if self._due.get(workspace_id, now) > now:
            return
        latest = now + timedelta(seconds=FLUSH_WITHIN_S)
        payload = _payload(self._principal, workspace_id)
        try:
            flush = Job(f"{self._kind}:{workspace_id}", self._kind, latest, payload)
            # it is due earlier if another process wants so
            due = self._jobs.enqueue(flush, at_the_latest=True)
        except Failure as failure:  # the change is stored; the next sync pushes it
            _LOG.warning("%s will not be flushed before the next sync: %s", workspace_id, failure)
            return
        self._due[workspace_id] = due


def _payload(principal: Principal, workspace_id: WorkspaceId) -> JsonObject:
    return {
        "accountId": principal.account_id,
        "userId": principal.user_id,
        "workspaceId": workspace_id,
    }
