"""Routes of what is forbidden: texts, patterns and detectors that no write may bring."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    answers,
    refusals,
    schema_of,
    takes,
)
from workspaces.forgetting.rule import ForbiddenRule
from workspaces.home.forbidding import NewPass, NewRule
from workspaces.validation import StrictModel

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["forbidden texts"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class RuleDocument(StrictModel):
    """A rule that forbids, without the text of which it has only a hash."""

    id: str
    kind: Literal["text", "pattern", "detector"]
    at: str
    """When it was made, or lifted."""
    by: str
    workspace_id: str | None
    """The only workspace for which it counts."""
    is_lifted: bool
    forgetting_id: str | None
    """The forgetting that made it."""
    stopped: int
    """How often it has refused a write or marked a message in this home."""
    stopped_at: str | None
    """When it did so last."""
    words: int | None = None
    """The number of words of a text, at most 32."""
    pattern: str | None = None
    detector: str | None = None


class AllowedDocument(StrictModel):
    """The answer once a rule may be passed."""

    allowed: Literal[True]


EXAMPLE: JsonObject = {
    "id": "p_1f2e3d4c",
    "kind": "pattern",
    "at": "2026-11-18T14:03:18.875130Z",
    "by": "ada",
    "workspaceId": None,
    "isLifted": False,
    "forgettingId": None,
    "stopped": 2,
    "stoppedAt": "2026-11-19T09:12:44.018274Z",
    "pattern": "ACME-[0-9]{6}",
}
PASS: JsonObject = {"workspace": "notes", "path": "MEMORY.md"}
RuleId = Annotated[str, Path(alias="id")]


@router.post(
    "/forbidden",
    summary="Forbid a text",
    status_code=201,
    responses={**answers(RuleDocument, EXAMPLE, status=201), **refusals(*READING_JSON)},
    openapi_extra=takes(schema_of(NewRule), {"match": "ACME-[0-9]{6}"}),
)
def forbid(caller: Caller, fields: Fields) -> Json:
    """Forbid a text, what a pattern matches, or what a detector finds (`keys`, `cards`).

    Whoever writes it from now on gets 422 `forbidden_text`. What is there already stays. Of a `text` only a
    keyed hash of its words is stored. It has at least 3 words or 12 letters, unless `forbidShort`.
    """
    return Json(_document(caller, caller.forbidding.forbid(fields)), 201)


@router.get(
    "/forbidden",
    summary="List what is forbidden",
    responses=answers(page_model("forbidden", RuleDocument), whole("forbidden", [EXAMPLE])),
)
def list_forbidden(caller: Caller) -> Json:
    """List the rules of the account, oldest first. Those of texts are without the text."""
    forbidding = caller.forbidding
    return Json(whole("forbidden", forbidding.shown(*forbidding.list())))


@router.delete(
    "/forbidden/{id}",
    summary="Lift a rule",
    responses=answers(RuleDocument, {**EXAMPLE, "isLifted": True}),
)
def lift_rule(caller: Caller, rule_id: RuleId) -> Json:
    """Forbid something no longer. What was forgotten stays forgotten."""
    return Json(_document(caller, caller.forbidding.lift(rule_id)))


@router.post(
    "/forbidden/{id}/allow",
    summary="Let a rule be passed once",
    responses={**answers(AllowedDocument, {"allowed": True}), **refusals(*READING_JSON)},
    openapi_extra=takes(schema_of(NewPass), PASS),
)
def allow_once(caller: Caller, rule_id: RuleId, fields: Fields) -> Json:
    """Let the next change of one file pass a rule, because it is a false alarm. It counts for ten minutes."""
    caller.forbidding.allow(rule_id, fields)
    return Json({"allowed": True})


def _document(caller: Caller, rule: ForbiddenRule) -> JsonObject:
    (document,) = caller.forbidding.shown(rule)
    return document
