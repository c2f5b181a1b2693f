"""Blocks of a user: places, compare-and-set, edits by hand and recall."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.memory.blocks.block import Block, BlockConflict, BlockPlace
from harness.memory.blocks.blocks import Blocks, BlockWrite
from harness.memory.blocks.condition import UNCONDITIONAL, BlockCondition
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, NotFound, OverLimit, Refused
from workspaces.revision import Author

AUTHOR = Author("ada", "usr_ada", "api")


@pytest.fixture
def blocks(harness: Harness) -> Blocks:
    return harness.blocks


def put(blocks: Blocks, place: BlockPlace, content: str) -> Block:
    return written(blocks, place, content).block


def written(blocks: Blocks, place: BlockPlace, content: str) -> BlockWrite:
    return blocks.put(place, content, UNCONDITIONAL, by=AUTHOR)


def file_of(blocks: Blocks, place: BlockPlace) -> Path:
    return blocks.workspace(place).root / place.path


def test_a_block_exists_only_once_it_was_written(blocks: Blocks) -> None:
    core = blocks.place("core")
    assert blocks.list() == []
    with pytest.raises(NotFound):
        blocks.get(core)
    with pytest.raises(NotFound):
        blocks.delete(core, by=AUTHOR)
    made = blocks.put(core, "- likes tea\n\n", BlockCondition(ABSENT), by=AUTHOR)
    assert made.created
    assert made.block.content == "- likes tea"
    assert file_of(blocks, core).read_text() == "- likes tea\n"
    assert blocks.get(core) == made.block
    assert made.block.created_at == made.block.updated_at
    assert made.block.id.startswith("blk_")


def test_a_block_is_replaced_only_by_a_writer_that_has_read_its_newest_state(
    blocks: Blocks,
) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    second = blocks.put(core, "- two", BlockCondition(first.updated_at), by=AUTHOR).block
    assert second.updated_at > first.updated_at
    assert second.created_at == first.created_at
    with pytest.raises(BlockConflict) as caught:
        blocks.put(core, "- three", BlockCondition(first.updated_at), by=AUTHOR)
    assert caught.value.block == second
    assert blocks.get(core) == second


def test_a_repeated_write_changes_nothing(blocks: Blocks) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    second = put(blocks, core, "- two")
    for stamp in (first.updated_at, second.updated_at):
        again = blocks.put(core, "- two", BlockCondition(stamp), by=AUTHOR)
        assert (again.block, again.created, again.revision) == (second, False, None)
    assert len(blocks.workspace(core).log(core.path)) == 2


def test_an_edit_by_hand_is_committed_before_a_condition_is_judged(blocks: Blocks) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    file_of(blocks, core).write_text("- one\n- by hand\n")
    with pytest.raises(BlockConflict) as caught:
        blocks.put(core, "- two", BlockCondition(first.updated_at), by=AUTHOR)
    assert caught.value.block is not None
    assert caught.value.block.content == "- one\n- by hand"
    authors = [revision.author for revision in blocks.workspace(core).log(core.path)]
    assert authors == ["owner", "ada"]
    replaced = blocks.put(core, "- two", BlockCondition(caught.value.block.updated_at), by=AUTHOR)
    assert replaced.block.content == "- two"


def test_the_stamp_of_an_edit_by_hand_is_that_of_its_revision(blocks: Blocks) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    file_of(blocks, core).write_text("- by hand\n\n\n")
    read = blocks.get(core)
    assert read.content == "- by hand"
    assert read.updated_at > first.updated_at
    assert read.updated_at == blocks.workspace(core).log(core.path)[0].at


def test_a_block_deleted_by_hand_does_not_exist(blocks: Blocks) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    file_of(blocks, core).unlink()
    assert blocks.find(core) is None
    with pytest.raises(BlockConflict) as caught:
        blocks.put(core, "- two", BlockCondition(first.updated_at), by=AUTHOR)
    assert caught.value.block is None
    again = blocks.put(core, "- two", BlockCondition(ABSENT), by=AUTHOR)
    assert again.created
    assert again.block.created_at == again.block.updated_at > first.updated_at


def test_a_block_over_its_limits_is_refused_and_unchanged(blocks: Blocks) -> None:
    core, archival = blocks.place("core"), blocks.place("archival")
    kept = put(blocks, core, "- one")
    for place, content in ((core, "x" * 4_001), (core, "- x\n" * 21), (archival, "x" * 8_001)):
        with pytest.raises(OverLimit):
            put(blocks, place, content)
    assert blocks.list() == [kept]


def test_blocks_of_a_user_and_of_a_user_with_an_agent_are_apart(
    harness: Harness, blocks: Blocks
) -> None:
    emails = harness.agents.create("emails")
    harness.agents.create("records")
    mine = put(blocks, blocks.place("core"), "- of the user")
    theirs = put(blocks, blocks.place("core", agent="emails"), "- with emails")
    filed = put(blocks, blocks.place("archival"), "- filed")
    assert (theirs.scope, theirs.agent_id) == ("agent", emails.id)
    assert theirs.id != mine.id
    assert blocks.get(blocks.place("core", "agent", emails.id)) == theirs
    assert blocks.list() == [mine, filed]
    assert blocks.list("agent", "emails") == [theirs]
    assert blocks.list(agent="records") == []
    assert blocks.list("all") == [mine, theirs, filed]
    assert blocks.list("all", "emails") == [mine, theirs, filed]
    assert blocks.list("all", "records") == [mine, filed]


def test_a_scope_needs_an_agent_or_refuses_one(blocks: Blocks) -> None:
    with pytest.raises(Refused, match="agent_id"):
        blocks.place("core", "user", "assistant")
    with pytest.raises(Refused, match="agent_id"):
        blocks.place("core", "agent")
    with pytest.raises(NotFound):
        blocks.place("core", "agent", "nobody")


def test_a_deleted_block_can_be_made_again(blocks: Blocks) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    second = put(blocks, core, "- two")
    with pytest.raises(BlockConflict):
        blocks.delete(core, BlockCondition(first.updated_at), by=AUTHOR)
    blocks.delete(core, BlockCondition(second.updated_at), by=AUTHOR)
    assert blocks.find(core) is None
    third = blocks.put(core, "- three", BlockCondition(ABSENT), by=AUTHOR).block
    assert third.updated_at > second.updated_at


def test_a_name_that_differs_only_in_case_is_in_the_way(blocks: Blocks) -> None:
    archival = blocks.place("archival")
    put(blocks, archival, "- one")
    blocks.workspace(archival).write("blocks/Core.md", "- twin\n", by=AUTHOR)
    with pytest.raises(AlreadyExists, match=r"Core\.md"):
        put(blocks, blocks.place("core"), "- two")


def test_a_read_while_a_command_holds_the_workspace_returns_the_newest_revision(
    blocks: Blocks,
) -> None:
    core = blocks.place("core")
    first = put(blocks, core, "- one")
    with blocks.workspace(core).command(AUTHOR):
        file_of(blocks, core).write_text("- half writ")
        assert blocks.get(core) == first
        file_of(blocks, core).write_text("- two\n")
    assert blocks.get(core).content == "- two"


def test_recall_searches_archival_blocks_alone(harness: Harness, blocks: Blocks) -> None:
    records = harness.agents.create("records")
    put(blocks, blocks.place("core"), "- Harbour lease is in the core")
    put(
        blocks,
        blocks.place("archival"),
        "- tea is green\n- Harbour lease: the lawyer wants options",
    )
    put(blocks, blocks.place("archival", agent="records"), "- Harbour: legal approved the renewal")
    mine = blocks.recall("Harbour lease")
    assert mine[0].content == "- Harbour lease: the lawyer wants options"
    assert all(line.place == blocks.place("archival") for line in mine)
    assert (mine[0].line_number, mine[0].place.path) == (2, "blocks/archival.md")
    both = blocks.recall("Harbour lease", agent="records")
    assert {(line.place.scope, line.place.agent_id) for line in both} == {
        ("user", None),
        ("agent", records.id),
    }
    assert [line.score for line in both] == sorted((line.score for line in both), reverse=True)
    assert len(blocks.recall("Harbour lease", agent="records", limit=1)) == 1


def test_recall_without_a_query_lists_the_lines_of_the_user_then_of_the_agent(
    harness: Harness, blocks: Blocks
) -> None:
    harness.agents.create("records")
    put(blocks, blocks.place("archival", agent="records"), "- three")
    put(blocks, blocks.place("archival"), "- one\n- two")
    listed = blocks.recall("  ", agent="records")
    assert [line.content for line in listed] == ["- one", "- two", "- three"]
    assert all(line.updated_at for line in listed)
    assert blocks.recall("", agent="assistant") == blocks.recall("")
