"""Events: an event sends messages to an agent in a conversation, or answers pending calls.

An event consists of a few items under one id. Either it holds *messages*: the user's, and the platform's
beside them. Or it holds *answers* to pending calls of a turn: approvals, denials, or results from the client.
It never holds both, so an event either begins a turn or continues one.

A queued event is stored as JSON, in the notation in which programs send it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from harness.messages.client_tool import ClientTool, check_names, client_tools_of
from harness.messages.memory_policy import MemoryPolicy
from harness.messages.message import Message, Text
from workspaces.errors import Refused, unknown_name
from workspaces.ids import AccountId, AgentId, UserId
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse

KEY_CHARACTERS_MAX = 200
CONTENT_CHARACTERS_MAX = 10_000_000
"""Characters of all texts of an event together."""
ITEMS_MAX = 100
PARTS_MAX = 1_000
REASON_CHARACTERS_MAX = 2_000

OnBusy = Literal["queue", "reject"]
"""The handling of an event for a conversation in use: it is queued, or it is rejected."""

_SORTED_JSON = json.JSONEncoder(sort_keys=True)

SHARED_KEY = "shared"
"""The key of the conversation that an agent's chat and its runs can share."""

RUN_PREFIX = "run:"
"""The beginning of the key of a run's own conversation, and of the id of its event."""

_RESERVED = ("acct:", "conversation-lease:", RUN_PREFIX, SHARED_KEY)

_CallId = Annotated[str, Field(min_length=1, max_length=200)]


class _Item(StrictModel):
    def as_json(self) -> JsonObject:
        """Return the item as JSON: always with its type, never with fields that were not given."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class TextPart(_Item):
    type: Literal["text"] = "text"
    text: str


class UserSaid(_Item):
    """A message of the user."""

    type: Literal["user"] = "user"
    content: str | Annotated[list[TextPart], Field(max_length=PARTS_MAX)]

    @property
    def parts(self) -> tuple[Text, ...]:
        if isinstance(self.content, str):
            return (Text(self.content),)
        return tuple(Text(part.text) for part in self.content)


class SystemSaid(_Item):
    """A message of the platform to the model: for this turn and never stored, or stored for good."""

    type: Literal["system"] = "system"
    content: str
    persist: bool = False


class Approval(_Item):
    """An answer that allows or denies a pending call."""

    type: Literal["approval"] = "approval"
    call_id: _CallId
    is_allowed: Annotated[bool, Field(alias="allowed")]
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)] | None = None
    """The reason for a denial, for the model."""


class ToolAnswer(_Item):
    """The result of a call of a client tool."""

    type: Literal["tool_result"] = "tool_result"
    call_id: _CallId
    content: str
    is_error: bool = False


EventItem = UserSaid | SystemSaid | Approval | ToolAnswer
Answer = Approval | ToolAnswer

_ITEM_TYPES: dict[str, type[EventItem]] = {
    "user": UserSaid,
    "system": SystemSaid,
    "approval": Approval,
    "tool_result": ToolAnswer,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A request to an agent: messages or answers under one id.

    An id is processed once. The same id with another body is refused.
    """

    id: str
    conversation_key: str
    items: tuple[EventItem, ...]
    system: str | None = None
    """Instructions for this turn alone."""
    memory_policy: MemoryPolicy | None = None
    """The blocks that this turn shows."""
    tools: tuple[ClientTool, ...] = ()
    """The tools that the client runs in this turn."""
    on_busy: OnBusy | None = None
    """The handling while the conversation is in use; None uses the agent's setting."""
    has_reserved_key: bool = field(default=False, compare=False)
    """True if the harness itself chose the key of the conversation."""

    @classmethod
    def said(
        cls,
        event_id: str,
        conversation_key: str | None,
        text: str,
        *,
        memory_policy: MemoryPolicy | None = None,
        on_busy: OnBusy | None = None,
    ) -> Event:
        """Return an event with one message of the user: the simplest kind.

        Without a key it belongs to the conversation that the agent's runs share.
        """
        return cls(
            event_id,
            SHARED_KEY if conversation_key is None else conversation_key,
            (UserSaid(content=text),),
            memory_policy=memory_policy,
            on_busy=on_busy,
            has_reserved_key=conversation_key is None,
        )

    def __post_init__(self) -> None:
        _check_name("eventId", self.id)
        if not self.has_reserved_key:
            check_key(self.conversation_key)
            check_event_id(self.id)
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
        """Return True if the event answers calls of a paused turn, False if it begins a turn."""
        return bool(self.answers)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(one for one in self.items if isinstance(one, Approval | ToolAnswer))

    @property
    def message(self) -> Message:
        """Return the user's message."""
        message_parts = (one.parts for one in self.items if isinstance(one, UserSaid))
        return Message("user", tuple(part for parts in message_parts for part in parts))

    @property
    def system_kept(self) -> tuple[str, ...]:
        """Return the platform's messages that are stored."""
        return tuple(one.content for one in self._system if one.persist)

    @property
    def system_once(self) -> str | None:
        """Return the platform's text for this turn alone, or None."""
        texts = [one.content for one in self._system if not one.persist]
        return "\n\n".join(([self.system] if self.system else []) + texts) or None

    @property
    def size_bytes(self) -> int:
        """Return the size of all texts in UTF-8."""
        return sum(len(text.encode()) for text in self._texts())

    @property
    def body_hash(self) -> str:
        """Return the hash of the body. The id and the handling while the conversation is in use do not
        count."""
        return body_hash_of(self.as_json())

    def as_json(self) -> JsonObject:
        """Return the event as JSON, without empty fields. `on_busy` is left out: it no longer matters once
        the event is queued."""
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
        """Yield every text that the sender wrote and that has no limit of its own."""
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
                raise Refused("events", "system", "hold no user message: at least one is required")
            return
        if len(self.answers) < len(self.items) or self.system or self.tools:
            remedy = "send two events under two ids: first the answers, then the messages"
            rule = "hold both answers and messages"
            raise Refused("events", self.id, rule, remedy=remedy)
        ids = [one.call_id for one in self.answers]
        for call_id in ids:
            if ids.count(call_id) > 1:
                raise Refused("events", call_id, "is answered twice")


def body_hash_of(event: JsonObject) -> str:
    """Return the hash of an event's body, given the event as JSON."""
    body = {name: value for name, value in event.items() if name != "id"}
    return sha256(_SORTED_JSON.encode(body).encode()).hexdigest()


def check_key(key: str, field: str = "conversationKey") -> str:
    """Return the conversation key if it is valid.

    Raises: Refused if it is too long, not printable, or begins with a reserved prefix.
    """
    _check_name(field, key)
    if key.startswith(_RESERVED):
        raise Refused(field, key, "begins with a reserved prefix")
    return key


def check_event_id(event_id: str) -> str:
    """Return an event id of a caller.

    Raises: Refused if it could be that of a run's event.
    """
    if event_id.startswith(RUN_PREFIX):
        raise Refused("eventId", event_id, "begins with a reserved prefix")
    return event_id


def event_of(data: JsonObject) -> Event:
    """Return a queued event from its stored JSON."""
    policy = data.get("memoryPolicy")
    return Event(
        data["id"],
        data["conversationKey"],
        items_of(data["events"]),
        data.get("system"),
        None if policy is None else parse(MemoryPolicy, policy, within="memory_policy"),
        client_tools_of(data.get("tools", ())),
        has_reserved_key=True,  # it was checked when it was accepted
    )


def items_of(data: object, *, within: str = "events") -> tuple[EventItem, ...]:
    """Return the items that a program sends: `{type: "user" | "system" | "approval" | "tool_result", …}`.

    Raises: Refused if the list or one of its items is invalid.
    """
    if not isinstance(data, list):
        raise Refused(within, data, "must be a list of events")
    items = cast("Sequence[object]", data)
    _check_number(len(items), within)
    return tuple(_item_of(one, f"{within}.{at}") for at, one in enumerate(items))


def full_key(
    account_id: AccountId, agent_id: AgentId, conversation_key: str, user_id: UserId | None = None
) -> str:
    """Return the full key of a conversation: of the account's owner, or of the user who is named. Its lease
    has this name."""
    user = f"user:{user_id}:" if user_id is not None else ""
    return f"acct:{account_id}:agent:{agent_id}:{user}api:{conversation_key}"


def _item_of(data: object, within: str) -> EventItem:
    if not isinstance(data, Mapping):
        raise Refused(within, data, "must be an object")
    fields = cast("Mapping[str, Any]", data)
    kind = fields.get("type")
    item_type = _ITEM_TYPES.get(kind) if isinstance(kind, str) else None
    if item_type is None:
        raise unknown_name(f"{within}.type", str(kind), list(_ITEM_TYPES))
    if item_type is not UserSaid or isinstance(fields.get("content"), str):
        return parse(item_type, fields, within=within)
    parts = fields.get("content")
    if not isinstance(parts, list):
        raise Refused(f"{within}.content", parts, "must be a text or a list of parts")
    # parts beyond the limit are not checked here: `parse` refuses the whole list
    for at, part in enumerate(cast("Sequence[object]", parts)[:PARTS_MAX]):
        _check_part(part, f"{within}.content.{at}")
    return parse(UserSaid, fields, within=within)


def _check_part(part: object, within: str) -> None:
    """Check a part of a user's message. The error is more precise than that of a pydantic union.

    Raises: Refused if the part is not a valid text part.
    """
    kind = cast("Mapping[str, object]", part).get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        rule = "is not supported: only parts of the type `text` are accepted"
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
    """Return True if the text can be encoded. It cannot if it holds halves of surrogate pairs, which Python
    makes of bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
