from __future__ import annotations

import pytest

from harness.memory.card_numbers import find_card_numbers


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "340000000000009",
        "6011000000000004",
    ],
)
def test_card_numbers_are_found_in_their_usual_forms(number: str) -> None:
    text = f"- pay with {number}, please"
    assert [text[begin:end] for begin, end in find_card_numbers(text)] == [number]


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",  # a wrong check digit
        "1234567812345670",  # no card begins so
        "411111111111111",
        "0000000000000000",
        "41111111111111111111111111",
        "2026-11-20 12:31:00",
        "call +43 316 123456",
    ],
)
def test_other_numbers_are_left_alone(text: str) -> None:
    assert find_card_numbers(text) == []
