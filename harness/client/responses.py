"""The responses of a server, as the types that the same calls return in process."""

from __future__ import annotations

from harness.client.errors import given_back
from harness.context.receipt import remark_of
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure, usage_of
from harness.messages.pending_call import PendingCall, RequiredAnswer
from harness.tools.tool_context import tool_revision_of
from harness.transcripts.outcome import Outcome
from workspaces.durability import Durable
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.records import JsonObject


def outcome_of(status: JsonObject) -> Outcome:
    """Return the outcome from the status of an event that has ended.

    Raises: the failure of an event that was refused when its turn came.
    """
    if status["status"] == "refused":
        raise given_back(status["error"])
    error = status.get("error")
    return Outcome(
        status["outcome"],
        status["reply"],
        ConversationId(status["conversationId"]),
        TurnId(status["turnId"]),
        usage=usage_of(status["usage"]),
        changes=tuple(map(tool_revision_of, status["revisions"])),
        failure=ModelFailure(error["code"], error["message"], error["remedy"]) if error else None,
        unavailable=tuple(status.get("unavailable", ())),
        left_out=tuple(status.get("leftOut", ())),
        durable=Durable(status["durable"]["files"], status["durable"]["history"]),
        pending=tuple(map(pending_of, status.get("pending", ()))),
        remarks=tuple(map(remark_of, status.get("context", ()))),
    )


def pending_of(data: JsonObject) -> PendingCall:
    asked = RequiredAnswer(data["callId"], data["waitsFor"], data["workspace"])
    return PendingCall(ToolCall(data["callId"], data["tool"], data["input"]), asked)
