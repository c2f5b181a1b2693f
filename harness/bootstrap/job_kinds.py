"""What each kind of job does, with the services of the principal who enqueued the job."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

from harness.bootstrap.services.history_jobs import FLUSH, FLUSH_WITHIN_S, TIDY
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.conversation import ERASE
from harness.conversations.event_queue import TURN
from harness.forgetting.forgettings import FORGET
from harness.jobs.job import Job
from harness.jobs.runner import JobShare, OutOfReach, RunJob
from harness.learning.learning import LEARNING_AT_ONCE_MAX
from harness.learning.learning_jobs import LEARN
from harness.runs.chain import CHAIN
from harness.runs.run_records import RUN, RUNS_AT_ONCE_MAX
from harness.runs.scheduler import SCHEDULE
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from harness.runtime.fair_share import take_share_of
from harness.webhooks.delivery import deliver
from harness.webhooks.notices import DELIVERIES_AT_ONCE_MAX, WEBHOOK
from workspaces.errors import NotFound, Unavailable
from workspaces.ids import ConversationId, WorkspaceId
from workspaces.timestamp import Stamp, moment_of

JOB_SHARES = (
    JobShare(frozenset({LEARN}), LEARNING_AT_ONCE_MAX),
    JobShare(frozenset({WEBHOOK}), DELIVERIES_AT_ONCE_MAX),
    JobShare(frozenset({RUN, CHAIN}), RUNS_AT_ONCE_MAX),
)


ServicesFor = Callable[[Job], PrincipalServices]
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
