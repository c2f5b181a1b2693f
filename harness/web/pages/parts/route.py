"""A route of a page: its failures are pages too.

Whoever is not signed in is sent to the sign-in page, and from there back to the page that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import RedirectResponse, Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import SAFE_METHODS, address_of, services_of
from harness.web.http.errors import refused
from harness.web.http.route import Route
from harness.web.pages.parts.rendering import shown
from workspaces.errors import Failure, NotFound, Unauthorized

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(Route):
    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError:  # a query that no link of ours has
                return await failure_page(request, NotFound("page", request.url.path))
            except Unauthorized as failure:
                if request.method in SAFE_METHODS and request.app.state.signs_in:
                    return to_sign_in(request)
                return await failure_page(request, failure)
            except Failure as failure:
                return await failure_page(request, failure)

        return answer


def to_sign_in(request: Request) -> Response:
    """Return the answer that leads to the sign-in page, and names the page to return to."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = address_of(request, f"/sign-in?{urlencode({'next': wanted})}")
    return RedirectResponse(target, 303)


async def failure_page(request: Request, failure: Failure) -> Response:
    """Return the page that shows a failure, with the status and the sentence of the API."""
    answer = refused(failure)
    message = json.loads(bytes(answer.body))["error"]["message"]
    caller: PrincipalServices | None = None
    with suppress(Failure):  # whoever is not known sees the page without a name
        caller = await services_of(request)
    kept = {"allow", "retry-after"}
    headers = {name: value for name, value in answer.headers.items() if name in kept}
    return shown(
        request,
        "failure.html",
        caller=caller,
        status=answer.status_code,
        headers=headers,
        message=message,
        missing=isinstance(failure, NotFound),
    )
