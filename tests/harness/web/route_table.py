"""The table of routes in docs/http.md, generated from the OpenAPI document by `make http-table`."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from harness.web.openapi import OpenApiDocument, document, operations

_HEADING = """\
# HTTP

All routes, generated from the app. `harness up` serves them, `/openapi.json` describes them in full, and
`/docs` lets you try them. Send `Authorization: Bearer <key>` and JSON. A body that breaks a rule gets 400,
and `field` names the place.
"""

_COLUMNS = "| | route | does | answers | refuses with |\n|---|---|---|---|---|\n"


def table(routes: Sequence[BaseRoute]) -> str:
    """Return the text of `docs/http.md`."""
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
