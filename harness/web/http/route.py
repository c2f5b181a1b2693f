"""A route whose synchronous endpoint runs in the caller's share of the threads.

The framework has one stock of forty threads for all callers: forty calls of one account that wait would keep
everybody else out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi.routing import APIRoute

from harness.runtime.async_bridge import run_in_thread


class Route(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **stated: Any) -> None:
        super().__init__(path, _crossing(endpoint), **stated)


def _crossing(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function with the same signature."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def crossed(**values: Any) -> Any:
        return await run_in_thread(endpoint, **values)

    return crossed
