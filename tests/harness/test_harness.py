"""The whole path of the README: first start, memory across conversations, agents and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.messages.message import ToolCall, ToolResult
from harness.models.scripted import ScriptedModel
from workspaces.errors import Refused


def test_memory_written_in_a_conversation_is_known_in_another(home: Path) -> None:
    with Harness.open(home) as harness:
        journal = harness.workspaces.create("journal", template="default")
        agent = harness.agents.create("helper", workspaces=[journal])
        first = harness.run("Remember that I like short answers.", agent=agent, conversation="c1")
        assert first.status == "done"
        assert "- I like short answers\n" in journal.read("MEMORY.md").text
    with Harness.open(home) as harness:  # another process, another day
        reply = harness.run("What kind of answers do I like?", agent="helper", conversation="c2")
        assert "short answers" in reply.reply


def test_records_are_opened_or_created_by_name_and_stay_as_they_are(harness: Harness) -> None:
    for description in ("first", "second"):
        journal = harness.workspaces.open_or_create("journal", description=description)
        agent = harness.agents.open_or_create("helper", workspaces=[journal], system=description)
    assert (journal.record.description, agent.config.system) == ("first", "first")
    assert harness.workspaces.open_or_create("plain", template="coding").files() != journal.files()
    with pytest.raises(Refused, match="template"):
        harness.workspaces.open_or_create("other", template="no such template")


def test_a_workspace_writes_as_its_principal(harness: Harness) -> None:
    journal = harness.workspaces.create("journal")
    first = journal.write("notes/tea.md", "green\n")
    journal.write("notes/tea.md", "black\n", expect=first.version)
    journal.restore("notes/tea.md", first.revision or "")
    journal.revert("head")
    journal.delete("notes/tea.md")
    made = journal.log("notes/tea.md")
    owner = harness.rooms.principal.user
    assert len(made) == 5
    assert {(one.author, one.trailers["Source"]) for one in made} == {(owner.name, "api")}


def test_the_revision_of_a_memory_line_names_its_conversation_turn_and_event(home: Path) -> None:
    with Harness.open(home) as harness:
        outcome = harness.run("Remember that tea is green.", conversation="c1", event_id="e1")
        newest = harness.workspaces.get("notes").log("MEMORY.md")[0]
    assert newest.author == "assistant"
    assert newest.subject == "MEMORY.md: +1 −0 · tea is green"
    assert newest.trailers["Conversation"] == f"{outcome.conversation_id} c1"
    assert newest.trailers["Turn"] == outcome.turn_id
    assert newest.trailers["Event"] == "e1"
    assert newest.trailers["Source"] == "turn"
    assert [change.revision for change in outcome.changes] == [newest.id]


def test_a_manual_edit_is_known_to_the_next_turn_and_has_the_user_as_author(home: Path) -> None:
    with Harness.open(home) as harness:
        notes = harness.workspaces.get("notes")
        memory = notes.root / "MEMORY.md"
        memory.write_text(memory.read_text() + "- the deploy day is Thursday\n")
        assert "Thursday" in harness.run("When is the deploy day?").reply
        assert [revision.author for revision in notes.log("MEMORY.md")] == ["owner", "owner"]
        assert notes.log("MEMORY.md")[0].trailers["Source"] == "edit"


def test_two_agents_share_the_memory_of_a_common_mount(harness: Harness) -> None:
    team = harness.workspaces.create("team")
    harness.agents.create("one", workspaces=[team])
    harness.agents.create("two", workspaces=[team])
    harness.run("Remember that the office is in Graz.", agent="one")
    assert "Graz" in harness.run("Where is the office?", agent="two").reply
    assert "Graz" not in harness.run("Where is the office?", agent="assistant").reply


def test_notes_written_by_an_agent_are_read_by_another_agent_after_a_restart(home: Path) -> None:
    """By the tools that every model has; what the second one reads is what the first one wrote."""
    ask = ToolCall("t1", "read", {"path": "notes/deploy.md"})
    note = {"path": "notes/deploy.md", "content": "# Deploy\n\n- on Thursdays, by Ann\n"}
    memory = {
        "path": "MEMORY.md",
        "old": "# Memory\n",
        "new": "# Memory\n\n- deploys: see notes/deploy.md\n",
    }
    learns = ScriptedModel(
        [ToolCall("t1", "write", note), ToolCall("t2", "read", {"path": "MEMORY.md"})],
        [ToolCall("t3", "edit", memory)],
        "Noted.",
    )
    with Harness.open(home, model=learns) as harness:
        team = harness.workspaces.create("team", template="default")
        harness.agents.create("one", workspaces=[team])
        harness.agents.create("two", workspaces=[team])
        told = harness.run("Ann deploys on Thursdays.", agent="one", conversation="c1")
        assert (told.reply, len(told.changes)) == ("Noted.", 2)
    knows = ScriptedModel([ask], "Ann, on Thursdays.")
    with Harness.open(home, model=knows) as harness:
        asked = harness.run("Who deploys?", agent="two", conversation="c2")
        assert (asked.status, asked.reply) == ("done", "Ann, on Thursdays.")
        assert "- deploys: see notes/deploy.md" in "".join(knows.requests[0].system)
        (result,) = (p for p in knows.requests[1].messages[-1].parts if isinstance(p, ToolResult))
        assert "on Thursdays, by Ann" in result.text
        newest = harness.workspaces.get("team").log("notes/deploy.md")[0]
        assert newest.trailers["Turn"] == told.turn_id


def test_first_start_creates_the_default_records_only_once(home: Path) -> None:
    with Harness.open(home) as harness:
        assert [record.name for record in harness.workspaces.list()] == ["notes"]
        assert [record.name for record in harness.agents.list()] == ["assistant"]
        harness.deletion.agent("assistant")
    with Harness.open(home) as harness:
        assert harness.agents.list() == []
