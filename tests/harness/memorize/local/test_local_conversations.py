from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.memorize.local.local_conversations import (
    AmbiguousId,
    LocalConversations,
    transcript_roots,
)
from tests.harness.memorize.local.transcripts import (
    OTHER,
    SESSION,
    THREAD,
    claude,
    codex_said,
    meta,
    rollout,
    text,
    write,
)
from workspaces.errors import NotFound, Refused
from workspaces.timestamp import Stamp

DESKTOP = "local_77777777-0000-4000-8000-000000000007"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a conversation of each provider; Codex's is the oldest."""
    codex = rollout(tmp_path / ".codex", THREAD)
    write(codex, meta(), codex_said("user", "about herons"))
    os.utime(codex, (1_000, 1_000))
    code = write(
        tmp_path / ".claude" / "projects" / "-home-me-shop" / f"{SESSION}.jsonl",
        claude("user", "1", None, "about Thursday", cwd="/home/me/shop/api"),
        claude("assistant", "2", "1", text("yes")),
    )
    os.utime(code, (2_000, 2_000))
    folder = tmp_path / ".config" / "Claude" / "claude-code-sessions" / "account" / "org"
    write(
        folder / f"{DESKTOP}.json",
        {
            "sessionId": DESKTOP,
            "cliSessionId": "not here any more",
            "title": "Plans",
            "cwd": "/home/me/plans",
            "createdAt": 2_000_000,
            "lastActivityAt": 3_000_000,
        },
    )
    return tmp_path


def conversations(home: Path) -> LocalConversations:
    return LocalConversations(transcript_roots(home))


def test_a_list_is_newest_first_and_says_what_has_only_metadata(home: Path) -> None:
    listed = [(one.title, not one.has_messages) for one in conversations(home).list()]
    assert listed == [("Plans", True), ("about Thursday", False), ("about herons", False)]


def test_a_list_can_be_narrowed(home: Path) -> None:
    local = conversations(home)
    assert [one.title for one in local.list(provider="codex")] == ["about herons"]
    assert [one.title for one in local.list(project="/home/me/shop/")] == [
        "about Thursday",
        "about herons",
    ]
    assert [one.title for one in local.list(query="THURS")] == ["about Thursday"]
    assert [one.title for one in local.list(since=Stamp("1970-01-01T00:50:00.000000Z"))] == [
        "Plans"
    ]
    assert [one.title for one in local.list(limit=1)] == ["Plans"]
    with pytest.raises(Refused, match="unknown"):
        local.list(provider="claude-cod")


def test_a_session_of_the_desktop_is_joined_to_its_transcript(home: Path) -> None:
    folder = home / ".config" / "Claude" / "claude-code-sessions" / "account" / "org"
    joined = "local_88888888-0000-4000-8000-000000000008"
    write(
        folder / f"{joined}.json",
        {
            "sessionId": joined,
            "cliSessionId": SESSION,
            "title": "Days",
            "lastActivityAt": 4_000_000,
        },
    )
    local = conversations(home)
    assert [one.title for one in local.list()] == ["Days", "Plans", "about herons"]
    assert [one.text for one in local.get(joined).messages] == ["about Thursday", "yes"]
    assert local.get(SESSION).conversation.provider == "claude-code"
    assert [one.title for one in local.list(provider="claude-code")] == ["about Thursday"]


def test_a_cowork_session_has_its_transcript_in_its_own_directory(home: Path) -> None:
    folder = home / ".config" / "Claude" / "local-agent-mode-sessions" / "account" / "org"
    own = "local_66666666-0000-4000-8000-000000000006"
    write(folder / f"{own}.json", {"sessionId": own, "cliSessionId": "inner", "title": "Work"})
    write(
        folder / own / ".claude" / "projects" / "-work" / "inner.jsonl",
        claude("user", "1", None, "in its own place"),
    )
    write(folder / own / "audit.jsonl", "not ours to read")
    read = conversations(home).get(own)
    assert [one.text for one in read.messages] == ["in its own place"]


def test_a_conversation_of_metadata_has_no_messages(home: Path) -> None:
    read = conversations(home).get(DESKTOP)
    assert (read.messages, read.total) == ((), 0)
    assert read.as_json()["metadata_only"] is True


def test_an_exact_id_comes_before_longer_ones_that_begin_so(home: Path) -> None:
    folder = home / ".claude" / "projects" / "-home-me-shop"
    write(folder / f"{SESSION}-copy.jsonl", claude("user", "1", None, "a copy"))
    assert conversations(home).get(SESSION).conversation.title == "about Thursday"


def test_the_beginning_of_an_id_serves_if_only_one_begins_so(home: Path) -> None:
    local = conversations(home)
    assert local.get("99999999").conversation.id == SESSION
    write(rollout(home / ".codex", OTHER), meta(OTHER), codex_said("user", "another"))
    with pytest.raises(AmbiguousId) as ambiguous:
        local.get("019b0000")
    assert ambiguous.value.candidates == [THREAD, OTHER]
    with pytest.raises(NotFound):
        local.get("5555")
    with pytest.raises(NotFound):
        local.get("999")  # too short to mean one


def test_messages_around_a_position_are_shown(home: Path) -> None:
    said = [codex_said("user", f"message {number}") for number in range(1, 31)]
    write(rollout(home / ".codex", OTHER), meta(OTHER), *said)
    local = conversations(home)
    around = local.get(OTHER, around=10, limit=4)
    assert [(one.position, one.text) for one in around.messages] == [
        (9, "message 9"),
        (10, "message 10"),
        (11, "message 11"),
        (12, "message 12"),
    ]
    assert [one.position for one in local.get(OTHER, limit=2).messages] == [29, 30]
    assert [one.position for one in local.get(OTHER, around=1, limit=4).messages] == [1, 2, 3]
    assert around.total == 30
    with pytest.raises(Refused, match="1 to 30"):
        local.get(OTHER, around=31)


def test_a_list_reads_a_file_again_only_if_it_has_changed(home: Path) -> None:
    local = conversations(home)
    local.list()
    file = rollout(home / ".codex", THREAD)
    size = file.stat().st_size
    file.write_bytes(b"x" * size)
    os.utime(file, (1_000, 1_000))  # same size, same time: as if it had not changed
    assert "about herons" in [one.title for one in local.list()]
    write(file, meta(), codex_said("user", "about geese"))
    assert "about geese" in [one.title for one in local.list()]


def test_an_extra_directory_may_be_an_agents_own_or_a_home(home: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    write(rollout(away / "codex", OTHER), meta(OTHER), codex_said("user", "elsewhere"))
    roots = transcript_roots(away, extra=[away / "codex", home])
    titles = {one.title for one in LocalConversations(roots).list()}
    assert titles == {"elsewhere", "about herons", "about Thursday", "Plans"}


def test_no_directory_is_no_conversation(tmp_path: Path) -> None:
    assert conversations(tmp_path / "nobody").list() == []
