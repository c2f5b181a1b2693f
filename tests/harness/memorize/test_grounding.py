from __future__ import annotations

import json
from typing import Any

import pytest

from harness.memorize.grounding import Grounding, GroundingCheck, find_quote
from harness.memorize.local.local_message import LocalMessage, SaidPart
from harness.memorize.memorize_request import GroundingRequest
from workspaces.errors import Refused

SAID = [
    ("user", "u1", "The staging server\n   is called heron."),
    ("assistant", "a1", "Noted: staging is heron. 🦩 It is tall."),
    ("user", None, "The staging server is called heron."),
]
EVENTS = {0: '{"type": "meta"}', 1: '{"said": "The staging server"}'}


def messages() -> list[LocalMessage]:
    return [
        SaidPart("user" if role == "user" else "assistant", "message", uuid, None, text).message(
            number + 1, number + 1
        )
        for number, (role, uuid, text) in enumerate(SAID)
    ]


def checked(**request: Any) -> tuple[Grounding, list[str]]:
    check = GroundingCheck([GroundingRequest.model_validate(request)])
    for message in messages():
        check.see(message)
    return check.close(EVENTS.get)[0], check.warnings


def refusal(**request: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        checked(**request)
    return refused.value.field, refused.value.rule


@pytest.mark.parametrize(
    ("text", "quote", "found"),
    [
        ("one two three", "two", (4, 7)),
        ("one\n\t two  three", "one two three", (0, 16)),
        ("  one two", " one  two ", (2, 9)),
        ("one two", "three", None),
        ("one two", "two one", None),
        ("🦩🦩 a b", "a  b", (3, 6)),
        ("onetwo", "one two", None),
        ("", "one", None),
        ("one", " ", None),
    ],
)
def test_a_quote_is_found_by_its_words(
    text: str, quote: str, found: tuple[int, int] | None
) -> None:
    assert find_quote(text, quote) == found


def test_a_quote_alone_is_located_and_its_span_filled_in() -> None:
    found, warnings = checked(quote="staging is heron")
    assert (found.message_position, found.provider_message_uuid) == (2, "a1")
    assert (found.start_character, found.end_character) == (7, 23)
    assert warnings == []


def test_a_quote_that_stands_twice_cites_the_first_and_says_so() -> None:
    found, warnings = checked(quote="staging server is called")
    assert (found.message_position, found.start_character, found.end_character) == (1, 4, 31)
    assert "2 messages" in warnings[0]
    found, warnings = checked(quote="staging server is called", message_position=3)
    assert (found.message_position, warnings) == (3, [])


def test_a_span_counts_code_points_and_ends_before_its_end() -> None:
    found, _ = checked(message_position=2, start_character=25, end_character=29)
    assert found.quote == "🦩 It"
    found, _ = checked(message_position=2, start_character=0, end_character=38)
    assert found.end_character == len(SAID[1][2])


def test_a_message_is_named_by_position_id_or_raw_event() -> None:
    for place in ({"message_position": 2}, {"provider_message_uuid": "a1"}):
        assert checked(**place)[0].message_position == 2
    found, _ = checked(raw_event_index=1)
    assert (found.message_position, found.raw_event) == (1, EVENTS[1])
    whole, _ = checked(message_position=2)
    assert (whole.start_character, whole.end_character) == (0, len(SAID[1][2]))


def test_a_raw_event_without_a_message_is_cited_in_itself() -> None:
    found, _ = checked(
        raw_event_index=0, raw_start_character=1, raw_end_character=7, quote='"type"'
    )
    assert (found.message_position, found.raw_event) == (None, EVENTS[0])
    assert refusal(raw_event_index=0, quote="nothing")[0] == "groundings.0.quote"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"message_position": 9}, "message_position"),
        ({"provider_message_uuid": "nobody"}, "provider_message_uuid"),
        ({"message_position": 1, "provider_message_uuid": "a1"}, "provider_message_uuid"),
        ({"message_position": 1, "quote": "goose"}, "quote"),
        ({"quote": "goose"}, "quote"),
        ({"quote": " \n"}, "quote"),
        (
            {"message_position": 1, "start_character": 0, "end_character": 3, "quote": "heron"},
            "quote",
        ),
        ({"message_position": 2, "start_character": 0, "end_character": 39}, "end_character"),
        ({"message_position": 1, "start_character": 3, "end_character": 2}, "end_character"),
        ({"message_position": 1, "start_character": 3}, "end_character"),
        ({"quote": "heron", "start_character": 0, "end_character": 2}, "message_position"),
        ({"raw_event_index": 77}, "raw_event_index"),
        (
            {"raw_event_index": 1, "raw_start_character": 0, "raw_end_character": 99},
            "raw_end_character",
        ),
        (
            {"quote": "heron", "raw_start_character": 0, "raw_end_character": 9},
            "raw_event_index",
        ),
    ],
)
def test_an_error_names_its_field(request_: dict[str, Any], field: str) -> None:
    assert refusal(**request_)[0] == f"groundings.0.{field}"


def test_a_grounding_that_names_nothing_is_refused() -> None:
    assert refusal(metadata={"a": 1})[0] == "groundings.0"


def test_the_files_part_is_text_and_its_quote_is_short() -> None:
    text = "word " * 500
    message = SaidPart("user", "message", None, None, text).message(1, 0)
    check = GroundingCheck([GroundingRequest(quote=text)])
    check.see(message)
    (found,) = check.close(EVENTS.get)
    assert "cut to 2,000" in check.warnings[0]
    assert len(found.quote) == 2000
    attributes = found.as_attributes()
    assert len(attributes["quote"]) == 200
    assert all(isinstance(value, str) for value in attributes.values())
    assert json.dumps(found.as_json())


def test_a_quote_with_a_secret_is_compared_as_the_archive_shows_it() -> None:
    secret = "ghp_" + "a1B2" * 9
    message = SaidPart("user", "message", None, None, f"use {secret} here").message(1, 0)
    check = GroundingCheck([GroundingRequest(quote=f"use {secret} here")])
    check.see(message)
    (found,) = check.close(EVENTS.get)
    assert secret not in json.dumps(found.as_json())
    assert found.start_character == 0
