"""Let the caller drive the loop: the caller asks a provider with its own client, inside an ordinary turn.

To the turn, the loop is a model like any other that runs on the caller's thread. The turn asks it, and the
caller's `record` is the reply. So everything that holds for turns holds here, without a second
implementation: claim and lease, every message stored before anything acts on it, approvals, limits, prompts
and receipts. Messages are in the wire format of the provider whose client the caller uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, cast

from harness.messages.event import Answer, EventItem, items_of
from harness.messages.message import check_part
from harness.messages.model_request import ModelRequest, Reply
from harness.messages.progress import Emit
from harness.models.port import Model
from harness.runtime.async_bridge import UnderWay
from harness.transcripts.outcome import Outcome
from workspaces.errors import Refused
from workspaces.storage.records import JsonObject


class WireFormat(Protocol):
    """A provider's format of requests and replies."""

    def question(self, model: str, request: ModelRequest) -> JsonObject: ...

    def reply(self, data: JsonObject) -> Reply: ...


class Begin(Protocol):
    """A callable that delivers an event. It begins or resumes a turn with this model, on another thread."""

    def __call__(self, items: tuple[EventItem, ...], model: Model) -> UnderWay[Outcome]: ...


@dataclass(frozen=True, slots=True)
class _Question:
    request: ModelRequest
    answer: asyncio.Future[Reply]


class ManualLoop:
    """A manual loop for one conversation and one thread. Use it as a context manager.

    First `record` the user's message. Then, while it `is_open`, ask the provider with `system`, `tools` and
    `messages`, and `record` the reply; that runs the reply's tool calls. Leaving the context early interrupts
    the turn.
    """

    def __init__(self, name: str, wire_format: WireFormat, begin: Begin) -> None:
        self.name = name
        self._wire_format = wire_format
        self.outcome: Outcome | None = None
        """Outcome of the newest turn that ended."""
        self._begin = begin
        self._turn: UnderWay[Outcome] | None = None
        self._requests: SimpleQueue[_Question | None] = SimpleQueue()
        """Requests from the turn; None at the turn's end."""
        self._question: _Question | None = None

    @property
    def is_open(self) -> bool:
        """True if the turn waits for the model's reply."""
        return self._question is not None

    @property
    def system(self) -> list[JsonObject]:
        """The blocks of the system prompt, with the marks up to which the provider shall cache."""
        return self._parameters().get("system", [])

    @property
    def tools(self) -> list[JsonObject]:
        return self._parameters().get("tools", [])

    @property
    def messages(self) -> list[JsonObject]:
        """The messages, with notices of changes since the system blocks were made."""
        return self._parameters()["messages"]

    def record(self, message: str | Mapping[str, Any] | object) -> None:
        """Store the user's message, or the provider's reply as its SDK returned it.

        A user's message is a text or a message. Return when the turn asks the model again, or has ended.
        """
        data = _as_json(message)
        if data["role"] == "user":
            self._start_turn(data)
        else:
            self._reply(data)

    def answer(self, *answers: Answer) -> None:
        """Answer the calls that the turn waits for, once its outcome says so. The turn continues."""
        self._deliver(*answers)

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        """Return the caller's reply to the turn.

        This is the model port's method; it runs on the turn's loop.
        """
        del output_tokens_max, emit
        question = _Question(request, asyncio.get_running_loop().create_future())
        self._requests.put(question)
        return await question.answer

    def close(self) -> None:
        turn, self._turn, self._question = self._turn, None, None
        if turn is not None:
            turn.stop()

    def __enter__(self) -> ManualLoop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start_turn(self, data: JsonObject) -> None:
        if self._turn is not None:
            rule = "cannot be recorded now: the turn waits for the model's reply"
            raise Refused("message", "user", rule, remedy="record the reply, or leave the context")
        (said,) = items_of([{"type": "user", "content": data["content"]}], within="message")
        self._deliver(said)

    def _deliver(self, *items: EventItem) -> None:
        turn = self._turn = self._begin(items, self)
        turn.then(lambda: self._requests.put(None))
        self._wait_for_request()

    def _reply(self, data: JsonObject) -> None:
        answer = self._open_request().answer
        for at, part in enumerate(data["content"]):
            check_part(f"message.content.{at}", part)
        reply = self._wire_format.reply(data)
        self._question = None
        answer.get_loop().call_soon_threadsafe(_resolve, answer, reply)
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        """Block until the turn asks for a reply or ends."""
        self._question = self._requests.get()
        if self._question is None and self._turn is not None:
            turn, self._turn = self._turn, None
            self.outcome = turn.result()

    def _parameters(self) -> JsonObject:
        return self._wire_format.question(self.name, self._open_request().request)

    def _open_request(self) -> _Question:
        if self._question is None:
            rule = "has no open request: no message was recorded, or the turn has ended"
            raise Refused("model", self.name, rule, remedy="record the user's message")
        return self._question


def _resolve(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():  # done means: the turn was stopped in the meantime
        answer.set_result(reply)


def _as_json(message: object) -> JsonObject:
    if isinstance(message, str):
        return {"role": "user", "content": [{"type": "text", "text": message}]}
    as_dict: Callable[[], Any] | None = getattr(message, "to_dict", None)
    value = message if as_dict is None else as_dict()
    if not isinstance(value, Mapping):
        raise Refused("message", type(message).__name__, "is not a message")
    data = dict(cast("Mapping[str, Any]", value))
    if data.get("role") not in {"user", "assistant"}:
        raise Refused("message.role", data.get("role"), "must be user or assistant")
    if isinstance(data.get("content"), str):
        data["content"] = [{"type": "text", "text": data["content"]}]
    if not isinstance(data.get("content"), list):
        raise Refused("message.content", data.get("content"), "must be a text or a list of blocks")
    return data
