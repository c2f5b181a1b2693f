"""The facts in a JSON export of rows: a list of facts as it answers over HTTP, or the list alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import ConfigDict, Field

from harness.memory.facts.fact import IMPORTANCE_MAX
from harness.memory.facts.facts import FactEntry, check_entry
from harness.runtime.strict_json import parse_json
from workspaces.errors import Failure, OverLimit, Refused
from workspaces.validation import StrictModel, parse

ROWS_MAX = 5_000
"""Rows of one import. They are one revision, and other writers wait for some seconds until it is made. The
reader of JSON takes no more than some 7 000 rows of thirteen values."""

REFUSALS_SHOWN = 20

_LISTS = ("data", "memories")
"""Names of the list in an answer over HTTP, and in `harness memory list --json`."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    number: int
    """Counted from 1."""
    reason: str


class _Row(StrictModel):
    """What counts of a row. Ids, stamps and versions are those of another place."""

    model_config = ConfigDict(extra="ignore")

    key: str
    value: str
    pinned: bool | None = None
    importance: Annotated[int | None, Field(ge=0, le=IMPORTANCE_MAX)] = None


def looks_like_rows(data: bytes) -> bool:
    """Return True for a list in which each item has a key and a value, at least one."""
    try:
        rows = _rows(data, "rows")
    except Failure:
        return False
    return bool(rows) and all(
        isinstance(row, dict) and {"key", "value"} <= row.keys() for row in rows
    )


def read_rows(data: bytes, *, name: str) -> list[FactEntry]:
    """Return the facts of an export.

    Raises: Refused, with the number of each row that is refused; OverLimit.
    """
    rows = _rows(data, name)
    if len(rows) > ROWS_MAX:
        raise OverLimit("rows", maximum=ROWS_MAX, actual=len(rows), unit="rows")
    entries: list[FactEntry] = []
    refused: list[RefusedRow] = []
    first: dict[str, int] = {}
    for number, data_of_row in enumerate(rows, 1):
        try:
            row = parse(_Row, data_of_row)
            entry = check_entry(FactEntry(row.key, row.value, row.pinned, row.importance))
        except Failure as failure:
            refused.append(RefusedRow(number, str(failure)))
            continue
        if entry.key in first:
            reason = f"key: {entry.key!r} is that of row {first[entry.key]} too"
            refused.append(RefusedRow(number, reason))
        first.setdefault(entry.key, number)
        entries.append(entry)
    if refused:
        raise _refusal(refused, len(rows), name)
    return entries


def _rows(data: bytes, name: str) -> Sequence[Any]:
    parsed: Any = parse_json(data, within=name)
    if isinstance(parsed, dict):
        answer = cast(dict[str, Any], parsed)
        parsed = next((answer[one] for one in _LISTS if one in answer), None)
    if not isinstance(parsed, list):
        raise Refused(name, None, "must be a list of rows, or an object with a list `data`")
    return cast(list[Any], parsed)


def _refusal(refused: Sequence[RefusedRow], count: int, name: str) -> Refused:
    named = [f"row {one.number}: {one.reason}" for one in refused[:REFUSALS_SHOWN]]
    more = len(refused) - len(named)
    if more:
        named.append(f"{more:,} more")
    rule = f"{len(refused):,} of {count:,} rows are invalid: {'; '.join(named)}"
    remedy = "correct these rows and import again; nothing was changed"
    return Refused(name, None, rule, remedy=remedy)
