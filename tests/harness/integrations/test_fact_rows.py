from __future__ import annotations

import json

import pytest

from harness.integrations.fact_rows import ROWS_MAX, looks_like_rows, read_rows
from harness.memory.facts.facts import FactEntry
from workspaces.errors import OverLimit, Refused

ROW: dict[str, object] = {
    "id": "mem_1",
    "key": "tea",
    "value": "Green.\r\n",
    "pinned": True,
    "importance": 7,
    "x": [],
}


@pytest.mark.parametrize("form", ["%s", '{"success": true, "data": %s}', '{"memories": %s}'])
def test_rows_are_read_from_an_answer_and_from_a_bare_list(form: str) -> None:
    data = (form % json.dumps([ROW, {"key": "b", "value": "x"}])).encode()
    assert looks_like_rows(data)
    assert read_rows(data, name="rows.json") == [
        FactEntry("tea", "Green.\n", pinned=True, importance=7),
        FactEntry("b", "x"),
    ]


def test_every_refused_row_is_named_with_its_number_and_rule() -> None:
    rows: list[object] = [
        {"key": "a", "value": "x"},
        {"key": " a", "value": "x"},
        {"key": "b", "value": "  "},
        {"key": "c", "value": "x" * 2001},
        {"key": "d", "value": "x", "importance": 101},
        {"key": "e", "value": "x", "pinned": "true"},
        {"key": "a", "value": "y"},
        "f",
        {"value": "x"},
    ]
    with pytest.raises(Refused) as refused:
        read_rows(json.dumps(rows).encode(), name="rows.json")
    message = str(refused.value)
    assert "8 of 9 rows" in message
    for number, word in enumerate(
        ["space", "empty", "2,000", "importance", "pinned", "row 1", "object", "key"], 2
    ):
        part = message.partition(f"row {number}: ")[2].partition("; row ")[0]
        assert word in part, (number, part)


@pytest.mark.parametrize("data", [b"", b"{}", b"3", b'{"data": 3}', b"[", b"\xff"])
def test_what_is_no_list_of_rows_is_refused(data: bytes) -> None:
    assert not looks_like_rows(data)
    with pytest.raises(Refused):
        read_rows(data, name="rows.json")


def test_a_list_of_other_things_does_not_look_like_rows() -> None:
    assert not looks_like_rows(b"[]")
    assert not looks_like_rows(b'[{"key": "a"}]')


def test_more_rows_than_one_revision_takes_are_refused() -> None:
    rows = [{"key": f"k{n}", "value": "x"} for n in range(ROWS_MAX + 1)]
    with pytest.raises(OverLimit):
        read_rows(json.dumps(rows).encode(), name="rows.json")
