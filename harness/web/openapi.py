"""The OpenAPI document of the routes, and their table for `docs/http.md`."""

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

Send a key as `Authorization: Bearer …`. Errors are `{"error": {"code", "message", "field"?}}`; what is
not yours and what is not there are the same 404. Every answer has an `X-Request-Id`, under which the
log knows it.
"""

_GENERATED = ("HTTPValidationError", "ValidationError")
"""FastAPI's own refusal, which this app never gives."""

_HEADING = """\
# HTTP

Every route, made from the app itself: `harness up` serves it, `/openapi.json` says all of it, `/docs`
lets you try. `Authorization: Bearer <key>`; JSON; a body that breaks a rule is 400 and says where.
"""

_COLUMNS = "| | route | does | answers | refuses with |\n|---|---|---|---|---|\n"


def document(routes: Sequence[BaseRoute]) -> OpenApiDocument:
    found = get_openapi(title=TITLE, version=VERSION, description=ABOUT, routes=routes)
    for _, _, operation in operations(found):
        operation["responses"].pop("422", None)
    for name in _GENERATED:
        found["components"]["schemas"].pop(name, None)
    return found


def operations(found: OpenApiDocument) -> list[tuple[str, str, OpenApiDocument]]:
    """Path, method, and what is said of it; in the order of the routers."""
    return [
        (path, method, operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]


def table(routes: Sequence[BaseRoute]) -> str:
    """`docs/http.md`."""
    text, group = _HEADING, ""
    for path, method, operation in operations(document(routes)):
        if operation["tags"][0] != group:
            group = operation["tags"][0]
            text += f"\n## {group.capitalize()}\n\n{_COLUMNS}"
        text += f"| {' | '.join(_cells(path, method, operation))} |\n"
    return text


def _cells(path: str, method: str, operation: OpenApiDocument) -> tuple[str, ...]:
    statuses = [int(status) for status in operation["responses"]]
    query = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
    shown = path + (f"?{'&'.join(query)}" if query else "")
    return (
        method.upper(),
        f"`{shown}`",
        operation["summary"],
        " ".join(str(status) for status in sorted(statuses) if status < 400),
        " ".join(str(status) for status in sorted(statuses) if status >= 400),
    )
