"""A route that refuses repeated parameters, and whose synchronous endpoint runs in the caller's share of the
threads.

The framework has one pool of forty threads for all callers. Forty waiting calls of one account would block
all other accounts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from harness.runtime.async_bridge import run_in_thread
from workspaces.errors import Refused


class Route(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _as_coroutine(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests. A parameter given twice is refused: only one value could count."""
        handle = super().get_route_handler()

        async def handle_request(request: Request) -> Response:
            seen = set[str]()
            for name, _ in request.query_params.multi_items():
                if name in seen:
                    given = request.query_params.getlist(name)
                    raise Refused(name, given, "is given more than once")
                seen.add(name)
            return await handle(request)

        return handle_request


def _as_coroutine(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function with the same signature, which runs the endpoint in a thread."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def in_thread(**values: Any) -> Any:
        return await run_in_thread(endpoint, **values)

    return in_thread
