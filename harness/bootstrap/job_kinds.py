"""Duties: what each kind of job does, in the rooms of the principal whose job it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Protocol

from harness.conversations.conversation import ERASE, Conversations
from harness.conversations.event_queue import TURN
from harness.jobs.job import Job, Jobs
from harness.jobs.runner import OutOfReach, Run
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.fair_share import take_share_of
from harness.turns.dispatcher import Dispatcher
from workspaces.accounts.account import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.home.workspaces import Workspaces
from workspaces.ids import ConversationId, WorkspaceId
from workspaces.storage.records import JsonObject

_LOG = logging.getLogger("harness.bootstrap.job_kinds")

TIDY = "tidy"
"""The kind of job that packs the history of a workspace."""

FLUSH = "flush"
"""Begins the kind of job that brings to S3 what was written on one machine and nobody waited for. Machines
that share their records share their jobs: the kind ends with the machine, which alone can do it."""

FLUSH_WITHIN_S = 30.0
"""So much of a workspace's history is on one machine alone, at most, while something runs there."""


class ServicesOfOne(Protocol):
    """What the duties need of a principal's rooms."""

    @property
    def workspaces(self) -> Workspaces: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def dispatcher(self) -> Dispatcher: ...


RoomsFor = Callable[[Job], ServicesOfOne]
"""The rooms of the principal that a job's payload names as `accountId` and `userId`."""


def job_kinds(rooms_for: RoomsFor, machine: str) -> dict[str, Run]:
    async def turn(job: Job) -> datetime | None:
        take_share_of(job.payload["accountId"])
        await rooms_for(job).dispatcher.look_after(job.payload["conversationId"])

    async def erase(job: Job) -> datetime | None:
        conversation_id = ConversationId(job.payload["conversationId"])
        with _patiently():
            await run_in_new_thread(rooms_for(job).conversations.erase, conversation_id)

    async def tidy(job: Job) -> datetime | None:
        with suppress(NotFound):  # it was deleted
            await run_in_new_thread(
                rooms_for(job).workspaces.tidy, WorkspaceId(job.payload["workspaceId"])
            )

    async def flush(job: Job) -> datetime | None:
        workspace_id = WorkspaceId(job.payload["workspaceId"])
        try:
            with _patiently():
                is_done = await run_in_new_thread(rooms_for(job).workspaces.flush, workspace_id)
        except NotFound:  # it was deleted
            return None
        return None if is_done else job.due + timedelta(seconds=FLUSH_WITHIN_S)

    return {TURN: turn, ERASE: erase, TIDY: tidy, f"{FLUSH}:{machine}": flush}


@contextmanager
def _patiently() -> Generator[None]:
    """What was promised is done, however long what it needs is away."""
    try:
        yield
    except Unavailable as failure:
        raise OutOfReach(str(failure)) from failure


def tidying(principal: Principal, workspace_id: WorkspaceId, clock: Clock) -> Job:
    return Job(f"{TIDY}:{workspace_id}", TIDY, clock.now(), _payload(principal, workspace_id))


class Flushing:
    """Wants a flush of every workspace of a principal in which something was written. Threads may share
    it; while one is wanted and not yet due, it is not wanted again."""

    def __init__(self, principal: Principal, jobs: Jobs, machine: str, clock: Clock) -> None:
        self._principal = principal
        self._kind = f"{FLUSH}:{machine}"
        self._jobs = jobs
        self._clock = clock
        self._due: dict[WorkspaceId, datetime] = {}

    def __call__(self, workspace_id: WorkspaceId) -> None:
        now = self._clock.now()
        if self._due.get(workspace_id, now) > now:
            return
        latest = now + timedelta(seconds=FLUSH_WITHIN_S)
        payload = _payload(self._principal, workspace_id)
        try:
            flush = Job(f"{self._kind}:{workspace_id}", self._kind, latest, payload)
            due = self._jobs.enqueue(flush, at_the_latest=True)  # earlier, if others want it so
        except Failure as failure:  # it is written all the same, and goes out with the next sync
            _LOG.warning("%s will not be flushed by itself: %s", workspace_id, failure)
            return
        self._due[workspace_id] = due


def _payload(principal: Principal, workspace_id: WorkspaceId) -> JsonObject:
    return {
        "accountId": principal.account_id,
        "userId": principal.user_id,
        "workspaceId": workspace_id,
    }
