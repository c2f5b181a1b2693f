"""A loop of one's own: the caller asks a provider, with its own client, and the turn is ours all the same.

To the turn it is a model like any other, that happens to think on the caller's thread: it is asked, and the
caller's `record` is its answer. So everything holds that holds for turns (claim and lease, every message
stored before anything acts on it, approvals, limits, what is shown and its receipts), and nothing is there
twice. What is spoken here is the notation of the provider whose client the caller has.
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
    """How a provider writes questions and answers."""

    def question(self, model: str, request: ModelRequest) -> JsonObject: ...

    def reply(self, data: JsonObject) -> Reply: ...


class Begin(Protocol):
    """An event comes in: a turn whose model is this one begins or goes on, on another thread."""

    def __call__(self, items: tuple[EventItem, ...], model: Model) -> UnderWay[Outcome]: ...


@dataclass(frozen=True, slots=True)
class _Question:
    request: ModelRequest
    answer: asyncio.Future[Reply]


class ManualLoop:
    """One conversation, for one thread. Use it as a context manager.

    `record` what is said, then, while it `is_open`: ask with `system`, `tools` and `messages`, and `record`
    the answer, whose calls are run by that. To leave it early interrupts the turn.
    """

    def __init__(self, name: str, notation: WireFormat, begin: Begin) -> None:
        self.name = name
        self._notation = notation
        self.outcome: Outcome | None = None
        """Of the newest turn that ended."""
        self._begin = begin
        self._turn: UnderWay[Outcome] | None = None
        self._told: SimpleQueue[_Question | None] = SimpleQueue()
        """What the turn says: a question, or None at its end."""
        self._question: _Question | None = None

    @property
    def is_open(self) -> bool:
        """Whether the model is to be asked."""
        return self._question is not None

    @property
    def system(self) -> list[JsonObject]:
        """Blocks, with the marks up to which the provider is to keep what it has read."""
        return self._parameters().get("system", [])

    @property
    def tools(self) -> list[JsonObject]:
        return self._parameters().get("tools", [])

    @property
    def messages(self) -> list[JsonObject]:
        """With what was told of changes since the system's blocks were made."""
        return self._parameters()["messages"]

    def record(self, message: str | Mapping[str, Any] | object) -> None:
        """What the user says, as text or as a message; or what the provider answered, as its SDK gave it.
        Returns when the model is to be asked again, or when the turn has ended."""
        data = _as_json(message)
        if data["role"] == "user":
            self._say(data)
        else:
            self._reply(data)

    def answer(self, *answers: Answer) -> None:
        """Calls that the turn waits for, once its outcome says so: it goes on."""
        self._go_on(*answers)

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        """The port's half: on the turn's loop."""
        del output_tokens_max, emit
        question = _Question(request, asyncio.get_running_loop().create_future())
        self._told.put(question)
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

    def _say(self, data: JsonObject) -> None:
        if self._turn is not None:
            rule = "cannot be said now: the model is to be asked first"
            raise Refused("message", "user", rule, remedy="record its answer, or leave the context")
        (said,) = items_of([{"type": "user", "content": data["content"]}], within="message")
        self._go_on(said)

    def _go_on(self, *items: EventItem) -> None:
        turn = self._turn = self._begin(items, self)
        turn.then(lambda: self._told.put(None))
        self._hear()

    def _reply(self, data: JsonObject) -> None:
        answer = self._asked().answer
        for at, part in enumerate(data["content"]):
            check_part(f"message.content.{at}", part)
        reply = self._notation.reply(data)
        self._question = None
        answer.get_loop().call_soon_threadsafe(_settle, answer, reply)
        self._hear()

    def _hear(self) -> None:
        """Wait for what the turn says next."""
        self._question = self._told.get()
        if self._question is None and self._turn is not None:
            turn, self._turn = self._turn, None
            self.outcome = turn.result()

    def _parameters(self) -> JsonObject:
        return self._notation.question(self.name, self._asked().request)

    def _asked(self) -> _Question:
        if self._question is None:
            rule = "is asked nothing: nothing was said, or the turn has ended"
            raise Refused("model", self.name, rule, remedy="record what the user says")
        return self._question


def _settle(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():  # it is, when the turn was stopped meanwhile
        answer.set_result(reply)


def _as_json(message: object) -> JsonObject:
    if isinstance(message, str):
        return {"role": "user", "content": [{"type": "text", "text": message}]}
    as_dict: Callable[[], Any] | None = getattr(message, "to_dict", None)
    stated = message if as_dict is None else as_dict()
    if not isinstance(stated, Mapping):
        raise Refused("message", type(message).__name__, "is no message")
    data = dict(cast("Mapping[str, Any]", stated))
    if data.get("role") not in {"user", "assistant"}:
        raise Refused("message.role", data.get("role"), "must be user or assistant")
    if isinstance(data.get("content"), str):
        data["content"] = [{"type": "text", "text": data["content"]}]
    if not isinstance(data.get("content"), list):
        raise Refused("message.content", data.get("content"), "must be a text or a list of blocks")
    return data
