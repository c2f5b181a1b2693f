"""Calls that wait: for somebody who allows them, or for the client who makes them.

What a reply asks for is decided when it comes and stored with it, so that no change of a configuration
meanwhile can turn a call that waits into one that may have run. As long as one call of a reply waits,
none of that reply is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.messages.message import ToolCall
from workspaces.storage.records import JsonObject

WaitsFor = Literal["approval", "result"]


@dataclass(frozen=True, slots=True)
class RequiredAnswer:
    """Stored with a reply: this call of it must be allowed, or made by the client."""

    call_id: str
    waits_for: WaitsFor
    workspace: str | None = None
    """Where it would be run, if in one."""

    def as_json(self) -> JsonObject:
        workspace = {"workspace": self.workspace} if self.workspace else {}
        return {"call": self.call_id, "for": self.waits_for, **workspace}


def asked_of(data: JsonObject) -> RequiredAnswer:
    return RequiredAnswer(data["call"], data["for"], data.get("workspace"))


@dataclass(frozen=True, slots=True)
class PendingCall:
    """One that waits now."""

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
