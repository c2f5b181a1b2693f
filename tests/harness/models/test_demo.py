"""The demo model: it remembers facts in MEMORY.md and answers from them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from harness import Harness
from harness.conversations.conversation import Conversation
from harness.messages.message import Message, Text, ToolCall, user
from harness.messages.progress import TextArrived, ToolStarted
from harness.sandboxes.none import NoSandbox
from harness.transcripts.transcript import Entry
from workspaces.clock import ManualClock
from workspaces.ids import TurnId
from workspaces.timestamp import stamp_of
from workspaces.workspace.workspace import Workspace


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Harness]:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with Harness.open(
        tmp_path / "home", clock=ManualClock(), sandbox=NoSandbox("not in this test")
    ) as harness:
        yield harness


@pytest.fixture
def notes(harness: Harness) -> Workspace:
    return harness.workspaces.get("notes")


Say = Callable[..., str]


@pytest.fixture
def say(harness: Harness) -> Say:
    """What the demo model answers; in a new conversation unless one is named."""

    def said(text: str, *, conversation: str | None = None, agent: str | None = None) -> str:
        outcome = harness.run(text, conversation=conversation, agent=agent)
        assert outcome.status == "done"
        return outcome.reply

    return said


def memory(notes: Workspace) -> str:
    return notes.read("MEMORY.md").text


def set_memory(notes: Workspace, text: str) -> None:
    (notes.root / "MEMORY.md").write_text(text)


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("Remember that I live in Oslo.", "I live in Oslo"),
        ("remember: tea at four", "tea at four"),
        ("Please remember this: the door code is on paper!", "the door code is on paper"),
        ("Note that the sky is blue", "the sky is blue"),
        ("Don't forget to water\nthe plants", "to water the plants"),
        ("KEEP IN MIND THAT Zoë drinks 茶.", "Zoë drinks 茶"),
        ("Hello. Remember, the train leaves at 9:05.", "the train leaves at 9:05"),
    ],
)
def test_the_demo_model_appends_a_fact_as_the_last_line_of_memory(
    say: Say, notes: Workspace, said: str, fact: str
) -> None:
    assert say(said) == f"I have written to MEMORY.md: {fact}."
    assert memory(notes).splitlines()[-1] == f"- {fact}"
    assert memory(notes).startswith("# Memory\n")
    assert notes.log(limit=1)[0].author == "assistant"


def test_the_demo_model_reads_memory_before_editing(harness: Harness) -> None:
    progress: list[object] = []
    harness.run("Remember that tea is green.", emit=progress.append)
    assert [p.call.name for p in progress if isinstance(p, ToolStarted)] == ["read", "edit"]
    assert [p.text for p in progress if isinstance(p, TextArrived)] == [
        "I have written to MEMORY.md: tea is green."
    ]


@pytest.mark.parametrize("conversation", [None, "same"])
def test_the_demo_model_does_not_store_a_known_fact_again(
    say: Say, notes: Workspace, conversation: str | None
) -> None:
    say("Remember that tea is green.", conversation=conversation)
    told = say("Remember that tea is green!", conversation=conversation)
    assert told == "I know that already: tea is green."
    assert memory(notes).count("tea is green") == 1


@pytest.mark.parametrize("said", ["Remember.", "Please remember!", "remember that", "Note: ..."])
def test_the_demo_model_writes_nothing_for_a_wish_without_a_fact(
    say: Say, notes: Workspace, said: str
) -> None:
    before = memory(notes)
    assert say(said)
    assert memory(notes) == before


def test_the_demo_model_answers_from_memory_in_a_new_conversation(say: Say) -> None:
    say("Remember that Ada's favourite colour is violet.")
    say("Remember that the train leaves at nine.")
    assert say("Which colour does Ada like?") == "From my memory: Ada's favourite colour is violet."
    assert say("Do you remember when the trains leave?") == (
        "From my memory: the train leaves at nine."
    )


def test_the_demo_model_answers_from_a_manual_edit(say: Say, notes: Workspace) -> None:
    set_memory(notes, "# Memory\n\n<!-- - a comment about violet -->\n* Ada likes violet\n")
    assert say("What about violet?") == "From my memory: Ada likes violet."


def test_the_demo_model_says_that_memory_does_not_answer_a_question(say: Say) -> None:
    say("Remember that tea is green.")
    assert say("Who is the queen?").startswith("Nothing in my memory answers that.")


def test_the_demo_model_explains_an_empty_memory_and_how_to_set_an_api_key(say: Say) -> None:
    told = say("Who am I?")
    assert told.startswith("My memory is empty so far.")
    assert "ANTHROPIC_API_KEY" in told


def test_the_demo_model_reads_a_read_only_mount_and_never_writes(
    harness: Harness, say: Say, notes: Workspace
) -> None:
    say("Remember that tea is green.")
    harness.agents.create("reader", workspaces=[notes], sandbox=None)
    before = memory(notes)
    assert "no workspace is mounted writable" in say("Remember that I am here.", agent="reader")
    assert memory(notes) == before
    assert say("What is green?", agent="reader") == "From my memory: tea is green."


def test_the_demo_model_has_no_memory_without_a_workspace(harness: Harness, say: Say) -> None:
    harness.agents.create("nomad")
    assert "no workspace is mounted writable" in say("Remember that I am here.", agent="nomad")
    assert say("Who am I?", agent="nomad").startswith("My memory is empty")


def test_the_demo_model_creates_a_missing_memory_file(say: Say, notes: Workspace) -> None:
    (notes.root / "MEMORY.md").unlink()
    assert say("What is green?").startswith("My memory is empty")
    say("Remember that tea is green.")
    assert memory(notes) == "# Memory\n\n- tea is green\n"


@pytest.mark.parametrize("text", ["", "\n", "\n\n  \n"])
def test_the_demo_model_starts_an_empty_memory_with_a_heading(
    say: Say, notes: Workspace, text: str
) -> None:
    set_memory(notes, text)
    assert say("Remember that tea is green.") == "I have written to MEMORY.md: tea is green."
    assert memory(notes) == "# Memory\n\n- tea is green\n"


@pytest.mark.parametrize(
    "text",
    [
        "# Memory\n\n- same\n- same\n",
        "- same\n\n- same\n\n- same\n",
        "x\nx",
        "x",
        "a line without an end",
        "# Memory\n\n- a\n\n\n",
        "## a\n\n---\n\n## b\n\n---\n",
        "# Memory\n\n   \n\t\n",
        "- a tab\tin it\n- 12\tlike a number\n",
    ],
)
def test_the_demo_model_adds_a_fact_and_changes_nothing_else_in_memory(
    say: Say, notes: Workspace, text: str
) -> None:
    set_memory(notes, text)
    assert say("Remember that tea is green.") == "I have written to MEMORY.md: tea is green."
    assert "- tea is green" in memory(notes).splitlines()
    assert memory(notes).replace("\n- tea is green", "", 1) == text


def test_the_demo_model_reports_a_memory_file_that_cannot_be_written(
    say: Say, notes: Workspace, tmp_path: Path
) -> None:
    (notes.root / "MEMORY.md").unlink()
    (notes.root / "MEMORY.md").symlink_to(tmp_path / "elsewhere")
    assert say("Remember that tea is green.").startswith("I could not write that down.")
    assert not (tmp_path / "elsewhere").exists()


def test_the_demo_model_adds_to_a_memory_longer_than_one_read(say: Say, notes: Workspace) -> None:
    text = "".join(f"- fact number {number}\n" for number in range(2500))
    set_memory(notes, text)
    assert say("Remember that tea is green.") == "I have written to MEMORY.md: tea is green."
    assert memory(notes).replace("- tea is green\n", "", 1) == text


def test_the_demo_model_takes_a_message_after_an_interrupted_turn_as_a_new_wish(
    harness: Harness, say: Say, notes: Workspace
) -> None:
    """The result that the broken turn never had stands in one message with the new question."""
    say("Hello.", conversation="c")
    agent = harness.agents.get("assistant")
    conversation = harness.rooms.conversations.find(agent.id, "c")
    assert conversation is not None
    _leave_a_call_without_result(harness, conversation)
    told = say("Remember that tea is green.", conversation="c")
    assert told == "I have written to MEMORY.md: tea is green."
    assert "- tea is green" in memory(notes)


def _leave_a_call_without_result(harness: Harness, conversation: Conversation) -> None:
    transcript = harness.conversations.transcript(conversation)
    call = ToolCall("toolu_broken", "read", {"path": "MEMORY.md"})
    broken = (user("Remember that ink is black."), Message("assistant", (Text("Well."), call)))
    with harness.rooms.dispatcher.leases.held(conversation.lease_key) as lease:
        for number, message in enumerate(broken, start=transcript.window().next_number):
            at = stamp_of(harness.rooms.clock.now())
            transcript.append(Entry(number, at, TurnId("turn_broken"), message), lease)


def test_the_demo_model_forgets_a_line_and_nothing_else(say: Say, notes: Workspace) -> None:
    set_memory(notes, "# Memory\n\n- tea is green\n- tea is green in May\n- milk is white\n")
    assert say("Please forget that milk is white.") == "Forgotten in MEMORY.md: milk is white."
    assert say("Forget that tea is green.") == "Forgotten in MEMORY.md: tea is green."
    assert memory(notes) == "# Memory\n\n- tea is green in May\n"
    assert say("What colour is milk?").startswith("Nothing in my memory answers that.")
    assert say("Forget that coffee is black.").startswith("I do not know that: coffee is black.")
    assert say("Forget it.") == "Tell me what to forget: “forget that …”."
    assert say("Don't forget that milk is cold.") == "I have written to MEMORY.md: milk is cold."


def test_the_demo_model_asks_which_line_is_to_be_forgotten(say: Say, notes: Workspace) -> None:
    set_memory(notes, "- Ann likes tea\n- Ben likes tea\n")
    assert say("Forget that tea.") == "Which one do you mean? Ann likes tea; Ben likes tea."
    assert say("Forget about Ann and tea.") == "Forgotten in MEMORY.md: Ann likes tea."
    assert memory(notes) == "- Ben likes tea\n"


@pytest.mark.parametrize("correction", ["No, it is Friday.", "no, the deploy day is Friday"])
def test_the_demo_model_corrects_what_it_has_just_told(
    say: Say, notes: Workspace, correction: str
) -> None:
    say("Remember that the deploy day is Thursday.", conversation="c1")
    say("Remember that the office is in Graz.", conversation="c2")
    say("When is the deploy day?", conversation="c1")
    told = say(correction, conversation="c1")
    assert told == "Corrected in MEMORY.md: the deploy day is Friday."
    assert "- the deploy day is Friday\n" in memory(notes)
    assert "Thursday" not in memory(notes)
    assert say("No, it is Monday.", conversation="c1").endswith("the deploy day is Monday.")
    assert say("No, it is Sunday.", conversation="c3").startswith(
        "I do not know that: it is Sunday"
    )
    assert (
        say("And the deploy day?", conversation="c3") == "From my memory: the deploy day is Monday."
    )


def test_the_demo_model_lists_what_it_knows(say: Say, notes: Workspace) -> None:
    assert say("What do you know?").startswith("My memory is empty so far.")
    set_memory(notes, "".join(f"- fact {number}\n" for number in range(40)))
    told = say("What do you remember about me?").splitlines()
    assert told[:2] == ["I know:", "- fact 0"]
    assert (len(told), told[-1]) == (32, "- … and 10 more")


def test_the_demo_model_forgets_and_corrects_with_the_tools_of_any_model(
    harness: Harness, notes: Workspace
) -> None:
    set_memory(notes, "- tea is green\n")
    ran: list[str] = []

    def emit(progress: object) -> None:
        if isinstance(progress, ToolStarted):
            ran.append(progress.call.name)

    harness.run("No, tea is black.", emit=emit)
    harness.run("Forget that tea is black.", emit=emit)
    assert ran == ["read", "edit"] * 2
    assert memory(notes) == ""
    assert notes.log(limit=1)[0].author == "assistant"
