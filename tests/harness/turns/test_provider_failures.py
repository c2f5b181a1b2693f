"""Failures of the provider, the budget or the tool input: each is an outcome, the conversation continues."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from harness import Harness
from harness.messages.model_request import ModelFailure, Usage
from harness.messages.progress import Progress, TextArrived, Withdrawn
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.retrying import RetryingModel
from harness.runtime.settings import DEFAULT_MODEL
from harness.transcripts.outcome import Outcome
from tests.harness.messages_server import (
    KEY,
    Drop,
    MessagesServer,
    Refusal,
    breaks_off,
    says,
    text,
    tool_use,
)
from workspaces.errors import Exhausted
from workspaces.ids import ConversationId


@pytest.fixture
def harness(
    tmp_path: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> Generator[Harness]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    with Harness.open(tmp_path / "home") as harness:
        yield harness


def failure(outcome: Outcome) -> ModelFailure:
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.reason
    assert outcome.failure.remedy
    return outcome.failure


def said(harness: Harness, conversation_id: ConversationId) -> list[str]:
    conversation = harness.conversations.get(conversation_id)
    entries = harness.conversations.transcript(conversation).entries()
    return [entry.message.text for entry in entries if entry.message.text]


def test_an_unreachable_provider_is_retried_and_then_fails_the_turn(tmp_path: Path) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    nobody = AnthropicModel("claude-test", AnthropicClients(KEY, "http://127.0.0.1:1"))
    with Harness.open(tmp_path / "home", model=RetryingModel(nobody, pause=pause)) as harness:
        outcome = harness.run("Hello?", conversation="c")
        assert failure(outcome).kind == "unreachable"
        assert pauses
        assert said(harness, outcome.conversation_id) == ["Hello?"]


def test_a_wrong_provider_key_fails_the_turn_and_names_the_key_setting(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(Refusal(401, "authentication_error", "invalid x-api-key"), says(text("Yes.")))
    told = failure(harness.run("Hello?", conversation="c"))
    assert told.kind == "key"
    assert "ANTHROPIC_API_KEY" in told.remedy
    assert harness.run("And now?", conversation="c").reply == "Yes."


def test_an_empty_provider_balance_fails_the_turn_with_kind_budget(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        Refusal(400, "invalid_request_error", "Your credit balance is too low to go on.")
    )
    told = failure(harness.run("Hello?", conversation="c"))
    assert told.kind == "budget"
    assert "credit" in told.remedy


def test_an_exhausted_account_starts_no_turn_and_the_event_may_be_sent_again(
    harness: Harness, server: MessagesServer
) -> None:
    account = harness.rooms.principal.account_id
    harness.house.accounts.patch(account, {"config": {"limits": {"dollarsPerDay": 0.0001}}})
    server.answers(says(text("One.")), says(text("Two.")))
    assert harness.run("One?", conversation="c").reply == "One."
    with pytest.raises(Exhausted) as caught:
        harness.run("Two?", conversation="c", event_id="evt-2")
    assert caught.value.limit == "dollarsPerDay"
    harness.house.accounts.patch(account, {"config": {"limits": None}})
    assert harness.run("Two?", conversation="c", event_id="evt-2").reply == "Two."


def test_a_budget_exhausted_during_a_turn_fails_the_turn_and_keeps_its_changes(
    harness: Harness, server: MessagesServer
) -> None:
    account = harness.rooms.principal.account_id
    harness.house.accounts.patch(account, {"config": {"limits": {"dollarsPerDay": 0.0001}}})
    server.answers(says(tool_use("toolu_1", "write", '{"path": "a.md", "content": "kept"}')))
    outcome = harness.run("Write it.", conversation="c")
    told = failure(outcome)
    assert told.kind == "budget"
    assert "dollarsPerDay" in told.reason
    assert harness.workspaces.get("notes").read("a.md").text == "kept"
    assert len(outcome.changes) == 1
    harness.house.accounts.patch(account, {"config": {"limits": None}})
    server.answers(says(text("It is written.")))
    assert harness.run("And?", conversation="c").reply == "It is written."


def test_tool_input_that_is_not_json_returns_an_error_that_the_model_can_correct(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(text("Writing."), tool_use("toolu_1", "write", '{"path": "a.md", content: oops')),
        says(tool_use("toolu_2", "write", '{"path": "a.md", "content": "here"}')),
        says(text("Written.")),
    )
    assert harness.run("Write it.", conversation="c").reply == "Written."
    assert harness.workspaces.get("notes").read("a.md").text == "here"
    (result,) = server.requests[1]["messages"][-1]["content"]
    assert result["is_error"]
    assert "not a JSON object" in result["content"]


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("write", '{"path": 7, "content": ["x"]}'),
        ("write", '{"paht": "a.md", "content": "x"}'),
        ("write", "{}"),
        ("wrtie", '{"path": "a.md", "content": "x"}'),
        ("write", '{"path": "../../a.md", "content": "x"}'),
    ],
)
def test_invalid_tool_input_returns_an_error_result(
    harness: Harness, server: MessagesServer, name: str, stated: str
) -> None:
    server.answers(says(tool_use("toolu_1", name, stated)), says(text("Sorry.")))
    outcome = harness.run("Write it.")
    assert (outcome.reply, outcome.changes) == ("Sorry.", ())
    (result,) = server.requests[1]["messages"][-1]["content"]
    assert result["is_error"]
    assert result["tool_use_id"] == "toolu_1"


def test_a_message_of_ten_megabytes_fails_as_context_too_long_and_is_stored_whole(
    harness: Harness, server: MessagesServer
) -> None:
    long = "word " * 2_000_000
    outcome = harness.run(long, conversation="c")
    told = failure(outcome)
    assert told.kind == "context_too_long"
    assert server.refused[0].startswith("prompt is too long: 2")
    (kept,) = said(harness, outcome.conversation_id)
    assert kept == long
    server.answers(says(text("Yes.")))
    assert harness.run("Short.", conversation="another").reply == "Yes."


def test_a_broken_stream_is_retried_and_its_partial_text_withdrawn(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(breaks_off(text("Half an ans"), ending=[Drop()]), says(text("A whole one.")))
    told: list[Progress] = []
    outcome = harness.run("Tell me.", conversation="c", emit=told.append)
    assert outcome.reply == "A whole one."
    shown = ""
    for progress in told:
        if isinstance(progress, TextArrived):
            shown += progress.text
        elif isinstance(progress, Withdrawn):
            shown = ""
    assert shown == "A whole one."
    assert said(harness, outcome.conversation_id) == ["Tell me.", "A whole one."]


def test_usage_is_reported_by_conversation_model_and_agent(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(tool_use("toolu_1", "read", '{"path": "MEMORY.md"}')),
        says(text("Nothing.")),
        Refusal(404, "not_found_error", "model: nix"),
    )
    outcome = harness.run("What do you know?", conversation="c")
    harness.run("And now?", conversation="c")
    report = harness.usage(by="conversation")
    (line,) = report.lines
    assert line.name == outcome.conversation_id
    assert line.spent.asked == 2, "what was refused used up nothing"
    assert line.spent.usage == outcome.usage == Usage(22, 14, 400, 200, 80)
    nanodollars = 22 * 2_000 + 14 * 10_000 + 400 * 100 + 120 * 2_500 + 80 * 4_000
    assert line.spent.nanodollars == nanodollars
    assert [line.name for line in harness.usage(by="model").lines] == [DEFAULT_MODEL]
    assert [line.name for line in harness.usage(by="agent").lines] == [
        harness.agents.get("assistant").id
    ]
