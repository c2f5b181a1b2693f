"""The HTTP app of a home, with one router per resource.

A new resource is a file with a `router`, and a line in ROUTERS.
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
from harness.bootstrap.metrics import ServerMetrics
from harness.bootstrap.readiness import readiness_of
from harness.harness import Harness
from harness.jobs.background_task import BackgroundTask, BackgroundTasks
from harness.runtime.json_log import event
from harness.turns.event_stream import KEEP_ALIVE_S, ShutdownNotice
from harness.turns.worker_pool import WorkerPool
from harness.web import openapi
from harness.web.http.caller import SAFE_METHODS, Authenticate, by_secret
from harness.web.http.errors import NotHere, path_of, refused
from harness.web.http.middleware import HttpMiddleware
from harness.web.http.no_auth import without_keys
from harness.web.http.origin_check import OriginCheck
from harness.web.mcp_endpoint import McpEndpoint
from harness.web.pages.every_page import PAGES
from harness.web.pages.parts.route import failure_page
from harness.web.routes import health, metrics
from harness.web.routes.files import files, history, recall
from harness.web.routes.memory import archives, blocks, facts, memories
from harness.web.routes.records import (
    accounts,
    agents,
    forbidden,
    forgettings,
    keys,
    sandboxes,
    trash,
    usage,
    users,
    webhooks,
    workspaces,
)
from harness.web.routes.runs import active_memory, chains, decisions, runs
from harness.web.routes.talk import conversations, prompts, turns
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
    blocks.router,
    facts.agent_router,
    facts.workspace_router,
    memories.router,
    archives.router,
    turns.router,
    conversations.router,
    prompts.router,
    runs.router,
    active_memory.router,
    chains.router,
    decisions.router,
    usage.router,
    forgettings.router,
    webhooks.router,
    forbidden.router,
    trash.router,
    health.router,
    metrics.router,
    *PAGES,
)

_log = logging.getLogger("harness.web")


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """The times, in seconds, for which the server waits."""

    head_s: float = 10.0
    """For the head of the first request on a new connection."""
    body_s: float = 20.0
    """For a body, in addition to the time that its size allows."""
    idle_s: float = 5.0
    """For the next request on a connection, after a response."""
    reader_s: float = 60.0
    """For a caller to read its response at the speed of `BYTES_PER_S_MIN`."""
    sign_s: float = KEEP_ALIVE_S
    """Until a keep-alive is sent in a stream without events."""
    drain_s: float = 15.0
    """For running requests at shutdown. It is longer than the wait for the writer lock, so that a request
    that waits for the lock gets a response."""
    turns_s: float = 10.0
    """For running turns at shutdown. Another process, or the next one, resumes unfinished turns."""


def create_app(
    harness: Harness,
    *,
    authenticate: Authenticate | None = None,
    names: Sequence[str] = (),
    residents: Mapping[str, BackgroundTask] | None = None,
    patience: ServerTimeouts | None = None,
    asks_for_keys: bool = True,
) -> FastAPI:
    """Return the app of a home.

    `authenticate` returns the caller of a request, for a platform that authenticates by itself. `names` are
    the names that the server is bound to, besides localhost. `residents` run as long as the app. `patience`
    holds the server's timeouts. Without `asks_for_keys` every caller is the owner of the default account, and
    the routes that make keys are not served: only for a server that no other machine reaches.
    """
    application = harness.house
    access = Access(application)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        mcp = McpEndpoint()  # it serves once; an app may be started again
        app.router.routes.append(mcp.route())
        with app.state.metrics.counting():
            async with (
                app.state.worker_pool.working(),
                app.state.background_tasks.living(),
                mcp.serving(),
            ):
                yield

    app = FastAPI(
        title=openapi.TITLE,
        version=openapi.VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.application = application
    app.state.access = access
    by_default = by_secret if asks_for_keys else without_keys
    app.state.authenticate = authenticate or by_default(access)
    app.state.asks_for_keys = asks_for_keys
    # else the platform has a sign-in page of its own, or nobody signs in
    app.state.signs_in = authenticate is None and asks_for_keys
    app.state.timeouts = patience or ServerTimeouts()
    app.state.worker_pool = WorkerPool(drain_s=app.state.timeouts.turns_s)
    app.state.shutdown = ShutdownNotice()
    app.state.metrics = ServerMetrics(application)
    app.state.readiness = readiness_of(application)
    app.state.background_tasks = BackgroundTasks(residents or {}, application.clock)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = cache(lambda: openapi.document(routes()))
    for kind in (Failure, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    guard = OriginCheck(names=names, public_urls=harness.settings.public_urls)
    clock = application.clock
    app.add_middleware(HttpMiddleware, guard=guard, clock=clock, asks_for_keys=asks_for_keys)
    return app


def routes() -> list[APIRoute]:
    """Return the routes of all routers, in their order."""
    every = (route for router in ROUTERS for route in router.routes)
    return [route for route in every if isinstance(route, APIRoute)]


async def _refused(request: Request, error: Exception) -> Response:
    match error:
        case Failure():
            if isinstance(error, Unavailable):
                _log_unavailable(error)
            failure = error
        case RequestValidationError():
            failure = _invalid(error)
        case HTTPException():
            failure = _not_here(request, error)
            if request.method in SAFE_METHODS and _reads_pages(request):
                return await failure_page(request, failure)
        case _:
            raise error
    return refused(failure, path_of(request.scope))


def _log_unavailable(error: Unavailable) -> None:
    facts = {"store": error.what, "reason": error.reason, "cause": error}
    event(_log, "unavailable", level=logging.ERROR, **facts)


def _reads_pages(request: Request) -> bool:
    """Return True for a browser. A program gets errors as JSON."""
    return "text/html" in request.headers.get("accept", "")


def _invalid(error: RequestValidationError) -> Refused:
    """Return the first validation error of a query or a path. Bodies are validated by the models."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return Refused(field, first["input"], "is unknown")
    return Refused(field, first.get("input"), rule_of(first["msg"]))


def _not_here(request: Request, error: HTTPException) -> NotHere:
    match error.status_code:
        case 404:
            return NotHere(404, "not_found", "there is no such route", {})
        case 405:
            allowed = _methods(request)
            message = f"this route only supports {allowed}"
            return NotHere(405, "method_not_allowed", message, {"Allow": allowed})
        case status:
            return NotHere(status, "refused", str(error.detail), error.headers or {})


def _methods(request: Request) -> str:
    """Return the methods of all routes with this path. A route only knows its own methods."""
    methods: set[str] = set()
    for route in routes():
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= set(route.methods or ())
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
