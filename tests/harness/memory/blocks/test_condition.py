"""The condition of a write to a block."""

from __future__ import annotations

import pytest

from harness.memory.blocks.block import Block, BlockConflict, BlockPlace
from harness.memory.blocks.condition import UNCONDITIONAL, BlockCondition, parse_expected
from workspaces.conditions import ABSENT
from workspaces.errors import Refused
from workspaces.ids import UserId, Version
from workspaces.timestamp import Stamp

PLACE = BlockPlace("core", UserId("usr_1"))
NOW = Stamp("2026-04-30T16:20:00.000001Z")
STALE = Stamp("2026-04-30T16:20:00.000000Z")
BLOCK = Block("blk_1", "core", "- a", "user", None, STALE, NOW, Version("v"))


def has(*versions: str | None) -> BlockCondition:
    return BlockCondition(has_version=lambda version: version in versions)


@pytest.mark.parametrize(
    ("condition", "current", "content", "done"),
    [
        (BlockCondition(NOW), BLOCK, "- b", False),
        (BlockCondition(NOW), BLOCK, "- a", True),
        (BlockCondition(STALE), BLOCK, "- a", True),
        (BlockCondition(ABSENT), None, "- a", False),
        (has("v"), BLOCK, "- b", False),
        (has("w"), BLOCK, "- a", True),
        (UNCONDITIONAL, None, "- a", False),
    ],
)
def test_a_write_happens_once_if_the_block_is_as_expected(
    condition: BlockCondition, current: Block | None, content: str, done: bool
) -> None:
    assert condition.is_done(PLACE, current, content) is done


@pytest.mark.parametrize(
    ("condition", "current"),
    [
        (BlockCondition(STALE), BLOCK),
        (BlockCondition(NOW), None),
        (BlockCondition(ABSENT), BLOCK),
        (has("w"), BLOCK),
        (has("v"), None),
        (BlockCondition(NOW, lambda version: version == "w"), BLOCK),
        (BlockCondition(STALE, lambda version: version == "v"), BLOCK),
    ],
)
def test_a_conflict_carries_the_current_block(
    condition: BlockCondition, current: Block | None
) -> None:
    with pytest.raises(BlockConflict) as caught:
        condition.is_done(PLACE, current, "- b")
    assert caught.value.block == current


def test_creating_a_block_that_exists_is_a_conflict_even_with_its_content() -> None:
    with pytest.raises(BlockConflict):
        BlockCondition(ABSENT).is_done(PLACE, BLOCK, BLOCK.content)


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-04-30T16:20:00", "2026-04-30T16:20:00.000000Z"),
        ("2026-04-30 16:20:00.5", "2026-04-30T16:20:00.500000Z"),
        ("2026-04-30T16:20:00.000001Z", "2026-04-30T16:20:00.000001Z"),
        ("2026-04-30T18:20:00.000001+02:00", "2026-04-30T16:20:00.000001Z"),
        ("2026-04-30T16:20:00.000001+00:00", "2026-04-30T16:20:00.000001Z"),
    ],
)
def test_a_time_is_read_in_every_iso_form_and_without_a_zone_as_utc(text: str, stamp: str) -> None:
    assert parse_expected(text) == stamp


@pytest.mark.parametrize(
    "text",
    [
        "",
        "never",
        "2026-04-30",
        "20260430",
        5,
        True,
        "0001-01-01T00:00:00+14:00",
        "²026-01-01T00:00",
    ],
)
def test_what_is_no_time_is_refused(text: object) -> None:
    with pytest.raises(Refused, match="expected_updated_at"):
        parse_expected(text)
