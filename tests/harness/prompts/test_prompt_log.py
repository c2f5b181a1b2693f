from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Harness
from harness.context.receipt import Receipt, digest
from harness.context.snapshot import ShownState
from harness.conversations.conversation import Conversation
from harness.messages.message import Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.models.scripted import ScriptedModel, ScriptedReply
from harness.prompts.prompt_log import ReceiptDraft
from harness.prompts.turn_log import TurnLog
from harness.transcripts.transcript import TranscriptWindow
from tests.harness.prompts.stored_request import as_asked
from workspaces.clock import ManualClock
from workspaces.errors import LeaseLost
from workspaces.revision import Author
from workspaces.storage.records import VALUE_BYTES_MAX
from workspaces.workspace.workspace import Workspace

PERSON = Author("person", "usr_1", "api")
LONG = "# Memory\n\n" + "".join(f"- fact {number} of many\n" for number in range(100))


class Talk:
    """A harness whose clock a test moves, one conversation in it, and the model's script."""

    def __init__(self, home: Path) -> None:
        self.clock = ManualClock()
        self.model = ScriptedModel()
        self.harness = Harness.open(home, model=self.model, clock=self.clock)
        self.notes: Workspace = self.harness.workspaces.get("notes")
        self.remember(LONG)

    def remember(self, text: str, path: str = "MEMORY.md") -> None:
        self.notes.write(path, text, by=PERSON)

    def say(self, *lines: ScriptedReply, said: str = "hello") -> list[ModelRequest]:
        """The requests of one turn."""
        self.clock.advance(10)
        before = len(self.model.requests)
        self.model.script(*lines or ("ok",))
        self.harness.run(said, conversation="c1")
        return self.model.requests[before:]

    @property
    def conversation(self) -> Conversation:
        return self.harness.conversation("c1")

    @property
    def receipts(self) -> list[Receipt]:
        return self.harness.conversations.prompt_log(self.conversation).receipts()

    @property
    def held(self) -> ShownState:
        held = self.harness.conversations.prompt_log(self.conversation).held()
        assert held is not None
        return held

    @property
    def reason(self) -> str:
        return self.held.snapshot.reason


@pytest.fixture
def talk(home: Path) -> Iterator[Talk]:
    opened = Talk(home)
    yield opened
    opened.harness.close()


def texts(request: ModelRequest) -> list[str]:
    return [part.text for m in request.messages for part in m.parts if isinstance(part, Text)]


def read(number: int) -> list[ToolCall]:
    return [ToolCall(f"t{number}", "read", {"path": "MEMORY.md"})]


def test_a_session_repeats_the_same_snapshot_byte_for_byte(talk: Talk) -> None:
    requests = [*talk.say(read(1), read(2), "ok"), *talk.say(), *talk.say(read(3), "ok")]
    assert len({request.system for request in requests}) == 1
    assert talk.held.snapshot.number == 1
    assert len(talk.receipts) == len(requests) == 6


def test_a_memory_change_by_the_agent_is_a_delta_at_its_next_step_and_is_repeated_later(
    talk: Talk,
) -> None:
    edit = ToolCall("t2", "edit", {"path": "MEMORY.md", "old": "fact 50", "new": "fact fifty"})
    first, second, third = talk.say(read(1), [edit], "done")
    assert not any("memory-change" in text for text in texts(first) + texts(second))
    told = texts(third)[-1]
    assert told == (
        '<memory-change workspace="notes">\n'
        "  - fact 49 of many\n- - fact 50 of many\n+ - fact fifty of many\n</memory-change>"
    )
    (later,) = talk.say()
    assert later.system == first.system
    assert texts(later).count(told) == 1


def test_a_memory_change_by_another_author_is_a_delta_beside_the_next_message(talk: Talk) -> None:
    talk.say()
    talk.remember(LONG + "- and tea\n")
    (request,) = talk.say(said="what do I like?")
    said, told = request.messages[-1].parts
    assert said == Text("what do I like?")
    assert isinstance(told, Text)
    assert "+ - and tea" in told.text


def test_a_change_to_a_file_outside_the_prompt_is_no_delta(talk: Talk) -> None:
    talk.say()
    talk.remember("- later\n", path="TASKS.md")
    (request,) = talk.say()
    assert texts(request)[-1] == "hello"
    assert talk.receipts[-1].newest["memory/notes"] == talk.receipts[0].newest["memory/notes"]


def patched(config: object) -> Callable[[Talk], object]:
    return lambda talk: talk.harness.agents.patch("assistant", {"config": config})


def workspace_patched(patch: object) -> Callable[[Talk], object]:
    return lambda talk: talk.harness.workspaces.patch("notes", patch)  # type: ignore[arg-type]


def mount_another(talk: Talk) -> None:
    other = talk.harness.workspaces.create("other")
    agent = talk.harness.agents.get("assistant")
    mounts = [one.as_json() for one in agent.config.workspaces]
    mounts.append({"name": "other", "workspaceId": other.record.id})
    talk.harness.agents.patch("assistant", {"config": {"workspaces": mounts}})


def reset(talk: Talk) -> None:
    talk.harness.conversations.reset(talk.conversation)


def erase(talk: Talk) -> None:
    """What an erasure leaves: a history that does not know what was shown."""
    shown = talk.held.revisions()["memory/notes"]
    history = talk.notes.history
    branch = next(talk.harness.settings.home.root.rglob(f"{talk.notes.namespace}.git"))
    parent = history.commit(shown).parents[0]
    (branch / "refs" / "heads" / "main").write_text(f"{parent}\n")
    talk.notes.edits.commit()


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (patched({"system": "Be kind."}), "configuration"),
        (patched({"session": {"memory": {"maxLength": 500}}}), "configuration"),
        (patched({"limits": {"steps": 3}}), None),
        (workspace_patched({"description": "All about tea."}), "configuration"),
        (workspace_patched({"config": {"harness": {"enabled": False}}}), "configuration"),
        (mount_another, "mounts"),
        (reset, "reset"),
        (erase, "erased"),
        (lambda talk: talk.clock.advance(3_600), "expired"),
        (lambda talk: talk.clock.advance(3_580), None),
        (lambda talk: talk.remember("# Anew\n"), "deltas"),
    ],
)
def test_a_new_snapshot_is_taken_only_when_required_and_records_its_reason(
    talk: Talk, happened: Callable[[Talk], object], reason: str | None
) -> None:
    talk.say()
    happened(talk)
    talk.say()
    assert talk.held.snapshot.number == (1 if reason is None else 2)
    assert talk.reason == (reason or "first")
    talk.say()
    assert talk.reason == (reason or "first")


def test_a_mount_that_becomes_read_only_causes_a_new_snapshot(talk: Talk) -> None:
    talk.say()
    talk.harness.workspaces.patch("notes", {"config": {"harness": {"enabled": False}}})
    talk.say()
    talk.harness.rooms.sandboxes.patch("default", {"config": {"mode": "ro"}})
    talk.say()
    assert talk.reason == "mounts"
    assert talk.held.snapshot.number == 3


def test_a_new_date_is_a_delta_beside_the_newest_message(talk: Talk) -> None:
    talk.clock.advance(24 * 3_600 - 1_000)
    (first,) = talk.say()
    assert "Today is Thursday, 2026-01-01 (UTC)." in first.system[-1]
    talk.clock.advance(1_000)
    (second,) = talk.say()
    assert second.system == first.system
    assert texts(second)[-1] == "Today is Friday, 2026-01-02 (UTC)."


def test_every_step_stores_a_receipt_that_reproduces_its_request(talk: Talk) -> None:
    requests = talk.say(read(1), "ok")
    talk.remember(LONG + "- and tea\n")
    requests += talk.say(read(2), "ok")
    talk.clock.advance(4_000)
    requests += talk.say()
    showing = talk.harness.conversations.prompt_log(talk.conversation)
    transcript = talk.harness.conversations.transcript(talk.conversation)
    receipts = showing.receipts()
    assert [receipt.number for receipt in receipts] == [1, 2, 3, 4, 5]
    for receipt, request in zip(receipts, requests, strict=True):
        held = showing.as_shown(receipt)
        entries = tuple(transcript.entries(receipt.first, receipt.last))
        again = as_asked(receipt, held, TranscriptWindow(transcript.session(), entries).said)
        assert again == request
        assert digest(again) == receipt.digest
    tips = [receipt.newest["memory/notes"].revision for receipt in receipts]
    assert tips[0] == tips[1] != tips[2] == tips[3] == tips[4] == talk.notes.history.tip()


def test_a_receipt_is_stored_before_the_model_call(talk: Talk) -> None:
    seen: list[int] = []

    def look(request: ModelRequest) -> str:
        seen.append(len(talk.receipts))
        return "ok"

    talk.say(look)
    talk.say(look)
    assert seen == [1, 2]


def test_a_failed_turn_has_a_receipt_and_the_next_turn_repeats_its_snapshot(talk: Talk) -> None:
    talk.say(ModelFailure("unreachable", "no network", "check it"))
    talk.remember(LONG + "- and tea\n")
    (request,) = talk.say(said="again")
    assert [receipt.number for receipt in talk.receipts] == [1, 2]
    assert talk.held.snapshot.number == 1
    (message,) = request.messages
    assert [part.text for part in message.parts[:2]] == ["hello", "again"]  # type: ignore[union-attr]


def test_another_process_repeats_the_same_snapshot_and_deltas(talk: Talk, home: Path) -> None:
    talk.say()
    talk.remember(LONG + "- and tea\n")
    (told,) = talk.say()
    model = ScriptedModel("ok")
    with Harness.open(home, model=model, clock=talk.clock) as other:
        other.run("hello", conversation="c1")
    (request,) = model.requests
    assert request.system == told.system
    assert request.messages[: len(told.messages)] == told.messages


def test_a_snapshot_too_large_for_a_record_is_stored_and_deleted_with_its_conversation(
    talk: Talk,
) -> None:
    talk.remember("".join(f"- {'ツ' * 30} {number}\n" for number in range(1_500)))
    (first,) = talk.say()
    assert len(first.system[1].encode()) > VALUE_BYTES_MAX
    assert talk.held.snapshot.parts[0].text in first.system[0]
    entries = talk.harness.settings.home.entries / talk.conversation.id
    (large,) = entries.iterdir()
    assert large.name.startswith("snapshot-000000000001-")
    conversation = talk.conversation
    talk.harness.conversations.delete(conversation)
    assert talk.harness.rooms.records.scan(f"shown:{conversation.id}") == []
    assert not entries.exists()


def test_a_stale_lease_holder_cannot_store_a_receipt(talk: Talk) -> None:
    talk.say()
    conversation = talk.conversation
    showing = talk.harness.conversations.prompt_log(conversation)
    transcript = talk.harness.conversations.transcript(conversation)
    question = talk.harness.preview("assistant", conversation="c1", message="more")
    leases = talk.harness.rooms.dispatcher.leases
    stale = leases.acquire(conversation.lease_key)
    leases.release(stale)
    leases.release(leases.acquire(conversation.lease_key))
    with pytest.raises(LeaseLost):
        TurnLog(transcript, showing, stale).append(
            receipt=ReceiptDraft(question, talk.receipts[0].turn_id, "m")
        )
    assert len(talk.receipts) == 1


def test_unreadable_memory_is_named_in_the_prompt_the_receipt_and_the_outcome(talk: Talk) -> None:
    history = next(talk.harness.settings.home.root.rglob(f"{talk.notes.namespace}.git"))
    away = history.with_name("away")
    talk.say()
    history.rename(away)
    history.write_text("in the way")
    talk.model.script("so be it", "so be it")
    talk.clock.advance(10)
    outcome = talk.harness.run("hello", conversation="c1")
    assert (outcome.status, outcome.unavailable) == ("done", ("memory/notes",))
    assert outcome.as_json()["unavailable"] == ["memory/notes"]
    assert "(unavailable right now: " in texts(talk.model.requests[-1])[-1]
    assert talk.receipts[-1].newest["memory/notes"].unavailable is not None
    assert talk.harness.run("again", conversation="c1").unavailable == ("memory/notes",)
    history.unlink()
    away.rename(history)
    assert "- fact 1 " in talk.say()[0].system[1]
    assert talk.reason == "available_again"


def test_a_preview_equals_the_request_of_the_next_turn(talk: Talk) -> None:
    def expected(said: str) -> ModelRequest:
        return talk.harness.preview("assistant", conversation="c1", message=said).request

    first = expected("hello")
    assert talk.say() == [first]
    talk.remember(LONG + "- and tea\n")
    receipts = len(talk.receipts)
    second = expected("more")
    assert expected("more") == second
    assert len(talk.receipts) == receipts
    assert "+ - and tea" in texts(second)[-1]
    assert talk.say(said="more") == [second]


def test_a_preview_without_a_message_holds_the_system_prompt_alone(talk: Talk) -> None:
    question = talk.harness.preview()
    assert question.request.messages == ()
    parts = question.as_json()["parts"]
    assert [part["source"] for part in parts] == ["guidance", "memory", "memory/notes", "date"]
    assert parts[2]["revision"] == talk.notes.history.tip()
    assert all(part["characters"] == len(part["text"]) for part in parts)


def test_an_explanation_names_the_revision_that_entered_with_each_turn(talk: Talk) -> None:
    talk.say()
    talk.remember(LONG + "- and tea\n")
    talk.remember("- a task\n", path="TASKS.md")
    talk.remember("# Tea\n", path="notes/tea.md")
    talk.say(read(1), "ok")
    talk.remember(LONG)
    talk.say()
    explained = talk.harness.explain(talk.conversation)
    first, second, third = explained.turns()
    assert len(second.receipts) == 2
    assert [one.source for one in first.entered] == ["memory/notes"]
    (entrance,) = second.entered
    assert entrance.before == first.entered[0].revision
    assert [one.paths for one in explained.revisions(entrance)] == [
        ("notes/tea.md",),
        ("MEMORY.md",),
    ]
    assert explained.turns(second.id[:12]) == [second]
    came, went = explained.sightings("and tea")
    assert (came.receipt, came.is_shown) == (second.receipts[0], True)
    assert (went.receipt, went.is_shown) == (third.receipts[0], False)
    assert "+ - and tea" in explained.text(second.receipts[0])


def test_an_explanation_orders_revisions_by_ancestry_despite_a_clock_set_back(talk: Talk) -> None:
    talk.clock.jump(400 * 86_400)
    talk.remember(LONG + "- from afar\n")
    talk.say()
    talk.clock.jump(-400 * 86_400)
    talk.remember(LONG + "- of today\n")
    talk.say()
    explained = talk.harness.explain(talk.conversation)
    (entrance,) = explained.turns()[1].entered
    (revision,) = explained.revisions(entrance)
    assert revision.id == talk.notes.history.tip()
