"""Re-examinations: a later look at a decision, with a score of how far it still holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from workspaces.errors import Refused
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse

SCORE_MAX = 100
NOTES_CHARACTERS_MAX = 1_000
WATCHED_MAX = 50

_ACTION = re.compile(r"[A-Z][A-Z0-9_-]{0,19}")


class WatchReview(StrictModel):
    """What became of one thing that the decision said to watch for."""

    item: Annotated[str, Field(min_length=1, max_length=1_000)]
    status: Literal["played_out", "failed", "pending"]
    evidence: Annotated[str, Field(max_length=2_000)]


class ReExamination(StrictModel):
    conviction_score: Annotated[int, Field(alias="conviction_score", ge=0, le=SCORE_MAX)]
    notes: Annotated[str, Field(min_length=1, max_length=NOTES_CHARACTERS_MAX)]
    suggested_action: Annotated[str, Field(alias="suggested_action", min_length=1, max_length=100)]
    watch_for: Annotated[list[WatchReview], Field(alias="watch_for", max_length=WATCHED_MAX)] = (
        Field(default=[])
    )


def schema(actions: Sequence[str], *, watches: bool) -> JsonObject:
    """Return the JSON Schema of a re-examination."""
    action: JsonObject = {"type": "string"}
    action |= {"enum": list(actions)} if actions else {"description": "one short uppercase word"}
    review = {
        "type": "object",
        "properties": {
            "item": {"type": "string"},
            "status": {"type": "string", "enum": ["played_out", "failed", "pending"]},
            "evidence": {"type": "string"},
        },
        "required": ["item", "status", "evidence"],
    }
    watched = {"watch_for": {"type": "array", "items": review}} if watches else {}
    return {
        "type": "object",
        "properties": {
            "conviction_score": {"type": "integer", "minimum": 0, "maximum": SCORE_MAX},
            "notes": {"type": "string", "maxLength": NOTES_CHARACTERS_MAX},
            "suggested_action": action,
            **watched,
        },
        "required": ["conviction_score", "notes", "suggested_action", *watched],
        "additionalProperties": False,
    }


def checked(data: Mapping[str, Any], actions: Sequence[str], *, watches: bool) -> JsonObject:
    """Return a valid re-examination.

    Raises: Refused, naming the field.
    """
    answer = parse(ReExamination, data)
    if not answer.notes.strip():
        raise Refused("notes", answer.notes, "is empty", message="the notes are empty")
    action = answer.suggested_action
    if actions and action not in actions:
        raise Refused("suggested_action", action, f"must be one of {', '.join(actions)}")
    if not actions and not _ACTION.fullmatch(action):
        raise Refused("suggested_action", action, "must be one short uppercase word")
    if watches and not answer.watch_for:
        rule = "is required: the decision said what to watch for"
        raise Refused("watch_for", None, rule)
    return answer.model_dump(mode="json", by_alias=True)
