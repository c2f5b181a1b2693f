"""The route of the server's figures, for a monitoring system. It needs the admin key or the start token."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.authentication import is_start_token
from harness.bootstrap.metrics import CONTENT_TYPE, ServerMetrics
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import access_of, application_of, documented_bearer, secret_of
from harness.web.http.route import Route
from harness.web.http.route_docs import EVERYWHERE, refusals
from workspaces.errors import Unauthorized

router = APIRouter(route_class=Route, tags=["health"], dependencies=[documented_bearer])


@router.get(
    "/metrics",
    summary="Show the figures of the server",
    response_class=Response,
    responses={
        200: {
            "description": "The figures in Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **refusals(*EVERYWHERE),
    },
)
async def metrics(request: Request) -> Response:
    """Return requests, turns, tokens, dollars, jobs, queues, sync, stores and the disk as figures.

    The bearer is the home's admin key (the file `admin.key`, or HARNESS_ADMIN_KEY) or the start token that
    `harness up` prints. A key of an account is refused, because the figures concern all accounts. No label
    holds an id or a name that a person gave.
    """
    if request.app.state.asks_for_keys:
        secret = secret_of(request)
        if secret is None or not await run_in_thread(_may_see, request, secret):
            raise Unauthorized
    figures: ServerMetrics = request.app.state.metrics
    return Response(await run_in_thread(figures.text), media_type=CONTENT_TYPE)


def _may_see(request: Request, secret: str) -> bool:
    home = application_of(request).settings.home
    return access_of(request).is_admin(secret) or is_start_token(home, secret)
