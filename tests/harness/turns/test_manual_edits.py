"""Manual edits at the start of a turn: shown in its prompt and committed before any tool runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from harness.messages.message import Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.models.scripted import ScriptedModel
from workspaces.workspace.workspace import Workspace

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

READ = ToolCall("t1", "read", {"path": "MEMORY.md"})
WRITE = ToolCall("t1", "write", {"path": "other.md", "content": "by the agent\n"})


def at_rest(harness: Harness) -> Workspace:
    """The workspace, as it is when everything in it is old, and a turn has looked at it before."""
    notes = harness.workspaces.get("notes")
    (notes.root / "notes").mkdir(exist_ok=True)
    (notes.root / "notes/known.md").write_text("# Known\n")
    notes.edits.commit()
    for path in notes.root.rglob("*"):
        os.utime(path, (1, 1))
    return notes


def let_it_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps are trusted at once: no file system here has a clock so coarse."""
    monkeypatch.setattr("workspaces.tree.scan.YOUNG_S", -3600.0)


@pytest.fixture
def notes_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Harness], Workspace]:
    def settled(harness: Harness) -> Workspace:
        let_it_grow_old(monkeypatch)
        notes = at_rest(harness)
        assert harness.run("hello", conversation="before").status == "done"
        notes.edits.commit()
        return notes

    return settled


def sources(workspace: Workspace) -> list[str]:
    return [revision.trailers["Source"] for revision in workspace.log()]


def append_memory(root: Path) -> None:
    with (root / "MEMORY.md").open("a") as file:
        file.write("\n- SEEN by hand\n")


def new_note(root: Path) -> None:
    (root / "notes/new.md").write_text("# SEEN in a new note\n")


def known_note(root: Path) -> None:
    (root / "notes/known.md").write_text("# SEEN in one that was shown\n")


def note_deep_down(root: Path) -> None:
    (root / "notes/a/b").mkdir(parents=True)
    (root / "notes/a/b/c.md").write_text("# SEEN below\n")


@pytest.mark.parametrize("change", [append_memory, new_note, known_note, note_deep_down])
def test_a_manual_edit_before_a_turn_appears_in_its_first_request(
    scripted: Scripted,
    notes_of: Callable[[Harness], Workspace],
    change: Callable[[Path], None],
) -> None:
    harness, model = scripted("hi", "one")
    notes = notes_of(harness)
    change(notes.root)
    harness.run("go")
    assert "SEEN" in str(model.requests[1].as_json())
    assert notes.edits.pending() == []


def test_the_receipt_names_the_revision_of_the_memory_in_the_prompt(
    scripted: Scripted, notes_of: Callable[[Harness], Workspace]
) -> None:
    harness, _ = scripted("hi", "one")
    notes = notes_of(harness)
    append_memory(notes.root)
    outcome = harness.run("go")
    conversation = harness.conversations.get(outcome.conversation_id)
    (receipt,) = harness.rooms.conversations.prompt_log(conversation).receipts()
    assert str(notes.history.tip()) in str(receipt.as_json())
    assert "SEEN" in notes.read("MEMORY.md", view=str(notes.history.tip())).text


def test_manual_edits_outside_the_prompt_are_committed_after_the_model_call_and_before_any_tool(
    scripted: Scripted, notes_of: Callable[[Harness], Workspace]
) -> None:
    found: list[list[str]] = []

    def look(request: ModelRequest) -> list[ToolCall]:
        del request
        found.append([str(path) for path in notes.edits.pending()])
        return [WRITE]

    def look_again(request: ModelRequest) -> str:
        found.append([str(path) for path in notes.edits.pending()])
        return "done"

    harness, _ = scripted("hi", look, look_again)
    notes = notes_of(harness)
    (notes.root / "TASKS.md").write_text("by hand\n")
    harness.run("go")
    assert found == [["TASKS.md"], []]
    assert sources(notes)[:2] == ["turn", "edit"]


@pytest.mark.parametrize(
    "answer", ["one", ModelFailure("refused", "no", "say it otherwise")], ids=["done", "failed"]
)
def test_manual_edits_are_committed_even_if_the_turn_fails(
    scripted: Scripted, notes_of: Callable[[Harness], Workspace], answer: str | ModelFailure
) -> None:
    harness, _ = scripted("hi", answer)
    notes = notes_of(harness)
    (notes.root / "TASKS.md").write_text("by hand\n")
    harness.run("go")
    assert sources(notes)[0] == "edit"
    assert notes.edits.pending() == []


def test_the_outcome_reports_manual_edits_that_could_not_be_committed(
    scripted: Scripted, notes_of: Callable[[Harness], Workspace]
) -> None:
    def lose(request: ModelRequest) -> list[Text]:
        del request
        objects.rename(objects.with_name("elsewhere"))
        return [Text("one")]

    harness, _ = scripted("hi", lose)
    notes = notes_of(harness)
    (notes.root / "TASKS.md").write_text("by hand\n")
    objects = harness.rooms.settings.home.history(notes.namespace) / "objects"
    outcome = harness.run("go")
    objects.with_name("elsewhere").rename(objects)
    assert outcome.reply == "one"
    (remark,) = outcome.remarks
    assert remark.kind == "unsettled"
    assert "notes" in remark.detail
    assert notes.namespace not in remark.detail
