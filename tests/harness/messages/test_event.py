"""Events: which ones are accepted, and that storing them as JSON changes nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool, client_tools_of
from harness.messages.event import (
    CONTENT_CHARACTERS_MAX,
    ITEMS_MAX,
    Approval,
    Event,
    EventItem,
    SystemSaid,
    TextPart,
    ToolAnswer,
    UserSaid,
    event_of,
    items_of,
)
from harness.messages.memory_policy import MemoryPolicy
from harness.messages.message import Text
from workspaces.errors import Refused

WEATHER = ClientTool(name="weather", description="Of today.", input_schema={"type": "object"})

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
spoken = texts.filter(lambda text: bool(text.strip()))
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
said = st.one_of(
    spoken.map(lambda text: UserSaid(content=text)),
    st.lists(spoken, min_size=1, max_size=3).map(
        lambda all_: UserSaid(content=[TextPart(text=one) for one in all_])
    ),
)
system = st.builds(SystemSaid, content=texts, persist=st.booleans())
approvals = st.tuples(names, st.booleans(), st.none() | texts).map(
    lambda one: Approval(call_id=one[0], is_allowed=one[1], reason=one[2])
)
tool_answers = st.tuples(names, texts, st.booleans()).map(
    lambda one: ToolAnswer(call_id=one[0], content=one[1], is_error=one[2])
)
answers = approvals | tool_answers
saying = st.builds(
    Event,
    names,
    names.filter(lambda name: not name.startswith("shared")),
    st.tuples(said, system) | st.tuples(said),
    st.none() | texts,
    st.none()
    | st.builds(
        MemoryPolicy,
        archival_mode=st.sampled_from(["tool_only", "auto", "off"]),
        archival_min_score=st.none() | st.floats(0, 100),
        include_user_core=st.booleans(),
    ),
    st.just(()) | st.just((WEATHER,)),
)
answering = st.lists(answers, min_size=1, max_size=4, unique_by=lambda one: one.call_id).map(
    lambda items: Event("e", "c", tuple(items))
)


@given(saying | answering)
def test_an_event_read_back_from_json_equals_the_original(event: Event) -> None:
    again = event_of(json.loads(json.dumps(event.as_json())))
    assert again == event
    assert again.body_hash == event.body_hash


def test_items_are_read_from_the_json_that_clients_send() -> None:
    stated: list[dict[str, Any]] = [
        {"type": "user", "content": [{"type": "text", "text": "hi"}]},
        {"type": "system", "content": "be brief", "persist": True},
    ]
    event = Event("e1", "c1", items_of(stated))
    assert event.message.parts == (Text("hi"),)
    assert (event.system_once, event.system_kept) == (None, ("be brief",))
    stated = [
        {"type": "approval", "callId": "t1", "allowed": False, "reason": "no"},
        {"type": "tool_result", "call_id": "t2", "content": "ok"},
    ]
    assert items_of(stated) == (
        Approval(call_id="t1", is_allowed=False, reason="no"),
        ToolAnswer(call_id="t2", content="ok"),
    )


def test_the_body_hash_of_an_event_covers_every_field_that_changes_its_meaning() -> None:
    plain = Event.said("e1", "c1", "hi")
    hi = plain.items
    others = [
        Event.said("e1", "c2", "hi"),
        Event.said("e1", "c1", "ho"),
        Event("e1", "c1", hi, "be brief"),
        Event("e1", "c1", hi, None, MemoryPolicy(include_user_core=False)),
        Event("e1", "c1", hi, tools=(WEATHER,)),
        Event("e1", "c1", (*hi, SystemSaid(content="x"))),
        Event("e1", "c1", (*hi, SystemSaid(content="x", persist=True))),
    ]
    assert len({one.body_hash for one in [plain, *others]}) == 1 + len(others)
    assert Event.said("e2", "c1", "hi", on_busy="reject").body_hash == plain.body_hash


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ("hi", "events"),
        (["hi"], "events.0"),
        ([{"type": "usr", "content": "hi"}], "events.0.type"),
        ([{"content": "hi"}], "events.0.type"),
        ([{"type": "user"}], "events.0.content"),
        ([{"type": "user", "content": 7}], "events.0.content"),
        ([{"type": "user", "content": "x", "extra": 1}], "events.0.extra"),
        (
            [{"type": "user", "content": [{"type": "image", "source": {}}]}],
            "events.0.content.0.type",
        ),
        ([{"type": "user", "content": [{"type": "text", "text": 1}]}], "events.0.content.0.text"),
        ([{"type": "approval", "callId": "t1", "allowed": "yes"}], "events.0.allowed"),
        ([{"type": "approval", "callId": "", "allowed": True}], "events.0.callId"),
        ([{"type": "tool_result", "callId": "t1", "content": {"a": 1}}], "events.0.content"),
        ([{"type": "system", "content": "x", "persist": 1}], "events.0.persist"),
    ],
)
def test_a_malformed_item_is_refused_naming_the_field(stated: object, field: str) -> None:
    with pytest.raises(Refused) as caught:
        items_of(stated)
    assert caught.value.field == field


HI = UserSaid(content="hi")
YES = Approval(call_id="t1", is_allowed=True)


@pytest.mark.parametrize(
    "items",
    [
        (),
        (HI,) * (ITEMS_MAX + 1),
        (SystemSaid(content="alone"),),
        (HI, YES),
        (YES, SystemSaid(content="and this")),
        (YES, ToolAnswer(call_id="t1", content="twice")),
        (UserSaid(content=" "),),
        (UserSaid(content="\ud800"),),
    ],
)
def test_an_event_with_items_that_exclude_each_other_is_refused(
    items: tuple[EventItem, ...],
) -> None:
    with pytest.raises(Refused):
        Event("e1", "c1", items)


def test_an_event_at_the_size_limit_is_accepted_and_a_larger_event_is_refused() -> None:
    half = "x" * (CONTENT_CHARACTERS_MAX // 2)
    assert Event(
        "e1", "c1", (UserSaid(content=half), SystemSaid(content=half))
    ).size_bytes == 2 * len(half)
    with pytest.raises(Refused):
        Event("e1", "c1", (UserSaid(content=half), SystemSaid(content=half)), "one more")


def test_a_client_tool_needs_a_unique_name_and_an_object_schema() -> None:
    with pytest.raises(Refused) as caught:
        Event("e1", "c1", (HI,), tools=(WEATHER, WEATHER))
    assert caught.value.field == "tools.1.name"
    with pytest.raises(Refused):
        Event(
            "e1",
            "c1",
            (HI,),
            tools=tuple(
                ClientTool(name=f"t{n}", description="x", input_schema={"type": "object"})
                for n in range(CLIENT_TOOLS_MAX + 1)
            ),
        )
    with pytest.raises(ValueError, match="JSON Schema of an object"):
        ClientTool(name="weather", description="x", input_schema={"type": "string"})


def test_too_many_items_are_refused_before_any_is_parsed() -> None:
    with pytest.raises(Refused) as caught:
        items_of([{}] * (ITEMS_MAX + 1))
    assert caught.value.field == "events"
    with pytest.raises(Refused) as caught:
        client_tools_of([{}] * (CLIENT_TOOLS_MAX + 1))
    assert caught.value.field == "tools"


def test_an_item_type_of_ten_megabytes_is_refused_quickly() -> None:
    kind = "".join(map(chr, range(97, 123))) * 400_000
    begun = time.thread_time()
    with pytest.raises(Refused, match=r"events\.0\.type: .* is unknown"):
        items_of([{"type": kind, "content": "hi"}])
    assert time.thread_time() - begun < 0.5
