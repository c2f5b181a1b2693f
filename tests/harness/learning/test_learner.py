"""One pass: what is asked, what is stored where, and what becomes of it when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import Harness
from harness.learning.new_text import lines_of
from harness.messages.message import Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.models.scripted import ScriptedModel
from tests.harness.learning.saying import (
    LONG,
    agents_rows,
    block,
    configure,
    fact,
    rows,
    said,
    saves,
)
from workspaces.errors import WorkspaceBusy

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


def test_a_pass_stores_facts_with_their_source_and_their_conversation(scripted: Scripted) -> None:
    harness, model = scripted("noted", saves(fact()))
    conversation = said(harness)
    report = harness.learn(conversation)
    assert (report.status, report.model) == ("stored", "scripted")
    (stored,) = harness.facts.of_workspace("notes").list()
    assert (stored.key, stored.source) == ("auto:orders-database", "auto")
    revision = harness.facts.of_workspace("notes").history(stored.key)[0]
    assert revision.trailers["Source"] == "extract"
    assert revision.trailers["Conversation"] == f"{conversation.id} c1"
    assert revision.trailers["Model"] == "scripted"
    assert len(model.requests) == 2


def test_the_request_holds_only_what_was_said_and_must_be_answered_by_one_call(
    scripted: Scripted,
) -> None:
    harness, model = scripted("noted </part> now", saves())
    harness.learn(said(harness))
    request = model.requests[-1]
    assert request.forced_tool == request.tools[0].name == "save_memory"
    assert set(request.tools[0].schema["properties"]) == {"facts"}
    (shown,) = request.messages
    assert f"user: {LONG}\nassistant: noted &lt;/part> now" in shown.text
    assert shown.text.count("</part>") == 1


@pytest.mark.parametrize(("length", "requests"), [(199, 0), (200, 1)])
def test_a_text_of_200_characters_is_read_and_a_shorter_one_is_not(
    scripted: Scripted, length: int, requests: int
) -> None:
    harness, model = scripted("ok", saves())
    text = "x" * (length - len(lines_of([("user", "_"), ("assistant", "ok")])) + 1)
    report = harness.learn(said(harness, text))
    assert (report.characters, len(model.requests) - 1) == (length, requests)


def test_what_was_read_is_not_read_again_and_what_was_too_short_is(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(), "b", "c", saves())
    conversation = said(harness)
    harness.learn(conversation)
    said(harness, "short " * 20)
    assert harness.learn(conversation).status == "too_short"
    said(harness, "and more " * 20)
    assert harness.learn(conversation).status == "nothing_kept"
    read = model.requests[-1].messages[0].text
    assert "short" in read and "and more" in read and LONG not in read


def test_the_values_that_changed_last_are_shown_as_known(scripted: Scripted) -> None:
    harness, model = scripted("a", saves())
    facts = harness.facts.of_workspace("notes")
    facts.put("first", "value 0")
    for number in range(1, 21):
        facts.put(f"k{number}", f"value {number} </memory>")
    facts.put("first", "value 0, changed")
    harness.learn(said(harness))
    shown = model.requests[-1].messages[0].text
    assert shown.count("- value") == 20
    assert "value 0, changed" in shown and "value 2 " in shown and "value 1 " not in shown
    assert shown.count("</memory>") == 1


def test_agent_facts_are_stored_only_if_the_agents_memory_is_on(scripted: Scripted) -> None:
    mine = fact("tone", "Answers begin with a table.", scope="agent")
    harness, _ = scripted("a", saves(mine), "b", saves(mine))
    conversation = said(harness)
    assert harness.learn(conversation).dropped == {"no_place": 1}
    configure(harness, memoryEnabled=True)
    said(harness)
    harness.learn(conversation)
    assert agents_rows(harness) == {"auto:tone": "Answers begin with a table."}
    assert rows(harness) == {}


def test_without_a_place_no_model_is_asked(scripted: Scripted) -> None:
    harness, model = scripted("a", "b", "c", saves())
    conversation = said(harness)
    configure(harness, extract={"enabled": False})
    assert harness.learn(conversation).status == "no_place"
    configure(harness, extract={"enabled": True}, workspaces=[])
    assert harness.learn(conversation).status == "no_place"
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    configure(harness, workspaces=harness.agents.mounts(["notes"]))
    assert harness.learn(conversation).status == "no_place"
    assert len(model.requests) == 1


def test_facts_of_a_workspace_go_to_the_first_writable_mount(scripted: Scripted) -> None:
    harness, _ = scripted("a", saves(fact()))
    harness.workspaces.open_or_create("team")
    mounts: list[dict[str, Any]] = [*harness.agents.mounts(["notes", "team"])]
    configure(harness, workspaces=[{**mounts[0], "sandbox": None}, mounts[1]])
    harness.learn(said(harness))
    assert (rows(harness), list(rows(harness, "team"))) == ({}, ["auto:orders-database"])


def test_a_persons_fact_stays_as_it_is(scripted: Scripted) -> None:
    harness, _ = scripted("a", saves(fact()))
    harness.facts.of_workspace("notes").put("auto:orders-database", "It is SQLite.")
    assert harness.learn(said(harness)).dropped == {"not_ours": 1}
    assert rows(harness) == {"auto:orders-database": "It is SQLite."}


def test_a_trial_asks_and_stores_nothing(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(fact()), saves(fact()))
    conversation = said(harness)
    report = harness.learn(conversation, dry_run=True)
    assert (report.status, [one.key for one in report.facts]) == (
        "proposed",
        ["auto:orders-database"],
    )
    assert rows(harness) == {}
    assert harness.learn(conversation).status == "stored"
    assert len(model.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        "I would rather talk.",
        [Text("here"), ToolCall("x", "another", {})],
        ModelFailure("declined", "no", ""),
    ],
)
def test_a_reply_of_another_form_is_paid_and_not_asked_for_again(
    scripted: Scripted, reply: Any
) -> None:
    harness, model = scripted("a", reply)
    conversation = said(harness)
    assert harness.learn(conversation).status == "failed"
    assert harness.learn(conversation).status == "too_short"
    assert len(model.requests) == 2


def test_a_provider_that_does_not_answer_is_asked_later(scripted: Scripted) -> None:
    away = ModelFailure("overloaded", "too busy", "wait")
    harness, _ = scripted("a", away, saves(fact()))
    conversation = said(harness)
    assert harness.learn(conversation).status == "later"
    assert harness.learn(conversation).status == "stored"


def test_the_limit_of_the_day_keeps_the_model_from_being_asked(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(fact()))
    account = harness.rooms.principal.account_id
    limit: dict[str, Any] = {"config": {"limits": {"learningDollarsPerDay": 0}}}
    harness.house.accounts.patch(account, limit)
    conversation = said(harness)
    report = harness.learn(conversation)
    assert report.status == "over_limit" and "0.00 dollars" in (report.reason or "")
    assert len(model.requests) == 1
    limit["config"]["limits"]["learningDollarsPerDay"] = 0.5
    harness.house.accounts.patch(account, limit)
    assert harness.learn(conversation).status == "stored"


def test_an_account_without_money_is_not_asked_for_and_not_a_fault(scripted: Scripted) -> None:
    spent = ModelFailure("budget", "the day's dollars are spent", "wait")
    harness, model = scripted("a", spent, "b", saves(fact()))
    conversation = said(harness)
    assert harness.learn(conversation).status == "over_limit"
    assert harness.rooms.learning.learner.records.today() == {"over_limit": 1}
    said(harness, "more")
    assert harness.learn(conversation).status == "stored"
    assert LONG in model.requests[-1].messages[0].text


def test_usage_is_recorded_under_a_conversation_of_its_own(scripted: Scripted) -> None:
    harness, _ = scripted("a", saves())
    conversation = said(harness)
    session = harness.conversations.transcript(conversation).session()
    harness.learn(conversation)
    names = [line.name for line in harness.usage(by="conversation").lines]
    assert f"memory-extract:{session.id}" in names
    assert {line.name for line in harness.usage(by="purpose").lines} == {"turn", "extraction"}


def test_another_users_conversation_reaches_that_user_alone(scripted: Scripted) -> None:
    told = fact("their-city", "They live in Graz and work at night.")
    mine = fact("tone", "Wants short answers.", scope="agent")
    harness, model = scripted("a", saves(told, mine), "mine", "theirs")
    configure(harness, memoryEnabled=True, private="off")
    eve = harness.rooms.users.add({"name": "Eve"})
    theirs = Harness(harness.house, harness.rooms.principal.as_user(eve, may_configure=False))
    theirs.learn(said(theirs))
    assert agents_rows(theirs) == {"auto:their-city": told["value"], "auto:tone": mine["value"]}
    assert (rows(harness), agents_rows(harness)) == ({}, {})
    harness.run("hello", conversation="mine")
    theirs.run("hello", conversation="theirs")
    shown = ["Graz" in "".join(request.system) for request in model.requests[-2:]]
    assert shown == [False, True]


def test_another_users_words_are_shared_where_the_agent_says_so(scripted: Scripted) -> None:
    mine = fact("tone", "Wants short answers.", scope="agent")
    harness, _ = scripted("a", saves(fact(), mine))
    configure(harness, memoryEnabled=True, extract={"shared": True})
    eve = harness.rooms.users.add({"name": "Eve"})
    theirs = Harness(harness.house, harness.rooms.principal.as_user(eve, may_configure=False))
    theirs.learn(said(theirs))
    assert list(rows(harness)) == ["auto:orders-database"]
    assert agents_rows(harness) == {"auto:tone": "Wants short answers."}


def test_a_fork_is_read_from_where_it_began(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(), "b", saves())
    conversation = said(harness)
    harness.learn(conversation)
    fork = harness.fork_conversation(conversation, "c2")
    assert harness.learn(fork).status == "too_short"
    said(harness, "another thing " * 20, key="c2")
    harness.learn(fork)
    assert LONG not in model.requests[-1].messages[0].text


def test_a_workspace_in_use_puts_a_pass_off_without_a_further_request(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, model = scripted("a", saves(fact()))
    conversation = said(harness)
    workspace = harness.workspaces.get("notes")
    with monkeypatch.context() as patched:

        def busy(*_: object, **__: object) -> None:
            raise WorkspaceBusy("notes", holder="a command")

        patched.setattr(type(workspace), "change", busy)
        with pytest.raises(WorkspaceBusy):
            harness.learn(conversation)
    assert harness.learn(conversation).status == "stored"
    assert len(model.requests) == 2


# blocks


def core(harness: Harness) -> str | None:
    found = harness.blocks.find(harness.blocks.place("core"))
    return found and found.content


def test_blocks_and_facts_are_one_request(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(fact(), blocks=(block("- runs the night shift"),)))
    configure(harness, sleep={"enabled": True})
    conversation = said(harness)
    report = harness.learn(conversation)
    assert (report.status, core(harness)) == ("stored", "- runs the night shift")
    assert list(rows(harness)) == ["auto:orders-database"]
    revision = harness.blocks.workspace(harness.blocks.place("core")).log()[0]
    assert revision.trailers["Source"] == "sleep"
    assert set(model.requests[-1].tools[0].schema["properties"]) == {"facts", "blocks"}
    assert {line.name for line in harness.usage(by="purpose").lines} == {"turn", "sleep"}


def test_the_model_is_shown_the_blocks_as_they_are(scripted: Scripted) -> None:
    harness, model = scripted("a", saves(blocks=()))
    harness.blocks.edit(
        harness.blocks.place("archival", "agent", "assistant"),
        lambda _: "- the lift was repaired </memory>",
        by=harness.rooms.principal.author("api"),
    )
    harness.learn(said(harness), blocks=True)
    shown = model.requests[-1].messages[0].text
    assert '<memory block="archival" scope="agent">\n- the lift was repaired &lt;/memory>' in shown
    assert shown.count("<memory block=") == 4


class Person:
    """Writes into the block file with an editor while the model answers."""

    def __init__(self, harness: Harness, times: int) -> None:
        self._file = harness.blocks.workspace(harness.blocks.place("core")).root / "blocks/core.md"
        self._times = times
        self.written: list[str] = []

    def __call__(self, request: ModelRequest) -> Any:
        if len(self.written) < self._times:
            self.written.append(f"- by hand {len(self.written)}")
            self._file.write_text("\n".join(self.written) + "\n")
        proposed = "- from the model" if "facts" in request.tools[0].schema["properties"] else None
        return saves(fact(), blocks=(block(proposed or f"- the model's {len(self.written)}"),))


@pytest.mark.parametrize("times", [1, 2])
def test_a_block_that_changed_meanwhile_is_shown_again_and_then_written(
    scripted: Scripted, times: int
) -> None:
    harness, model = scripted("a")
    conversation = said(harness)
    by_hand(harness, times, model)
    report = harness.learn(conversation, blocks=True)
    assert (report.status, len(model.requests)) == ("stored", 1 + times + 1)
    assert f"- by hand {times - 1}" in model.requests[-1].messages[0].text
    assert set(model.requests[-1].tools[0].schema["properties"]) == {"blocks"}
    assert core(harness) == f"- the model's {times}"
    assert len(rows(harness)) == 1


def by_hand(harness: Harness, times: int, model: ScriptedModel) -> Person:
    place, author = harness.blocks.place("core"), harness.rooms.principal.author("api")
    harness.blocks.edit(place, lambda _: "- at first", by=author)
    person = Person(harness, times)
    model.script(*[person] * 4)
    return person


def test_a_person_who_writes_each_time_wins_and_the_pass_says_that_it_gave_up(
    scripted: Scripted,
) -> None:
    harness, model = scripted("a")
    conversation = said(harness)
    person = by_hand(harness, 3, model)
    report = harness.learn(conversation, blocks=True)
    assert (report.status, len(model.requests)) == ("gave_up", 1 + 3)
    assert "stays as it is" in (report.reason or "")
    assert core(harness) == "\n".join(person.written)
    assert harness.learn(conversation, blocks=True).status == "too_short"
    assert harness.rooms.learning.learner.records.today()["gave_up"] == 1


def test_a_block_of_a_wrong_form_is_left_out(scripted: Scripted) -> None:
    wrong = (
        "text",
        block("- fine", kind="diary"),
        block(" \n"),
        block("x" * 4001),
        block("- the password is hunter2-x9f8a7b6"),
        block("- stays"),
    )
    harness, _ = scripted("a", saves(blocks=wrong))
    author = harness.rooms.principal.author("api")
    harness.blocks.edit(harness.blocks.place("core"), lambda _: "- stays", by=author)
    report = harness.learn(said(harness), blocks=True)
    assert report.dropped == {"invalid": 2, "empty": 1, "too_long": 1, "secret": 1, "known": 1}
    assert (report.status, core(harness)) == ("nothing_kept", "- stays")


def test_blocks_are_left_alone_where_private_memory_is_off(scripted: Scripted) -> None:
    harness, model = scripted("a", saves())
    configure(harness, private="off", sleep={"enabled": True})
    harness.learn(said(harness))
    assert set(model.requests[-1].tools[0].schema["properties"]) == {"facts"}


def test_the_demo_model_reads_conversations_too(harness: Harness) -> None:
    configure(harness, memoryEnabled=True)
    conversation = said(
        harness,
        "We use PostgreSQL 16 for the orders service. I prefer answers that begin with a table. "
        "Is the harbour open? The deploy scripts live in ops/deploy. "
        + "And so on, at length. "
        * 5,
    )
    harness.learn(conversation, blocks=True)
    assert list(rows(harness)) == ["auto:the-deploy-scripts-live", "auto:we-use-postgresql-16"]
    assert list(agents_rows(harness)) == ["auto:prefer-answers-that-begin"]
    assert core(harness) == "- I prefer answers that begin with a table"
