"""Editing JSON text: one value changes and every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.integrations.json_edit import value_at, with_item, with_value, without, without_items
from workspaces.errors import Refused

SETTINGS = """\
{
    // mine
    "model": "opus",  // the good one
    "permissions": {"allow": ["Bash(ls:*)"], "deny": []},
    "hooks": {
        "Stop": [{ "hooks": [] }]
    },
    "ünknown": 1.50
}
"""

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=4).filter(lambda key: key != "ours"), values, max_size=4)
layouts = st.sampled_from([None, 2, 4, "\t"])


def test_adding_a_json_key_keeps_every_other_byte() -> None:
    changed = with_value(SETTINGS, ["autoMemoryDirectory"], "/x")
    assert changed == SETTINGS.replace("1.50\n", '1.50,\n    "autoMemoryDirectory": "/x"\n')
    assert without(changed, ["autoMemoryDirectory"]) == SETTINGS


def test_a_json_item_is_appended_to_its_list() -> None:
    changed = with_item(SETTINGS, ["hooks", "SessionStart"], {"hooks": [1]})
    assert changed == SETTINGS.replace(
        '"Stop": [{ "hooks": [] }]\n',
        '"Stop": [{ "hooks": [] }],\n        "SessionStart": [\n            {\n'
        '                "hooks": [\n                    1\n                ]\n'
        "            }\n        ]\n",
    )
    assert without(changed, ["hooks", "SessionStart"]) == SETTINGS
    twice = with_item(SETTINGS, ["permissions", "allow"], "Read")
    assert '["Bash(ls:*)", "Read"]' in twice
    assert without_items(twice, ["permissions", "allow"], lambda item: item == "Read") == SETTINGS


def test_a_json_value_is_replaced_in_place() -> None:
    assert with_value(SETTINGS, ["model"], "haiku") == SETTINGS.replace("opus", "haiku")
    assert value_at(SETTINGS, ["permissions", "allow"]) == ["Bash(ls:*)"]
    assert value_at(SETTINGS, ["nothing", "here"]) is None


def test_comments_beside_a_removed_json_key_stay() -> None:
    text = '{\n  "a": 1, // about a\n  // about b\n  "b": 2,\n  "c": 3}\n'
    assert without(text, ["b"]) == '{\n  "a": 1, // about a\n  // about b\n  "c": 3}\n'
    assert without(text, ["c"]) == '{\n  "a": 1, // about a\n  // about b\n  "b": 2}\n'
    assert without(text, ["a"]) == '{\n  // about a\n  // about b\n  "b": 2,\n  "c": 3}\n'
    assert value_at(without(without(text, ["b"]), ["c"]), ["a"]) == 1
    assert without('{"a": 1}', ["a"]) == "{}"
    assert value_at(without('{"a": 1, "b": 2,}', ["b"]), ["a"]) == 1


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', "{'a': 1}", '{"a": 1} x', "[1 2]", "[" * 200])
def test_text_that_is_not_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Refused, match="is not JSON"):
        with_value(text, ["a"], 1)


def test_a_json_value_of_another_type_is_not_replaced() -> None:
    with pytest.raises(Refused, match="is not an object"):
        with_value('{"hooks": []}', ["hooks", "Stop"], 1)
    with pytest.raises(Refused, match="is not a list"):
        with_item('{"hooks": {"Stop": "x"}}', ["hooks", "Stop"], 1)


@given(objects, layouts, values)
def test_adding_and_removing_a_json_key_restores_the_bytes(
    before: dict[str, Any], layout: Any, value: Any
) -> None:
    text = json.dumps(before, indent=layout, ensure_ascii=False)
    changed = with_value(text, ["ours", "deep"], value)
    assert json.loads(changed) == {**before, "ours": {"deep": value}}
    assert without(changed, ["ours"]) == text


@given(st.lists(values, max_size=4), layouts, values)
def test_adding_and_removing_a_json_item_restores_the_bytes(
    before: list[Any], layout: Any, value: Any
) -> None:
    text = json.dumps({"list": before}, indent=layout, ensure_ascii=False)
    changed = with_item(text, ["list"], {"ours": value})
    assert json.loads(changed) == {"list": [*before, {"ours": value}]}
    removed = without_items(changed, ["list"], lambda item: item == {"ours": value})
    if {"ours": value} not in before:
        assert removed == text


@given(objects, layouts, st.data())
def test_removing_a_json_key_keeps_all_other_values(
    before: dict[str, Any], layout: Any, data: st.DataObject
) -> None:
    text = json.dumps(before, indent=layout, ensure_ascii=False)
    for key in data.draw(st.permutations(sorted(before))):
        before.pop(key)
        text = without(text, [key])
        assert json.loads(text) == before
