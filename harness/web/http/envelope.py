"""The envelope of the routes of facts: `{"success", "data"?, "error"?}`, also for every failure.

Programs that were written for rows elsewhere expect it. `error` is a sentence.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from harness.web.http.errors import Json
from harness.web.http.route_docs import REFUSALS, Responses
from workspaces.validation import StrictModel

T = TypeVar("T")


class Success(StrictModel, Generic[T]):
    """An answer that carries what was asked for."""

    success: Literal[True]
    data: T


class ErrorEnvelope(StrictModel):
    """An answer that says why not."""

    success: Literal[False]
    error: str
    """A sentence for people, with the remedy."""


def succeeded(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Json:
    return Json({"success": True, "data": data}, status, headers)


def enveloped(
    model: type[BaseModel], example: Any, *, status: int = 200, description: str
) -> Responses:
    """Return the description of an answer in the envelope."""
    content = {"application/json": {"example": {"success": True, "data": example}}}
    return {status: {"model": model, "description": description, "content": content}}


def enveloped_refusals(*statuses: int) -> Responses:
    return {s: {"model": ErrorEnvelope, "description": REFUSALS[s]} for s in statuses}
