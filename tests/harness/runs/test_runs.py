"""Runs on demand: their statuses, their order, their cancellation, and what they may wait for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.messages.message import Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.scripted import ScriptedModel
from harness.runs.run import Run
from harness.runs.runs import WAIT_LOOK_S, WAIT_MAX, WAITING_RUNS_MAX
from harness.sandboxes.none import NoSandbox
from tests.harness.messages_server import KEY, MessagesServer, says, text
from tests.harness.turns.test_dispatcher import Gate
from workspaces.clock import ManualClock
from workspaces.errors import AgentRunning, NotFound, Refused, TooMany

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

TEA = ToolCall("w1", "write", {"path": "tea.md", "content": "green"})
WAIT_S = 60.0


def ran(harness: Harness, prompt: str | None = "go", **how: Any) -> Run:
    return harness.finish_run(harness.runs.start("assistant", prompt, **how).id).run


def test_a_run_is_a_turn_with_a_record(scripted: Scripted) -> None:
    harness, model = scripted("all is well")
    queued = harness.runs.start("assistant", "look around")
    assert (queued.status, queued.source, queued.started_at) == ("queued", "on_demand", None)
    run = harness.finish_run(queued.id).run
    assert (run.status, run.reply, run.error) == ("succeeded", "all is well", None)
    assert run.usage is not None and run.usage.output == len("all is well")
    assert run.created_at <= (run.started_at or "") <= (run.finished_at or "")
    conversation = harness.conversations.get(str(run.conversation_id))
    entries = list(harness.conversations.transcript(conversation).entries())
    assert [entry.message.text for entry in entries] == ["look around", "all is well"]
    assert {entry.turn_id for entry in entries} == {run.turn_id}
    assert [m.text for m in model.requests[0].messages] == ["look around"]
    assert harness.jobs.list() == []


def test_a_run_without_a_prompt_uses_the_agents_default_prompt(scripted: Scripted) -> None:
    harness, model = scripted("one", "two")
    with pytest.raises(Refused, match="no default prompt"):
        harness.runs.start("assistant")
    harness.agents.patch("assistant", {"config": {"defaultPrompt": "do the usual"}})
    assert ran(harness, None).prompt == "do the usual"
    assert ran(harness, "now this").prompt == "now this"
    assert [request.messages[-1].text for request in model.requests] == ["do the usual", "now this"]


@pytest.mark.parametrize("prompt", ["", " \n", "x" * 50_001])
def test_a_blank_or_overlong_prompt_is_refused(harness: Harness, prompt: str) -> None:
    with pytest.raises(Refused, match="prompt"):
        harness.runs.start("assistant", prompt)
    assert harness.runs.list("assistant") == []


def test_a_run_fails_with_the_code_of_its_turn(scripted: Scripted) -> None:
    harness, _ = scripted(ModelFailure("overloaded", "too busy", "wait"), [TEA], "said")
    run = ran(harness)
    assert run.status == "failed"
    assert run.error is not None and (run.error.code, run.error.message) == (
        "overloaded",
        "too busy",
    )
    assert run.session_after is None and run.reply is None
    harness.agents.patch("assistant", {"config": {"limits": {"steps": 1}}})
    limited = ran(harness)
    assert (limited.status, limited.error and limited.error.code) == ("failed", "out_of_steps")


def test_a_run_that_reaches_its_time_limit_has_timed_out(home: Path) -> None:
    gate = Gate()
    with Harness.open(home, model=gate, sandbox=NoSandbox("not here")) as harness:
        harness.agents.patch("assistant", {"config": {"limits": {"seconds": 0.05}}})
        run = ran(harness)
    assert (run.status, run.error) == ("timed_out", None)


def test_the_runs_of_an_agent_take_place_one_after_the_other(scripted: Scripted) -> None:
    harness, _ = scripted("one", "two")
    first = harness.runs.start("assistant", "first")
    with pytest.raises(AgentRunning, match=first.id):
        harness.runs.start("assistant", "second")
    second = harness.runs.start("assistant", "second", on_busy="queue")
    harness.agents.create("other")
    harness.runs.start("other", "another agent is not in the way")
    assert harness.finish_run(second.id).run.reply == "two"
    assert harness.runs.get(first.id).run.reply == "one"
    assert [view.run.id for view in harness.runs.list("assistant")] == [second.id, first.id]


def test_at_most_a_hundred_runs_wait_for_an_agent(harness: Harness) -> None:
    for number in range(1 + WAITING_RUNS_MAX):
        harness.runs.start("assistant", f"{number}", on_busy="queue")
    with pytest.raises(TooMany):
        harness.runs.start("assistant", "one too many", on_busy="queue")


def test_a_queued_run_is_cancelled_and_never_begins(scripted: Scripted) -> None:
    harness, model = scripted("one", "three")
    ids = [harness.runs.start("assistant", text, on_busy="queue").id for text in ("1", "2", "3")]
    assert harness.cancel_run(ids[1])
    assert not harness.cancel_run(ids[1])
    harness.finish_run(ids[2])
    statuses = [harness.runs.get(one).run.status for one in ids]
    assert statuses == ["succeeded", "cancelled", "succeeded"]
    assert [request.messages[-1].text for request in model.requests] == ["1", "3"]


def test_a_running_run_is_cancelled_wherever_it_runs(home: Path) -> None:
    gate = Gate()
    with (
        Harness.open(home, model=gate, sandbox=NoSandbox("not here")) as here,
        Harness.open(home, model=gate, sandbox=NoSandbox("not here")) as elsewhere,
    ):
        run = here.runs.start("assistant", "go")
        ended: list[Run] = []
        thread = threading.Thread(target=lambda: ended.append(here.finish_run(run.id).run))
        thread.start()
        while elsewhere.runs.get(run.id).run.turn_id is None:
            assert thread.is_alive()
            thread.join(0.01)
        assert elsewhere.cancel_run(run.id)
        thread.join(WAIT_S)
        assert [one.status for one in ended] == ["cancelled"]
        assert elsewhere.runs.records.active(run.agent_id).runs == ()
        assert not elsewhere.cancel_run(run.id)


def test_a_run_waits_for_an_approval_and_succeeds_after_it(scripted: Scripted) -> None:
    harness, _ = scripted([TEA], "written")
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    view = harness.finish_run(harness.runs.start("assistant", "go").id)
    assert view.run.status == "running"
    assert [call.call.name for call in view.waiting] == ["write"]
    with pytest.raises(AgentRunning):
        harness.runs.start("assistant", "next")
    harness.approve(harness.conversation(str(view.run.conversation_id)))
    again = harness.runs.get(view.run.id)
    assert (again.run.status, again.run.reply, again.waiting) == ("succeeded", "written", ())


def test_a_waiting_run_is_cancelled(scripted: Scripted) -> None:
    harness, _ = scripted([TEA])
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    view = harness.finish_run(harness.runs.start("assistant", "go").id)
    assert harness.cancel_run(view.run.id)
    assert harness.runs.get(view.run.id).run.status == "cancelled"


def test_a_run_that_waited_for_a_day_has_timed_out(home: Path) -> None:
    clock, model = ManualClock(), ScriptedModel([TEA])
    sandbox = NoSandbox("not here")
    with Harness.open(home, model=model, clock=clock, sandbox=sandbox) as harness:
        harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
        run = harness.runs.start("assistant", "go", is_attended=False)
        harness.run_jobs()
        assert [call.call.id for call in harness.runs.get(run.id).waiting] == ["w1"]
        clock.advance(WAIT_MAX.total_seconds())
        harness.run_jobs()
        assert harness.runs.get(run.id).run.status == "running"
        clock.advance(WAIT_LOOK_S)
        harness.run_jobs()
        ended = harness.runs.get(run.id).run
        assert (ended.status, ended.error) == ("timed_out", None)
        assert harness.runs.records.active(run.agent_id).runs == ()


def test_a_run_whose_turn_was_refused_before_it_began_fails_with_that_code(
    scripted: Scripted,
) -> None:
    harness, _ = scripted("never")
    harness.agents.patch("assistant", {"config": {"limits": {"dollars": 1}}})
    run = ran(harness)  # the model of the script has no price
    assert (run.status, run.error and run.error.code) == ("failed", "invalid")
    assert run.turn_id is None


def test_a_run_starts_fresh_and_the_models_server_receives_no_word_of_chat(
    tmp_path: Path, server: MessagesServer
) -> None:
    server.answers(*(says(text(line)) for line in ("hello", "hi again", "done", "done too")))
    model = AnthropicModel("claude-test", AnthropicClients(KEY, server.url))
    with Harness.open(tmp_path / "home", model=model, sandbox=NoSandbox("not here")) as harness:
        harness.run("the chat says zebra", conversation="c1")
        harness.run("and giraffe", is_shared=True)
        ran(harness, "a first run about an okapi")
        ran(harness, "a second run")
    last = server.requests[-1]
    assert [message["role"] for message in last["messages"]] == ["user"]
    assert "a second run" in json.dumps(last["messages"])
    assert not any(word in json.dumps(last) for word in ("zebra", "giraffe", "okapi", "hello"))


def test_deleting_an_agent_deletes_its_runs_and_says_so(scripted: Scripted) -> None:
    harness, _ = scripted("one", "two")
    harness.agents.create("helper")
    ids = [harness.finish_run(harness.runs.start("helper", "go").id).run.id for _ in range(2)]
    queued = harness.runs.start("helper", "left over")
    report = harness.deletion.agent("helper")
    assert report.runs == 3
    for run_id in (*ids, queued.id):
        with pytest.raises(NotFound):
            harness.runs.get(run_id)
    assert harness.jobs.list() == []


def test_a_run_whose_conversation_was_deleted_while_it_waited_has_failed(
    scripted: Scripted,
) -> None:
    harness, _ = scripted([TEA])
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    view = harness.finish_run(harness.runs.start("assistant", "go").id)
    harness.conversations.delete(harness.conversation(str(view.run.conversation_id)))
    ended = harness.finish_run(view.run.id).run
    assert (ended.status, ended.error and ended.error.code) == ("failed", "not_found")


def test_a_long_prompt_and_a_long_reply_are_stored_whole(scripted: Scripted) -> None:
    reply = "r" * 100_000
    harness, _ = scripted(reply)
    run = ran(harness, "ü" * 50_000)
    again = harness.runs.get(run.id).run
    assert (again.reply, again.prompt) == (reply, "ü" * 50_000)


def test_a_caller_cannot_use_the_event_id_of_a_run(harness: Harness) -> None:
    with pytest.raises(Refused, match="reserved"):
        harness.run("hello", event_id="run:run_0123")


def test_a_server_that_was_asked_by_nobody_brings_runs_to_their_end(scripted: Scripted) -> None:
    def says(request: ModelRequest) -> list[Text]:
        return [Text(f"answer to {request.messages[-1].text}")]

    harness, _ = scripted(says, says)
    first = harness.runs.start("assistant", "1", is_attended=False)
    second = harness.runs.start("assistant", "2", is_attended=False, on_busy="queue")
    assert harness.run_jobs().done == 2
    replies = [harness.runs.get(run.id).run.reply for run in (first, second)]
    assert replies == ["answer to 1", "answer to 2"]
