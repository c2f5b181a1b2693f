"""A route whose synchronous endpoint runs in the caller's share of the threads.

The framework has one pool of forty threads for all callers. Forty waiting calls of one account would block
all other accounts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi.routing import APIRoute

from harness.runtime.async_bridge import run_in_thread


class Route(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _as_coroutine(endpoint), **options)


def _as_coroutine(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function with the same signature, which runs the endpoint in a thread."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def in_thread(**values: Any) -> Any:
        return await run_in_thread(endpoint, **values)

    return in_thread
