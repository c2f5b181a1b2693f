"""The HTTP app: the rooms of a home, one router a resource.

A new resource is a file with a `router`, and its line in ROUTERS.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from harness.bootstrap.authentication import Access
from harness.bootstrap.readiness import readiness_of
from harness.harness import Harness
from harness.jobs.background_task import BackgroundTask, BackgroundTasks
from harness.runtime.json_log import event
from harness.turns.event_stream import KEEP_ALIVE_S, ShutdownNotice
from harness.turns.worker_pool import WorkerPool
from harness.web import openapi, pages
from harness.web.http.caller import Authenticate, by_secret
from harness.web.http.errors import NotHere, refused
from harness.web.http.middleware import HttpMiddleware
from harness.web.http.origin_check import OriginCheck
from harness.web.routes import (
    accounts,
    agents,
    conversations,
    files,
    health,
    history,
    keys,
    prompts,
    recall,
    sandboxes,
    turns,
    usage,
    users,
    workspaces,
)
from workspaces.errors import Failure, Refused, Unavailable
from workspaces.validation import rule_of

ROUTERS = (
    accounts.router,
    keys.router,
    users.router,
    workspaces.router,
    sandboxes.router,
    agents.router,
    files.router,
    history.router,
    recall.router,
    turns.router,
    conversations.router,
    prompts.router,
    usage.router,
    health.router,
    pages.router,
)

_log = logging.getLogger("harness.web")


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """How long is waited for whom."""

    head_s: float = 10.0
    """For the head of a request, once a connection is there."""
    body_s: float = 20.0
    """For a body, beside the time that its size allows it."""
    idle_s: float = 5.0
    """For the next request on a connection that was answered."""
    reader_s: float = 60.0
    """For a caller to read of its answer what `BYTES_PER_S_MIN` demands."""
    sign_s: float = KEEP_ALIVE_S
    """For a stream in which nothing is told, until a sign of life is sent."""
    drain_s: float = 15.0
    """For running requests, when the server is asked to end. Longer than the writer lock is waited
    for, so that whoever waits for it is answered."""
    turns_s: float = 10.0
    """For turns that run then. What is not done is gone on with by another process, or the next one."""


def create_app(
    harness: Harness,
    *,
    authenticate: Authenticate | None = None,
    names: Sequence[str] = (),
    residents: Mapping[str, BackgroundTask] | None = None,
    patience: ServerTimeouts | None = None,
) -> FastAPI:
    """The app on a home. `authenticate` says who is calling, where a platform knows that by means of its
    own; `names` is what the server is bound to, beside localhost; `background_tasks` live as long as it."""
    house = harness.house
    access = Access(house)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with app.state.crew.working(), app.state.residents.living():
            yield

    app = FastAPI(
        title=openapi.TITLE,
        version=openapi.VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.house = house
    app.state.access = access
    app.state.authenticate = authenticate or by_secret(access)
    app.state.patience = patience or ServerTimeouts()
    app.state.crew = WorkerPool(drain_s=app.state.patience.turns_s)
    app.state.curfew = ShutdownNotice()
    app.state.readiness = readiness_of(house)
    app.state.residents = BackgroundTasks(residents or {}, house.clock)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = cache(lambda: openapi.document(routes()))
    for kind in (Failure, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    guard = OriginCheck(names=names, public_urls=harness.settings.public_urls)
    app.add_middleware(HttpMiddleware, guard=guard, clock=house.clock)
    return app


def routes() -> list[APIRoute]:
    """Every route of every router, in their order."""
    found = (route for router in ROUTERS for route in router.routes)
    return [route for route in found if isinstance(route, APIRoute)]


async def _refused(request: Request, error: Exception) -> Response:
    match error:
        case Failure():
            if isinstance(error, Unavailable):
                event(_log, "unavailable", level=logging.ERROR, reason=error.reason, cause=error)
            return refused(error)
        case RequestValidationError():
            return refused(_misread(error))
        case HTTPException():
            return refused(_not_here(request, error))
        case _:
            raise error


def _misread(error: RequestValidationError) -> Refused:
    """What FastAPI finds wrong with a query or a path; bodies are parsed by shapes."""
    found = error.errors()[0]
    field = ".".join(str(part) for part in found["loc"][1:]) or str(found["loc"][0])
    if found["type"] == "extra_forbidden":
        return Refused(field, found["input"], "is unknown")
    return Refused(field, found.get("input"), rule_of(found["msg"]))


def _not_here(request: Request, error: HTTPException) -> NotHere:
    match error.status_code:
        case 404:
            return NotHere(404, "not_found", "there is no such route", {})
        case 405:
            allowed = _methods(request)
            message = f"this route takes {allowed} only"
            return NotHere(405, "method_not_allowed", message, {"Allow": allowed})
        case status:
            return NotHere(status, "refused", str(error.detail), error.headers or {})


def _methods(request: Request) -> str:
    """Of all routes of this path: each knows only its own."""
    found: set[str] = set()
    for route in routes():
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= set(route.methods or ())
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))
