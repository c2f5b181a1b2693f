"""The history head (head.json): written, read back, checked against foreign bytes; folding of packs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.errors import OverLimit, Refused
from workspaces.revision import RevisionId
from workspaces.sync.history_head import (
    FOLD_FACTOR,
    HEAD_BYTES_MAX,
    PACKS_MAX,
    HistoryHead,
    Pack,
    fold_from,
    head_bytes,
    parse_head,
)


def revision(number: int) -> RevisionId:
    return RevisionId(f"{number:040x}")


def pack(number: int, size: int = 100) -> Pack:
    return Pack(f"{number:064x}", size, revision(number))


HEAD = HistoryHead(revision(2), (pack(1), pack(2)), revision(1))


def test_a_history_head_is_read_back_as_written() -> None:
    assert parse_head(head_bytes(HEAD)) == HEAD
    assert parse_head(head_bytes(HistoryHead(None))) == HistoryHead(None)
    assert set(json.loads(head_bytes(HEAD))) == {"format", "tip", "reviewed", "packs"}


def test_unknown_fields_of_a_history_head_are_ignored() -> None:
    """Those that were written first have a number there that nobody asked for."""
    assert parse_head(json.dumps({**json.loads(head_bytes(HEAD)), "epoch": 0}).encode()) == HEAD


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"format": "1"},
        {"format": True},
        {"format": None},
        {"tip": "main"},
        {"tip": "A" * 40},
        {"tip": f"{9:040x}"},
        {"tip": None},
        {"packs": None},
        {"packs": []},
        {"packs": ["x"]},
        {"packs": [{"name": "../../x", "bytes": 1, "tip": f"{2:040x}"}]},
        {"packs": [{"name": f"{2:064x}", "bytes": -1, "tip": f"{2:040x}"}]},
        {"packs": [{"name": f"{2:064x}", "bytes": 1, "tip": None}]},
        {"packs": [{"name": f"{2:064x}", "tip": f"{2:040x}"}]},
        {"reviewed": 7},
    ],
)
def test_a_malformed_history_head_is_refused(changed: dict[str, Any]) -> None:
    told = {**json.loads(head_bytes(HEAD)), **changed}
    with pytest.raises(Refused):
        parse_head(json.dumps(told).encode())


def test_a_history_head_of_a_newer_format_is_refused_with_a_remedy() -> None:
    with pytest.raises(Refused, match="newer") as caught:
        parse_head(b'{"format": 2, "something": "else"}')
    assert caught.value.remedy is not None


@given(st.binary(max_size=200) | st.just(b"[" * 100_000) | st.just(b"[]") | st.just(b"1e999"))
def test_arbitrary_bytes_as_history_head_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        parse_head(data)


def test_an_oversized_history_head_is_refused_before_parsing() -> None:
    with pytest.raises(OverLimit):
        parse_head(b" " * (HEAD_BYTES_MAX + 1))


@given(st.lists(st.integers(1, 10**9), min_size=PACKS_MAX + 1, max_size=200))
def test_folding_leaves_few_packs_and_does_not_rewrite_large_packs(sizes: list[int]) -> None:
    packs = [pack(n, size) for n, size in enumerate(sizes)]
    start = fold_from(packs)
    assert start is not None
    kept = packs[:start]
    assert len(kept) + 1 <= PACKS_MAX
    assert len(packs) - start >= 2
    for number, one in enumerate(kept):
        rest = sum(other.bytes for other in packs[number + 1 :])
        assert one.bytes >= FOLD_FACTOR * rest


def test_few_packs_are_not_folded() -> None:
    assert fold_from([pack(n) for n in range(PACKS_MAX)]) is None


def test_folding_writes_in_total_at_most_a_few_times_the_size_of_the_history() -> None:
    """A thousand turns of the same size."""
    packs: list[Pack] = []
    written = 0
    for number in range(1000):
        packs.append(pack(number))
        start = fold_from(packs)
        if start is not None:
            folded = pack(number, sum(one.bytes for one in packs[start:]))
            packs[start:] = [folded]
            written += folded.bytes
    assert written < 12 * 100 * 1000
    assert len(packs) <= PACKS_MAX
