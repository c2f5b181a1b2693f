"""Routes of chains: start, show, follow and cancel."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runs.chain import STEPS_MAX
from harness.runs.chain_record import ChainStatus
from harness.runs.run import RunStatus
from harness.runtime.async_bridge import run_in_thread
from harness.turns.worker_pool import WorkerPool
from harness.web.http.body import JsonObject, read_as
from harness.web.http.caller import address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    answers,
    refusals,
    schema_of,
    takes,
)
from harness.web.http.sse import EVENT, EVENT_STREAM, RETRY_MS, encoded_event
from harness.web.routes.runs.documents import Cancelled, RunUsage
from harness.web.routes.runs.runs import OwnerCaller
from harness.web.routes.talk.turns import After
from workspaces.errors import Failure
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/v1/chains",
    tags=["runs"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class NewChain(StrictModel):
    agents: Annotated[list[str], Field(min_length=1, max_length=STEPS_MAX)]
    """The agents in their order, by id or name. One may occur several times."""
    task: str
    stream: bool = False


class ChainAccepted(StrictModel):
    id: str
    status: ChainStatus
    status_url: str


class StepDocument(StrictModel):
    agent_id: str
    run_id: str | None
    status: RunStatus | Literal["pending"]
    output: str | None


class ChainDocument(StrictModel):
    """A chain with its steps."""

    id: str
    status: ChainStatus
    task: str
    steps: list[StepDocument]
    output: str | None
    """The output of the last step, when the chain has succeeded."""
    usage: RunUsage


USED = {"input": 2400, "output": 80, "cacheRead": 0, "cacheWrite": 0, "cacheWriteHour": 0}
CHAIN_EXAMPLE: dict[str, Any] = {
    "id": "chain_5f0c1f3c2a7d4e5b6c7d8e9f",
    "status": "succeeded",
    "task": "Write a note about tea.",
    "steps": [
        {
            "agentId": "agent_9b1f0f3c2a7d4e5b6c7d8e9f",
            "runId": "run_5f0c1f3c2a7d4e5b6c7d8e9f",
            "status": "succeeded",
            "output": "Tea is green.",
        }
    ],
    "output": "Tea is green.",
    "usage": USED,
}
ACCEPTED_EXAMPLE = {
    "id": CHAIN_EXAMPLE["id"],
    "status": "running",
    "statusUrl": f"/v1/chains/{CHAIN_EXAMPLE['id']}",
}

ChainPath = Annotated[str, Path(alias="id")]


def _parse_new(fields: JsonObject) -> NewChain:
    return parse(NewChain, fields)


@router.post(
    "",
    summary="Start a chain",
    status_code=202,
    responses={
        **answers(ChainAccepted, ACCEPTED_EXAMPLE, status=202, description="The chain is stored."),
        200: {
            "description": "Server-sent events, if the request asks for a stream.",
            "content": {EVENT_STREAM: {"schema": EVENT}},
        },
        **refusals(429, *READING_JSON),
    },
    openapi_extra=takes(
        schema_of(NewChain), {"agents": ["assistant"], "task": "Write a note about tea."}
    ),
)
async def start_chain(
    request: Request,
    caller: OwnerCaller,
    new: Annotated[NewChain, Depends(read_as(_parse_new))],
) -> Response:
    """Let agents work on a task one after the other. Each sees the outputs before it; each step is a run.

    `stream` returns server-sent events: one `step` for each step that has ended, then the `outcome`.
    """
    chain = await run_in_thread(caller.chains.start, new.agents, new.task)
    worker_pool: WorkerPool = request.app.state.worker_pool
    worker_pool.begin(f"chain {chain.id}", lambda: caller.chains.finish(chain.id))
    if new.stream:
        return _streamed(caller, chain.id, 0)
    url = address_of(request, f"/v1/chains/{chain.id}")
    accepted = {"id": chain.id, "status": chain.status, "statusUrl": url}
    return Json(accepted, 202, {"Location": url})


@router.get(
    "/{id}",
    summary="Show a chain",
    responses=answers(ChainDocument, CHAIN_EXAMPLE),
)
def show_chain(caller: OwnerCaller, chain_id: ChainPath) -> Json:
    return Json(caller.chains.get(chain_id).as_json())


@router.get(
    "/{id}/stream",
    summary="Stream a chain",
    responses={
        200: {"description": "Server-sent events.", "content": {EVENT_STREAM: {"schema": EVENT}}}
    },
)
async def follow_chain(caller: OwnerCaller, chain_id: ChainPath, after: After) -> Response:
    """Stream the steps that ended after step `Last-Event-ID`, and the outcome at the end."""
    await run_in_thread(caller.chains.get, chain_id)
    return _streamed(caller, chain_id, after)


@router.post(
    "/{id}/cancel",
    summary="Cancel a chain",
    responses={**answers(Cancelled, {"cancelled": True}), **refusals(409)},
)
async def cancel_chain(caller: OwnerCaller, chain_id: ChainPath) -> Json:
    """Cancel a chain, with the step that runs. `cancelled` is false if it has ended already."""
    return Json({"cancelled": await caller.chains.cancel(chain_id)})


def _streamed(caller: PrincipalServices, chain_id: str, after: int) -> StreamingResponse:
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        _events(caller, chain_id, after), headers=headers, media_type=EVENT_STREAM
    )


async def _events(caller: PrincipalServices, chain_id: str, after: int) -> AsyncGenerator[bytes]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    try:
        async for number, step in caller.chains.follow(chain_id, after):
            yield encoded_event("step", step, number)
        view = await run_in_thread(caller.chains.get, chain_id)
        yield encoded_event("outcome", view.as_json())
    except Failure:  # a store does not answer: it may answer after a reconnect
        yield encoded_event("reconnect", {})
