"""The OpenAPI document of the routes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

OpenApiDocument = dict[str, Any]

TITLE = "workspace-harness"
VERSION = version("workspace-harness")

ABOUT = """\
Workspaces of Markdown files with a history, the agents that keep their memory there, and the records
of an account.

Send a key as `Authorization: Bearer …`. Errors are `{"error": {"code", "message", "field"?}}`. A missing
resource and a resource that you may not see have the same 404. Every response has an `X-Request-Id`, which
the server's log names too.
"""

_GENERATED = ("HTTPValidationError", "ValidationError")
"""The schemas of FastAPI's own error response, which this app never sends."""


def document(routes: Sequence[BaseRoute]) -> OpenApiDocument:
    whole = get_openapi(title=TITLE, version=VERSION, description=ABOUT, routes=routes)
    for _, _, operation in operations(whole):
        # FastAPI's own 422 is never sent; that of a forbidden text is
        if _GENERATED[0] in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for name in _GENERATED:
        whole["components"]["schemas"].pop(name, None)
    return whole


def operations(whole: OpenApiDocument) -> list[tuple[str, str, OpenApiDocument]]:
    """Return path, method and description of each operation, in the order of the routers."""
    return [
        (path, method, operation)
        for path, methods in whole["paths"].items()
        for method, operation in methods.items()
    ]
