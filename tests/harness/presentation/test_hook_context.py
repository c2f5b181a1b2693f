"""What hooks tell: it fits the programs that call them, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Harness
from harness.integrations.hook_session import SESSIONS_MAX, HookSessions, hook_call
from harness.memory.facts.fact import canonical_path
from harness.memory.facts.fact_file import write_fact
from harness.presentation.hook_context import HOOK_BYTES_MAX, HookContext
from harness.sandboxes.none import NoSandbox
from workspaces.errors import NotFound
from workspaces.ids import WorkspaceId
from workspaces.revision import RevisionId

NOTES = WorkspaceId("ws_1")


@pytest.fixture
def context(home: Path) -> Iterator[HookContext]:
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        notes = harness.workspaces.get("notes")
        yield HookContext(notes, harness.rooms.clock, harness.facts.indexes, "The files: /x")


def saved(context: HookContext, name: str, text: str) -> RevisionId:
    file = context.workspace.root / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    context.workspace.edits.commit()
    tip = context.workspace.history.tip()
    assert tip is not None
    return tip


@pytest.mark.parametrize("line", ["- line {} of memory\n", "- Zeile {}: größer · 記憶\n"])
def test_a_long_memory_is_shortened_until_it_fits(context: HookContext, line: str) -> None:
    short = context.whole()
    assert len(short.encode()) < HOOK_BYTES_MAX and short.endswith("The files: /x")
    saved(context, "MEMORY.md", "".join(line.format(number) for number in range(5_000)))
    for number in range(50):
        key, value = f"fact {number}", "a long value " * 20
        data = write_fact(None, key=key, value=value, pinned=True, importance=0)
        saved(context, canonical_path(key), data.decode())
    text = context.whole()
    assert HOOK_BYTES_MAX // 2 < len(text.encode()) <= HOOK_BYTES_MAX
    assert "left out" in text or "omitted" in text, text[-600:]
    assert text.count("<memory ") == text.count("</memory>")
    assert text.endswith("The files: /x")


def test_news_are_the_lines_that_changed_or_the_files_if_they_are_too_many(
    context: HookContext,
) -> None:
    before = saved(context, "MEMORY.md", "- one\n- two\n")
    assert context.news(before) == ""
    saved(context, "notes/other.md", "- not in a prompt\n")
    middle = saved(context, "MEMORY.md", "- one\n- three\n")
    told = context.news(before)
    assert "- - two\n+ - three" in told and "- one" not in told.replace("  - one", "")
    lines = "".join(f"- </memory-change> line {number}\n" for number in range(2_000))
    saved(context, "MEMORY.md", lines)
    told = context.news(middle)
    assert len(told.encode()) <= HOOK_BYTES_MAX
    assert "- MEMORY.md" in told and "</memory-change> line" not in told
    with pytest.raises(NotFound):
        context.news(RevisionId("0" * 40))


def test_a_call_is_read_from_what_the_program_writes() -> None:
    call = hook_call(b'{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "x"}')
    assert (call.event, call.session) == ("UserPromptSubmit", "s1")
    for data in (b"", b"no json", b"[]", b'{"session_id": 7}', b"\xff", b'{"session_id": ""}'):
        assert (hook_call(data).event, hook_call(data).session) == ("SessionStart", None)


def test_sessions_are_noted_apart_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    sessions = HookSessions(tmp_path / "sessions")
    assert sessions.told("one", NOTES) is None
    sessions.note("one", NOTES, RevisionId("aa11"))
    sessions.note("../two", NOTES, RevisionId("bb22"))
    assert sessions.told("one", NOTES) == "aa11" and sessions.told("../two", NOTES) == "bb22"
    assert sessions.told("one", WorkspaceId("ws_2")) is None
    for number in range(SESSIONS_MAX):
        (tmp_path / "sessions" / f"later{number}").write_text("cc33")
    sessions.note("three", NOTES, RevisionId("dd44"))
    assert len(list((tmp_path / "sessions").iterdir())) == SESSIONS_MAX
    assert sessions.told("three", NOTES) == "dd44"
