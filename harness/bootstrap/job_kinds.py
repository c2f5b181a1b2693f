"""What each kind of job does, with the services of the principal who enqueued the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from harness.conversations.conversation import ERASE, Conversations
from harness.conversations.event_queue import TURN
from harness.forgetting.forgettings import FORGET, Forgettings
from harness.jobs.job import Job, Jobs
from harness.jobs.runner import OutOfReach, RunJob
from harness.learning.learning import LEARN, Learning
from harness.runs.chain import CHAIN, Chains
from harness.runs.run_records import RUN
from harness.runs.runs import Runs
from harness.runs.scheduler import SCHEDULE, Scheduler
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from harness.runtime.fair_share import take_share_of
from harness.runtime.settings import Settings
from harness.turns.dispatcher import Dispatcher
from harness.webhooks.delivery import deliver
from harness.webhooks.notices import WEBHOOK
from harness.webhooks.webhook import Webhooks
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.home.workspaces import Workspaces
from workspaces.ids import ConversationId, WorkspaceId
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, moment_of
from workspaces.workspace_record import WorkspaceRecord

_LOG = logging.getLogger("harness.bootstrap.job_kinds")

TIDY = "tidy"
"""The kind of job that packs the history of a workspace."""

FLUSH = "flush"
"""The beginning of a job kind that pushes to S3 what was written on one machine and no caller waited for.

Machines that share their records share their jobs. The kind ends with the machine's id, because only that
machine can do the job.
"""

FLUSH_WITHIN_S = 30.0
"""The most seconds of a workspace's history that are on one machine only, while a server runs there."""


class JobServices(Protocol):
    """The services of a principal that these jobs need."""

    @property
    def workspaces(self) -> Workspaces: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def chains(self) -> Chains: ...
    @property
    def learning(self) -> Learning: ...
    @property
    def forgettings(self) -> Forgettings: ...
    @property
    def webhooks(self) -> Webhooks: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...


ServicesFor = Callable[[Job], JobServices]
"""A function that returns the services of the principal that a job's payload names as `accountId` and
`userId`."""


def job_kinds(services_for: ServicesFor, machine: str) -> dict[str, RunJob]:
    """Return the function of each kind of job."""

    async def turn(job: Job) -> datetime | None:
        take_share_of(job.payload["accountId"])
        await services_for(job).dispatcher.look_after(job.payload["conversationId"])

    async def erase(job: Job) -> datetime | None:
        conversation_id = ConversationId(job.payload["conversationId"])
        with _wait_for_store():
            await run_in_new_thread(services_for(job).conversations.erase, conversation_id)

    async def tidy(job: Job) -> datetime | None:
        with suppress(NotFound):  # the workspace was deleted
            await run_in_new_thread(
                services_for(job).workspaces.tidy, WorkspaceId(job.payload["workspaceId"])
            )

    async def flush(job: Job) -> datetime | None:
        workspace_id = WorkspaceId(job.payload["workspaceId"])
        try:
            with _wait_for_store():
                is_done = await run_in_new_thread(services_for(job).workspaces.flush, workspace_id)
        except NotFound:  # the workspace was deleted
            return None
        return None if is_done else job.due + timedelta(seconds=FLUSH_WITHIN_S)

    async def run(job: Job) -> datetime | None:
        take_share_of(job.payload["accountId"])
        with _wait_for_store():
            return await services_for(job).runs.finish(job.payload["runId"])

    async def chain(job: Job) -> datetime | None:
        take_share_of(job.payload["accountId"])
        with _wait_for_store():
            return await services_for(job).chains.finish(job.payload["chainId"])

    async def schedule(job: Job) -> datetime | None:
        since = moment_of(Stamp(job.payload["since"]))
        with _wait_for_store():
            fire = services_for(job).scheduler.fire
            return await run_in_new_thread(fire, job.payload["agentId"], since)

    async def learn(job: Job) -> datetime | None:
        take_share_of(job.payload["accountId"])
        with _wait_for_store(), suppress(NotFound):  # the user, agent or conversation was deleted
            return await services_for(job).learning.do_job(job)
        return None

    flush_here = f"{FLUSH}:{machine}"
    return {
        TURN: turn,
        ERASE: erase,
        TIDY: tidy,
        flush_here: flush,
        RUN: run,
        SCHEDULE: schedule,
        CHAIN: chain,
        LEARN: learn,
        **dict.fromkeys((FORGET, f"{FORGET}:{machine}"), partial(_forget, services_for)),
        WEBHOOK: partial(_deliver, services_for),
    }


async def _deliver(services_for: ServicesFor, job: Job) -> datetime | None:
    """Deliver a notice to its webhook, unless the webhook was deleted."""
    services = services_for(job)
    webhook = await run_in_thread(services.webhooks.find, job.payload["webhookId"])
    if webhook is not None:
        allows_private = services.settings.webhooks_private
        now_s = services.clock.now().timestamp()
        await deliver(webhook, job.payload["notice"], now_s=now_s, allows_private=allows_private)
    return None


async def _forget(services_for: ServicesFor, job: Job) -> None:
    """Do the steps of a forgetting on this machine, unless the account was deleted."""
    with _wait_for_store(), suppress(NotFound):
        await run_in_new_thread(services_for(job).forgettings.run, job.payload["forgettingId"])


@contextmanager
def _wait_for_store() -> Generator[None]:
    """Put the job off as long as a store is out of reach. A promised job is never given up.

    Raises: OutOfReach in place of Unavailable.
    """
    try:
        yield
    except Unavailable as failure:
        raise OutOfReach(str(failure)) from failure


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
            due = self._jobs.enqueue(
                flush, at_the_latest=True
            )  # earlier, if another process wants so
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
