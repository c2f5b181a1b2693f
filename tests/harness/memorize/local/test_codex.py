from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from harness.memorize.local.local_conversations import LocalConversations, TranscriptRoots
from harness.memorize.local.local_message import MESSAGE_CHARACTERS_MAX
from harness.memorize.local.transcript_file import LINE_BYTES_MAX
from tests.harness.memorize.local.transcripts import (
    OTHER,
    THREAD,
    codex,
    codex_call,
    codex_output,
    codex_said,
    lines,
    meta,
    rollout,
    write,
)
from workspaces.errors import Unavailable


@pytest.fixture
def local(tmp_path: Path) -> LocalConversations:
    return LocalConversations(TranscriptRoots(codex=(tmp_path,)))


def said(local: LocalConversations, id_: str = THREAD) -> list[tuple[int, str, str, str, int]]:
    read = local.get(id_, limit=100)
    return [(m.position, m.role, m.type, m.text, m.raw_index) for m in read.messages]


def test_a_legacy_rollout_counts_each_message_once(
    tmp_path: Path, local: LocalConversations
) -> None:
    write(
        rollout(tmp_path, THREAD),
        meta(history_mode="legacy"),
        codex_said("developer", "Be brief."),
        codex_said(
            "user", "<environment_context>\n  <cwd>/home/me/shop</cwd>\n</environment_context>"
        ),
        codex("turn_context", turn_id="t1", cwd="/home/me/shop"),
        codex_said("user", "The staging server is called heron."),
        codex("event_msg", type="user_message", message="The staging server is called heron."),
        codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
        codex_call("exec_command", '{"cmd":"ls"}', "call_1"),
        codex_output("call_1", "README.md\n"),
        codex("event_msg", type="token_count", info={"total": 3}),
        codex_said("assistant", "Noted: staging is heron."),
        codex("event_msg", type="agent_message", message="Noted: staging is heron."),
    )
    assert said(local) == [
        (1, "user", "message", "The staging server is called heron.", 4),
        (2, "assistant", "tool_call", 'exec_command {"cmd":"ls"}', 7),
        (3, "user", "tool_result", "README.md\n", 8),
        (4, "assistant", "message", "Noted: staging is heron.", 10),
    ]
    (listed,) = local.list()
    assert (listed.id, listed.provider, listed.project) == (THREAD, "codex", "/home/me/shop")
    assert listed.title == "The staging server is called heron."


def test_a_paginated_rollout_counts_completed_items_not_again(
    tmp_path: Path, local: LocalConversations
) -> None:
    item = {"type": "UserMessage", "id": "i1", "content": [{"type": "Text", "text": "One."}]}
    write(
        rollout(tmp_path, THREAD),
        meta(history_mode="paginated"),
        codex_said("user", "One."),
        codex("event_msg", type="item_completed", thread_id=THREAD, turn_id="t", item=item),
        codex_said("assistant", "Two."),
    )
    assert [one[3] for one in said(local)] == ["One.", "Two."]


def test_a_rollback_takes_the_last_turns_out(tmp_path: Path, local: LocalConversations) -> None:
    write(
        rollout(tmp_path, THREAD),
        meta(),
        codex_said("user", "first"),
        codex_said("assistant", "answer 1"),
        codex_said("user", "second"),
        codex_said("assistant", "answer 2"),
        codex_said("user", "third"),
        codex("event_msg", type="thread_rolled_back", num_turns=2),
        codex_said("user", "fourth"),
    )
    assert [(one[0], one[3]) for one in said(local)] == [
        (1, "first"),
        (2, "answer 1"),
        (3, "fourth"),
    ]


def test_a_compressed_rollout_reads_as_the_plain_one(
    tmp_path: Path, local: LocalConversations
) -> None:
    plain = rollout(tmp_path, THREAD)
    plain.parent.mkdir(parents=True)
    data = lines(meta(), codex_said("user", "packed away"), codex_said("assistant", "yes"))
    packed = zstandard.ZstdCompressor(3)
    plain.with_suffix(".jsonl.zst").write_bytes(
        packed.compress(data[:200]) + packed.compress(data[200:])  # two frames
    )
    assert [one[3] for one in said(local)] == ["packed away", "yes"]
    assert [one.title for one in local.list()] == ["packed away"]


def test_of_a_plain_file_and_its_compressed_copy_the_plain_one_is_read(
    tmp_path: Path, local: LocalConversations
) -> None:
    plain = write(rollout(tmp_path, THREAD), meta(), codex_said("user", "plain"))
    packed = zstandard.compress(lines(meta(), codex_said("user", "packed")))
    plain.with_suffix(".jsonl.zst").write_bytes(packed)
    assert [one.title for one in local.list()] == ["plain"]


def test_a_damaged_compressed_rollout_is_left_out_of_the_list_and_named_when_read(
    tmp_path: Path, local: LocalConversations
) -> None:
    write(rollout(tmp_path, OTHER), meta(OTHER), codex_said("user", "whole"))
    rollout(tmp_path, THREAD).with_suffix(".jsonl.zst").write_bytes(b"no zstd")
    assert [one.title for one in local.list()] == ["whole"]
    with pytest.raises(Unavailable, match="not valid zstd"):
        local.get(THREAD)


def test_an_archived_rollout_is_listed_as_such(tmp_path: Path, local: LocalConversations) -> None:
    file = rollout(tmp_path, THREAD, folder="archived_sessions")
    write(file, meta(), codex_said("user", "old"))
    assert [(one.title, one.is_archived) for one in local.list()] == [("old", True)]


def test_a_history_is_the_beginning_of_another_file_and_its_own_lines(
    tmp_path: Path, local: LocalConversations
) -> None:
    kept = [meta(OTHER), codex_said("user", "shared"), codex_said("assistant", "answer")]
    end = len(lines(*kept))
    write(rollout(tmp_path, OTHER), *kept, codex_said("user", "only there"))
    base = {"thread_id": OTHER, "end_ordinal_exclusive": 3, "end_byte_offset": end}
    write(
        rollout(tmp_path, THREAD, second="09-00-00"),
        meta(history_base=base),
        codex_said("user", "only here"),
    )
    assert said(local) == [
        (1, "user", "message", "shared", 1),
        (2, "assistant", "message", "answer", 2),
        (3, "user", "message", "only here", 4),
    ]
    assert [one[3] for one in said(local, OTHER)] == ["shared", "answer", "only there"]


@pytest.mark.parametrize("base", [OTHER, THREAD])
def test_a_history_whose_beginning_is_missing_or_itself_is_named(
    tmp_path: Path, local: LocalConversations, base: str
) -> None:
    write(
        rollout(tmp_path, THREAD),
        meta(history_base={"thread_id": base, "end_byte_offset": 10}),
        codex_said("user", "here"),
    )
    with pytest.raises(Unavailable, match="beginning lies in another file"):
        local.get(THREAD)


def test_the_newest_file_of_a_reverted_thread_is_the_thread(
    tmp_path: Path, local: LocalConversations
) -> None:
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", "before"))
    own = f"{THREAD}_{OTHER}"
    write(rollout(tmp_path, own, second="10-00-00"), meta(), codex_said("user", "after"))
    assert [one.title for one in local.list()] == ["after"]


def test_a_threads_newest_name_is_its_title(tmp_path: Path, local: LocalConversations) -> None:
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", "first words"))
    write(
        tmp_path / "session_index.jsonl",
        {"id": THREAD, "thread_name": "Old", "updated_at": "a"},
        {"id": THREAD, "thread_name": "Servers", "updated_at": "b"},
    )
    assert [one.title for one in local.list()] == ["Servers"]


def test_a_request_from_an_editor_is_what_stands_behind_its_heading(
    tmp_path: Path, local: LocalConversations
) -> None:
    message = "# Context from my IDE\n\nopen: a.py\n\n## My request for Codex:\nRename it."
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", message))
    assert [one[3] for one in said(local)] == ["Rename it."]


def test_malformed_lines_and_unknown_types_are_counted(
    tmp_path: Path, local: LocalConversations
) -> None:
    write(
        rollout(tmp_path, THREAD),
        meta(),
        '{"type": "response_item", "payl',
        "[1, 2]",
        codex("from_the_future"),
        codex("from_the_future"),
        codex("response_item", type="new_item"),
        codex_said("user", "still here"),
    )
    read = local.get(THREAD)
    assert [(one.text, one.raw_index) for one in read.messages] == [("still here", 6)]
    assert read.skipped.as_json() == {
        "malformed": 2,
        "too_long": 0,
        "unknown": {"from_the_future": 2, "response_item.new_item": 1},
    }


def test_a_line_of_64_mib_is_skipped_in_bounded_memory(
    tmp_path: Path, local: LocalConversations
) -> None:
    import tracemalloc

    file = write(rollout(tmp_path, THREAD), meta(), codex_said("user", "before"))
    with file.open("ab") as opened:
        opened.write(b'{"type":"response_item","payload":"')
        for _ in range(64):
            opened.write(b"a" * 2**20)
        opened.write(b'"}\n' + lines(codex_said("user", "behind")))
    tracemalloc.start()
    read = local.get(THREAD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(m.text, m.raw_index) for m in read.messages] == [("before", 1), ("behind", 3)]
    assert read.skipped.too_long == 1
    assert peak < 3 * LINE_BYTES_MAX


def test_messages_hold_no_secret(tmp_path: Path, local: LocalConversations) -> None:
    key = "ghp_" + "aB3" * 12
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", f"Use {key} there."))
    assert [one[3] for one in said(local)] == ["Use [redacted: GitHub token] there."]
    assert [one.title for one in local.list()] == ["Use [redacted: GitHub token] there."]


def test_a_long_message_is_cut_behind_its_secrets(
    tmp_path: Path, local: LocalConversations
) -> None:
    key = "ghp_" + "aB3" * 12
    text = "a " * (MESSAGE_CHARACTERS_MAX // 2 - 10) + key + " b" * 100
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", text))
    shown = said(local)[0][3]
    assert "ghp_" not in shown
    assert shown.endswith(" more characters]")
    assert len(shown) < MESSAGE_CHARACTERS_MAX + 100
