"""Pending calls: they wait for an approval, or for the client to run them.

The decision is made when a reply arrives and is stored with it. So a later change of configuration cannot
turn a pending call into one that may have run. While one call of a reply is pending, none of that reply's
calls is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.messages.message import ToolCall
from workspaces.storage.records import JsonObject

WaitsFor = Literal["approval", "result"]


@dataclass(frozen=True, slots=True)
class RequiredAnswer:
    """A decision stored with a reply: this call of it needs an approval or a result from the client."""

    call_id: str
    waits_for: WaitsFor
    workspace: str | None = None
    """The workspace that the call would run in, if any."""

    def as_json(self) -> JsonObject:
        workspace = {"workspace": self.workspace} if self.workspace else {}
        return {"call": self.call_id, "for": self.waits_for, **workspace}


def required_answer_of(data: JsonObject) -> RequiredAnswer:
    return RequiredAnswer(data["call"], data["for"], data.get("workspace"))


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that is pending now."""

    call: ToolCall
    asked: RequiredAnswer

    @property
    def id(self) -> str:
        return self.call.id

    def as_json(self) -> JsonObject:
        return {
            "callId": self.call.id,
            "tool": self.call.name,
            "input": self.call.input,
            "workspace": self.asked.workspace,
            "waitsFor": self.asked.waits_for,
        }
