from __future__ import annotations

from pathlib import Path

import pytest

from harness.memorize.local.local_conversations import LocalConversations, TranscriptRoots
from tests.harness.memorize.local.transcripts import (
    SESSION,
    Line,
    claude,
    text,
    tool_result,
    tool_use,
    write,
)


@pytest.fixture
def local(tmp_path: Path) -> LocalConversations:
    return LocalConversations(TranscriptRoots(claude_code=(tmp_path,)))


def session(root: Path, *events: Line | str, id_: str = SESSION) -> Path:
    return write(root / "projects" / "-home-me-shop" / f"{id_}.jsonl", *events)


def said(local: LocalConversations, id_: str = SESSION) -> list[tuple[int, str, str, int]]:
    read = local.get(id_, limit=100)
    return [(m.position, m.type, m.text, m.raw_index) for m in read.messages]


def test_the_words_of_persons_models_and_tools_are_shown(
    tmp_path: Path, local: LocalConversations
) -> None:
    session(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "m"},
        claude("user", "1", None, "Caveat", isMeta=True),
        claude("user", "2", "1", "The deploy day is Thursday."),
        claude("assistant", "3", "2", tool_use("t1", "Edit", file="a.md")),
        claude("user", "4", "3", tool_result("t1", "updated"), toolUseResult={"file": "a.md"}),
        claude("user", "5", "4", "<system-reminder>be kind</system-reminder>"),
        claude("assistant", "6", "5", text("Noted.")),
    )
    assert said(local) == [
        (1, "message", "The deploy day is Thursday.", 2),
        (2, "tool_call", 'Edit {"file": "a.md"}', 3),
        (3, "tool_result", "updated", 4),
        (4, "message", "Noted.", 6),
    ]
    (listed,) = local.list()
    assert (listed.id, listed.provider, listed.project) == (SESSION, "claude-code", "/home/me/shop")
    assert listed.title == "The deploy day is Thursday."


def test_a_rewound_session_is_its_newest_branch(tmp_path: Path, local: LocalConversations) -> None:
    session(
        tmp_path,
        claude("user", "1", None, "first"),
        claude("assistant", "2", "1", text("answer")),
        claude("user", "3", "2", "a way that was left"),
        claude("assistant", "4", "3", text("its answer")),
        claude("user", "5", "2", "another way"),
        claude("assistant", "6", "5", text("its answer, too")),
    )
    assert [(one[0], one[2]) for one in said(local)] == [
        (1, "first"),
        (2, "answer"),
        (3, "another way"),
        (4, "its answer, too"),
    ]


def test_a_compacted_session_goes_on_over_the_boundary(
    tmp_path: Path, local: LocalConversations
) -> None:
    boundary = {
        **claude("system", "3", None, ""),
        "subtype": "compact_boundary",
        "logicalParentUuid": "2",
    }
    del boundary["message"]
    session(
        tmp_path,
        claude("user", "1", None, "before"),
        claude("assistant", "2", "1", text("yes")),
        boundary,
        claude("user", "4", "3", "This session is being continued…", isCompactSummary=True),
        claude("user", "5", "4", "behind"),
    )
    assert [one[2] for one in said(local)] == ["before", "yes", "behind"]


def test_a_resumed_session_counts_copied_lines_once(
    tmp_path: Path, local: LocalConversations
) -> None:
    old = [claude("user", "1", None, "first"), claude("assistant", "2", "1", text("answer"))]
    session(tmp_path, *old)
    resumed = "99999999-0000-4000-8000-00000000000a"
    session(tmp_path, *old, *old, claude("user", "3", "2", "again"), id_=resumed)
    assert [one[2] for one in said(local, resumed)] == ["first", "answer", "again"]


def test_an_answer_in_several_lines_keeps_its_calls_and_all_their_results(
    tmp_path: Path, local: LocalConversations
) -> None:
    session(
        tmp_path,
        claude("user", "1", None, "read both"),
        claude("assistant", "2", "1", tool_use("a", "Read", f="a"), answer="m"),
        claude("assistant", "3", "2", tool_use("b", "Read", f="b"), answer="m"),
        claude("user", "4", "2", tool_result("a", "A"), sourceToolAssistantUUID="2"),
        claude("user", "5", "3", tool_result("b", text("B")), sourceToolAssistantUUID="3"),
        claude("assistant", "6", "5", text("Both read.")),
    )
    assert [one[2] for one in said(local)] == [
        "read both",
        'Read {"f": "a"}',
        'Read {"f": "b"}',
        "A",
        "B",
        "Both read.",
    ]


def test_a_subagent_is_a_conversation_of_its_own(tmp_path: Path, local: LocalConversations) -> None:
    file = session(
        tmp_path,
        claude("user", "1", None, "look"),
        claude("user", "s", None, "beside", isSidechain=True),
        claude("assistant", "2", "1", text("done")),
    )
    side = [
        claude("user", "s1", None, "find it", isSidechain=True, agentId="a1"),
        claude("assistant", "s2", "s1", text("found"), isSidechain=True, agentId="a1"),
    ]
    write(file.with_suffix("") / "subagents" / "agent-a1.jsonl", *side)
    write(file.with_name("agent-b2.jsonl"), *side)  # as older versions did
    assert [one[2] for one in said(local)] == ["look", "done"]
    assert [one[2] for one in said(local, "agent-a1")] == ["find it", "found"]
    assert {one.id: one.parent for one in local.list()} == {
        SESSION: None,
        "agent-a1": SESSION,
        "agent-b2": SESSION,
    }


def test_a_title_of_a_persons_own_comes_before_a_made_one(
    tmp_path: Path, local: LocalConversations
) -> None:
    session(
        tmp_path,
        claude("user", "1", None, "first words"),
        {"type": "custom-title", "customTitle": "Deploys", "sessionId": SESSION},
        {"type": "ai-title", "aiTitle": "About deploys", "sessionId": SESSION},
    )
    assert [one.title for one in local.list()] == ["Deploys"]


def test_notes_in_the_directory_memory_are_no_session(
    tmp_path: Path, local: LocalConversations
) -> None:
    file = session(tmp_path, claude("user", "1", None, "first"))
    write(file.parent / "memory" / "other.jsonl", claude("user", "1", None, "no session"))
    assert [one.id for one in local.list()] == [SESSION]


def test_malformed_lines_and_unknown_types_are_counted(
    tmp_path: Path, local: LocalConversations
) -> None:
    session(
        tmp_path,
        "{",
        {"type": "novelty"},
        claude("user", "1", "a parent that is not there", "first"),
    )
    read = local.get(SESSION)
    assert [one.text for one in read.messages] == ["first"]
    assert read.skipped.as_json() == {"malformed": 1, "too_long": 0, "unknown": {"novelty": 1}}


def test_a_circle_of_parents_ends(tmp_path: Path, local: LocalConversations) -> None:
    session(tmp_path, claude("user", "1", "2", "one"), claude("user", "2", "1", "two"))
    assert [one[2] for one in said(local)] == ["one", "two"]
