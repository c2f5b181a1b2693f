"""A turn: from something said to an outcome, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from harness.agent import Limits
from harness.context.assemble import Part, assemble
from harness.crossing import in_thread
from harness.message import Message
from harness.models.port import Model
from harness.progress import Emit
from harness.request import NO_USAGE, ModelFailure, Request, Usage
from harness.tools.desk import Change, Seen
from harness.tools.port import Toolset
from harness.transcript import NOTHING_SEEN, Transcript
from workspaces.ids import ConversationId, TurnId
from workspaces.lease import Lease
from workspaces.records import JsonObject

Status = Literal["done", "failed", "out_of_steps", "cut"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an event."""

    status: Status
    reply: str
    conversation_id: ConversationId
    turn_id: TurnId
    usage: Usage = NO_USAGE
    changes: tuple[Change, ...] = ()
    failure: ModelFailure | None = None
    is_shared: bool = False
    """Whether the files that it changed are in S3."""

    def as_json(self) -> JsonObject:
        failure = self.failure
        error = (
            {"code": failure.kind, "message": failure.reason, "remedy": failure.remedy}
            if failure
            else None
        )
        usage = self.usage
        return {
            "outcome": self.status,
            "reply": self.reply,
            "conversation": self.conversation_id,
            "turn": self.turn_id,
            "usage": {
                "input": usage.input,
                "output": usage.output,
                "cacheRead": usage.cache_read,
                "cacheWrite": usage.cache_write,
            },
            "revisions": [
                {"workspace": change.workspace, "revision": change.revision}
                for change in self.changes
            ],
            "durable": {"local": True, "files": self.is_shared, "history": False},
            **({"error": error} if error else {}),
        }


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a turn stands. Every message is stored before anything acts on it."""

    id: TurnId
    conversation_id: ConversationId
    transcript: Transcript
    lease: Lease
    parts: list[Part]
    messages: tuple[Message, ...]
    next_number: int
    limits: Limits
    usage: Usage = NO_USAGE

    async def append(
        self, message: Message, *, usage: Usage = NO_USAGE, seen: Seen = NOTHING_SEEN
    ) -> Turn:
        """Stored under the lease's guard: after a return, nobody else has taken over meanwhile."""
        await in_thread(
            self.transcript.append, self.next_number, self.id, message, self.lease, seen
        )
        return replace(
            self,
            messages=(*self.messages, message),
            next_number=self.next_number + 1,
            usage=self.usage + usage,
        )

    def request(self, toolset: Toolset) -> Request:
        return assemble(self.parts, self.messages, toolset.specs())

    def ended(
        self, status: Status, reply: str = "", failure: ModelFailure | None = None
    ) -> Outcome:
        return Outcome(status, reply, self.conversation_id, self.id, self.usage, failure=failure)


async def run_turn(turn: Turn, *, model: Model, toolset: Toolset, emit: Emit) -> Outcome:
    """Ask the model until it asks for no more tools."""
    tokens_max = turn.limits.output_tokens
    for _ in range(turn.limits.steps):
        request = turn.request(toolset)
        reply = await model.reply(request, output_tokens_max=tokens_max, emit=emit)
        if isinstance(reply, ModelFailure):
            return turn.ended("failed", failure=reply)
        turn = await turn.append(reply.message, usage=reply.usage)
        if not reply.is_complete:
            return turn.ended("cut", reply.message.text)
        if not reply.message.tool_calls:
            return turn.ended("done", reply.message.text)
        results = await toolset.run(reply.message.tool_calls, emit)
        turn = await turn.append(results, seen=toolset.desk.take_news())
    return turn.ended("out_of_steps")
