"""What comes in: something is said to an agent in a conversation, or calls that wait are answered.

An event is a few items under one id. Either it *says*: what a user says, and what the platform says to
the model beside it. Or it *answers*: calls of a turn that waits, allowed or not, or made by the client.
Never both, so that an event either begins a turn or goes on with one.

It waits in the inbox as JSON, in the notation in which programs state it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from harness.messages.client_tool import ClientTool, check_names, client_tools_of
from harness.messages.memory_policy import MemoryPolicy
from harness.messages.message import Message, Text
from workspaces.errors import Refused
from workspaces.ids import AccountId, AgentId
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse, unknown_name

KEY_CHARACTERS_MAX = 200
CONTENT_CHARACTERS_MAX = 10_000_000
"""Of all texts of an event together."""
ITEMS_MAX = 100
PARTS_MAX = 1_000
REASON_CHARACTERS_MAX = 2_000

OnBusy = Literal["queue", "reject"]
"""What becomes of an event when the conversation is in use: it waits its turn, or it is refused."""

_IN_ONE_ORDER = json.JSONEncoder(sort_keys=True)

_RESERVED = ("acct:", "conversation-lease:", "run:", "shared")

_CallId = Annotated[str, Field(min_length=1, max_length=200)]


class _Item(StrictModel):
    def as_json(self) -> JsonObject:
        """Always with its type, and with nothing that was not stated."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class TextPart(_Item):
    type: Literal["text"] = "text"
    text: str


class UserSaid(_Item):
    """By the user."""

    type: Literal["user"] = "user"
    content: str | Annotated[list[TextPart], Field(max_length=PARTS_MAX)]

    @property
    def parts(self) -> tuple[Text, ...]:
        if isinstance(self.content, str):
            return (Text(self.content),)
        return tuple(Text(part.text) for part in self.content)


class SystemSaid(_Item):
    """By the platform, to the model: for this turn and kept nowhere, or for good."""

    type: Literal["system"] = "system"
    content: str
    persist: bool = False


class Approval(_Item):
    """May a call that waits be run?"""

    type: Literal["approval"] = "approval"
    call_id: _CallId
    is_allowed: Annotated[bool, Field(alias="allowed")]
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)] | None = None
    """Why not, for the model."""


class ToolAnswer(_Item):
    """What came of a call of a tool that the client runs."""

    type: Literal["tool_result"] = "tool_result"
    call_id: _CallId
    content: str
    is_error: bool = False


EventItem = UserSaid | SystemSaid | Approval | ToolAnswer
Answer = Approval | ToolAnswer

_SHAPES: dict[str, type[EventItem]] = {
    "user": UserSaid,
    "system": SystemSaid,
    "approval": Approval,
    "tool_result": ToolAnswer,
}


@dataclass(frozen=True, slots=True)
class Event:
    """The same id is processed once; another body under it is refused."""

    id: str
    conversation_key: str
    items: tuple[EventItem, ...]
    system: str | None = None
    """Instructions for this turn alone."""
    memory_policy: MemoryPolicy | None = None
    """What of blocks this turn is shown."""
    tools: tuple[ClientTool, ...] = ()
    """Tools that the client runs, in this turn."""
    on_busy: OnBusy | None = None
    """None: as the agent is configured."""

    @classmethod
    def said(
        cls, event_id: str, conversation_key: str, text: str, *, on_busy: OnBusy | None = None
    ) -> Event:
        """Somebody says something: the plain case."""
        return cls(event_id, conversation_key, (UserSaid(content=text),), on_busy=on_busy)

    def __post_init__(self) -> None:
        _check_name("eventId", self.id)
        check_key(self.conversation_key)
        check_names(self.tools, ())
        self._check_items()
        if not self.is_answer and not self.message.text.strip():
            raise Refused("content", self.message.text, "is empty", message="the message is empty")
        texts = list(self._texts())
        if not all(map(_is_unicode, texts)):
            raise Refused("content", "", "is not Unicode text")
        if sum(map(len, texts)) > CONTENT_CHARACTERS_MAX:
            rule = f"is over {CONTENT_CHARACTERS_MAX:,} characters"
            raise Refused("content", max(texts, key=len), rule)

    @property
    def is_answer(self) -> bool:
        """It answers calls of a turn that waits; else it begins a turn."""
        return bool(self.answers)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(one for one in self.items if isinstance(one, Approval | ToolAnswer))

    @property
    def message(self) -> Message:
        """What the user says."""
        said = (one.parts for one in self.items if isinstance(one, UserSaid))
        return Message("user", tuple(part for parts in said for part in parts))

    @property
    def system_kept(self) -> tuple[str, ...]:
        """What the platform says for good."""
        return tuple(one.content for one in self._system if one.persist)

    @property
    def system_once(self) -> str | None:
        """What the platform says for this turn alone."""
        said = [one.content for one in self._system if not one.persist]
        return "\n\n".join(([self.system] if self.system else []) + said) or None

    @property
    def size_bytes(self) -> int:
        """Of its texts, as UTF-8."""
        return sum(len(text.encode()) for text in self._texts())

    @property
    def body_hash(self) -> str:
        """Of all that matters to what comes of it: not its id, nor whether it would wait."""
        return body_hash_of(self.as_json())

    def as_json(self) -> JsonObject:
        """Only what there is to say. Whether it would have waited is no matter once it does."""
        return {
            "id": self.id,
            "conversationKey": self.conversation_key,
            "events": [one.as_json() for one in self.items],
            **({} if self.system is None else {"system": self.system}),
            **(
                {} if self.memory_policy is None else {"memoryPolicy": self.memory_policy.as_json()}
            ),
            **({"tools": [tool.as_json() for tool in self.tools]} if self.tools else {}),
        }

    @property
    def _system(self) -> tuple[SystemSaid, ...]:
        return tuple(one for one in self.items if isinstance(one, SystemSaid))

    def _texts(self) -> Iterator[str]:
        """Everything in it that strangers wrote and that has no limit of its own."""
        for one in self.items:
            match one:
                case UserSaid():
                    yield from (part.text for part in one.parts)
                case SystemSaid() | ToolAnswer():
                    yield one.content
                case Approval():
                    yield one.reason or ""
        yield self.system or ""
        yield from (json.dumps(tool.as_json(), ensure_ascii=False) for tool in self.tools)

    def _check_items(self) -> None:
        _check_number(len(self.items), "events")
        if not self.answers:
            if not any(isinstance(one, UserSaid) for one in self.items):
                raise Refused("events", "system", "say nothing: a user must say something, too")
            return
        if len(self.answers) < len(self.items) or self.system or self.tools:
            remedy = "send two, under two ids: first the answers, then what is said"
            rule = "answer calls and say something at once"
            raise Refused("events", self.id, rule, remedy=remedy)
        ids = [one.call_id for one in self.answers]
        for call_id in ids:
            if ids.count(call_id) > 1:
                raise Refused("events", call_id, "is answered twice")


def body_hash_of(stated: JsonObject) -> str:
    """Of an event as JSON."""
    body = {name: value for name, value in stated.items() if name != "id"}
    return sha256(_IN_ONE_ORDER.encode(body).encode()).hexdigest()


def check_key(key: str, field: str = "conversationKey") -> str:
    """A conversation key, as it may be chosen. Refused."""
    _check_name(field, key)
    if key.startswith(_RESERVED):
        raise Refused(field, key, "begins with a reserved word")
    return key


def event_of(data: JsonObject) -> Event:
    """One that waited."""
    policy = data.get("memoryPolicy")
    return Event(
        data["id"],
        data["conversationKey"],
        items_of(data["events"]),
        data.get("system"),
        None if policy is None else parse(MemoryPolicy, policy, within="memory_policy"),
        client_tools_of(data.get("tools", ())),
    )


def items_of(data: object, *, within: str = "events") -> tuple[EventItem, ...]:
    """As a program states them: `{type: "user" | "system" | "approval" | "tool_result", …}`. Refused."""
    if not isinstance(data, list):
        raise Refused(within, data, "must be a list of events")
    stated = cast("Sequence[object]", data)
    _check_number(len(stated), within)
    return tuple(_item_of(one, f"{within}.{at}") for at, one in enumerate(stated))


def full_key(account_id: AccountId, agent_id: AgentId, conversation_key: str) -> str:
    """The conversation's own key: what its lease is named after."""
    return f"acct:{account_id}:agent:{agent_id}:api:{conversation_key}"


def _item_of(data: object, within: str) -> EventItem:
    if not isinstance(data, Mapping):
        raise Refused(within, data, "must be an object")
    stated = cast("Mapping[str, Any]", data)
    kind = stated.get("type")
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise unknown_name(f"{within}.type", str(kind), list(_SHAPES))
    if shape is not UserSaid or isinstance(stated.get("content"), str):
        return parse(shape, stated, within=within)
    parts = stated.get("content")
    if not isinstance(parts, list):
        raise Refused(f"{within}.content", parts, "must be a text or a list of parts")
    # what is beyond the limit is refused by the shape, whatever it is
    for at, part in enumerate(cast("Sequence[object]", parts)[:PARTS_MAX]):
        _check_part(part, f"{within}.content.{at}")
    return parse(UserSaid, stated, within=within)


def _check_part(part: object, within: str) -> None:
    """UserSaid better than a union can."""
    kind = cast("Mapping[str, object]", part).get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        rule = "is no text: only parts of the type `text` are taken"
        remedy = "put a file into a workspace and name it in the text"
        raise Refused(f"{within}.type", kind, rule, remedy=remedy)
    parse(TextPart, cast(object, part), within=within)


def _check_number(items: int, within: str) -> None:
    if not 1 <= items <= ITEMS_MAX:
        raise Refused(within, items, f"must be 1 to {ITEMS_MAX} events")


def _check_name(field: str, value: object) -> None:
    if not (
        isinstance(value, str) and 1 <= len(value) <= KEY_CHARACTERS_MAX and value.isprintable()
    ):
        rule = f"must be 1 to {KEY_CHARACTERS_MAX} printable characters"
        raise Refused(field, value, rule)


def _is_unicode(text: str) -> bool:
    """Without halves of surrogate pairs, which is what bytes that are no UTF-8 become in Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
