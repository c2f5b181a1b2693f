"""Duties: what each kind of job does, in the rooms of the principal whose job it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from harness.conversation import ERASE, Conversations
from harness.crossing import in_thread
from harness.inbox import TURN
from harness.ingress import Ingress
from harness.job import Job
from harness.runner import Run
from workspaces.account import Principal
from workspaces.clock import Clock
from workspaces.errors import NotFound
from workspaces.ids import ConversationId, WorkspaceId
from workspaces.workspaces import Workspaces

TIDY = "tidy"
"""The kind of job that packs the history of a workspace."""


class RoomsOfOne(Protocol):
    """What the duties need of a principal's rooms."""

    @property
    def workspaces(self) -> Workspaces: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def ingress(self) -> Ingress: ...


RoomsFor = Callable[[Job], RoomsOfOne]
"""The rooms of the principal that a job's payload names as `accountId` and `userId`."""


def duties(rooms_for: RoomsFor) -> dict[str, Run]:
    async def turn(job: Job) -> datetime | None:
        await rooms_for(job).ingress.look_after(job.payload["conversationId"])

    async def erase(job: Job) -> datetime | None:
        conversation_id = ConversationId(job.payload["conversationId"])
        await in_thread(rooms_for(job).conversations.erase, conversation_id)

    async def tidy(job: Job) -> datetime | None:
        with suppress(NotFound):  # it was deleted
            await in_thread(rooms_for(job).workspaces.tidy, WorkspaceId(job.payload["workspaceId"]))

    return {TURN: turn, ERASE: erase, TIDY: tidy}


def tidying(principal: Principal, workspace_id: WorkspaceId, clock: Clock) -> Job:
    payload = {
        "accountId": principal.account_id,
        "userId": principal.user_id,
        "workspaceId": workspace_id,
    }
    return Job(f"{TIDY}:{workspace_id}", TIDY, clock.now(), payload)
