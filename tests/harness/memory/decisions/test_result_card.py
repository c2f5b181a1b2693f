"""Cards: what a file may say, what a result must hold, and what an error names."""

from __future__ import annotations

from typing import Any

import pytest

from harness.memory.decisions.result_card import ResultCard, card_of
from harness.runtime.templates import root
from workspaces.errors import Refused

CARD = """\
type: verdict
title: Verdict
fields:
  word: {type: enum, values: [GO, WAIT], required: true}
  why: {type: text, max: 10}
  score: {type: integer}
  odds: {type: number}
  sure: {type: boolean}
  watch_for: {type: list, max: 2}
slots: {conclusion: word, thesis: why}
line: [word, why]
reExaminable: until_resolved
reExamineActions: [HOLD]
tally: {good: [win], bad: [loss]}
"""


@pytest.fixture
def card() -> ResultCard:
    return card_of(CARD, "cards/verdict.yaml")


@pytest.mark.parametrize(
    ("old", "new", "line", "rule"),
    [
        ("title: Verdict", "titel: Verdict", None, "title"),
        ("{type: integer}", "{type: int}", 6, "type"),
        ("{type: number}", "{type: number, most: 3}", 7, "most"),
        ("values: [GO, WAIT], ", "", 4, "enum"),
        ("{type: integer}", "{type: integer, max: 3}", 6, "max"),
        ("max: 10", "max: 4001", 5, "max"),
        ("max: 2", "max: 51", 9, "50"),
        ("thesis: why", "thesis: whom", None, "whom"),
        ("line: [word, why]", "line: [word, whom]", None, "whom"),
        ("until_resolved", "sometimes", 12, "reExaminable"),
        ("score:", "Score:", None, "Score"),
        ("type: verdict", "type: Verdict/x", 1, "type"),
        ("  score: {type: integer}", "  score: {type: integer", 7, "cards/verdict.yaml"),
    ],
)
def test_a_wrong_card_is_refused_with_file_line_and_rule(
    old: str, new: str, line: int | None, rule: str
) -> None:
    assert old in CARD
    with pytest.raises(Refused) as refused:
        card_of(CARD.replace(old, new, 1), "cards/verdict.yaml")
    told = f"{refused.value} {refused.value.remedy or ''}"
    assert "cards/verdict.yaml" in told
    assert rule in told
    if line is not None:
        assert f"line {line}" in told


def test_the_schema_of_a_result_follows_from_the_card(card: ResultCard) -> None:
    schema = card.json_schema()
    assert schema["required"] == ["word"]
    assert schema["properties"]["word"] == {"type": "string", "enum": ["GO", "WAIT"]}
    assert schema["properties"]["why"]["maxLength"] == 10
    assert schema["properties"]["watch_for"]["maxItems"] == 2
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "word"),
        ({"word": None}, "word"),
        ({"word": "STAY"}, "word"),
        ({"word": 1}, "word"),
        ({"word": "GO", "why": "x" * 11}, "why"),
        ({"word": "GO", "score": 1.5}, "score"),
        ({"word": "GO", "score": True}, "score"),
        ({"word": "GO", "score": "1"}, "score"),
        ({"word": "GO", "odds": float("inf")}, "odds"),
        ({"word": "GO", "odds": float("nan")}, "odds"),
        ({"word": "GO", "sure": "yes"}, "sure"),
        ({"word": "GO", "watch_for": ["a", "b", "c"]}, "watch_for"),
        ({"word": "GO", "watch_for": [1]}, "watch_for"),
        ({"word": "GO", "extra": 1}, "extra"),
    ],
)
def test_a_wrong_result_is_refused_with_its_field(
    card: ResultCard, data: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as refused:
        card.checked(data)
    assert refused.value.field == field


def test_a_result_has_a_line_and_slots_without_the_empty_ones(card: ResultCard) -> None:
    data = card.checked({"word": "WAIT", "why": "range\nopen", "watch_for": ["a", "b"], "score": 3})
    assert card.summary(data) == "WAIT · range open"
    assert card.slot_values(data) == [
        ("conclusion", "WAIT"),
        ("thesis", "range\nopen"),
        ("score", "3"),
        ("watch_for", "- a\n- b"),
    ]
    assert card.slot_values({"word": "GO", "why": " "}) == [("conclusion", "GO")]


@pytest.mark.parametrize("name", ["decision", "trade-decision"])
def test_the_shipped_cards_are_valid(name: str) -> None:
    file = root() / "cards" / f"{name}.yaml"
    card = card_of(file.read_text(), f"cards/{name}.yaml")
    assert card.type == name
    if name == "trade-decision":
        assert card.re_examinable == "until_resolved"
        assert card.re_examine_actions == ["HOLD", "CLOSE", "SCALE"]
    else:
        assert card.re_examinable is True
