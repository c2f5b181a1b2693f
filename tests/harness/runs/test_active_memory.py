"""Active memory: what chat and runs see of each other, and what a reset, a failure and a toggle do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness import Harness
from harness.messages.message import Message, Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Emit
from harness.models.scripted import ScriptedModel
from harness.runs.active_memory import RUNS_BEFORE_WARNING, age_text
from harness.runs.run import Run
from harness.sandboxes.none import NoSandbox
from workspaces.clock import ManualClock
from workspaces.storage.records import Delete, Key

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

FAILS = ModelFailure("overloaded", "too busy", "wait")


class Echo:
    """Answers each message with what was said, and keeps what it was asked."""

    name = "echo"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.fails = False

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        self.requests.append(request)
        if self.fails:
            return FAILS
        text = f"re: {request.messages[-1].text}"
        return Reply(Message("assistant", (Text(text),)), Usage(1, 1))

    @property
    def seen(self) -> list[str]:
        """What the newest request says."""
        return [message.text for message in self.requests[-1].messages]


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def harness(home: Path, echo: Echo, clock: ManualClock) -> Iterator[Harness]:
    sandbox = NoSandbox("not here")
    with Harness.open(home, model=echo, clock=clock, sandbox=sandbox) as opened:
        yield opened


def ran(harness: Harness, prompt: str) -> Run:
    return harness.finish_run(harness.runs.start("assistant", prompt).id).run


def chat(harness: Harness, text: str) -> str:
    return harness.run(text, is_shared=True).reply


def turn_on(harness: Harness) -> None:
    harness.runs.set_memory("assistant", is_enabled=True)


def turn_off(harness: Harness) -> None:
    harness.runs.set_memory("assistant", is_enabled=False)


def test_it_is_off_by_default_and_runs_do_not_touch_the_shared_session(
    harness: Harness, echo: Echo
) -> None:
    chat(harness, "chat 1")
    run = ran(harness, "run 1")
    assert echo.seen == ["run 1"]
    assert run.session_before is None
    chat(harness, "chat 2")
    assert echo.seen == ["chat 1", "re: chat 1", "chat 2"]
    view = harness.runs.memory("assistant")
    assert (view.is_enabled, view.session_id, view.runs, view.status) == (False, None, 0, "Fresh")


def test_chat_and_runs_share_one_session_when_it_is_on(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    chat(harness, "chat 1")
    ran(harness, "run 1")
    assert echo.seen == ["chat 1", "re: chat 1", "run 1"]
    chat(harness, "chat 2")
    assert echo.seen[2:] == ["run 1", "re: run 1", "chat 2"]


def test_the_state_after_a_run_is_the_state_before_the_next_one(harness: Harness) -> None:
    turn_on(harness)
    first, second, third = (ran(harness, f"run {number}") for number in (1, 2, 3))
    assert first.session_before is None
    assert first.session_after == second.session_before
    assert second.session_after == third.session_before
    assert harness.runs.memory("assistant").session_id == third.session_after
    chat(harness, "between")
    moved = harness.runs.memory("assistant").session_id
    assert moved not in {None, third.session_after}
    assert ran(harness, "run 4").session_before == moved


def test_an_instruction_in_chat_does_not_replace_the_prompt_of_a_run(
    harness: Harness, echo: Echo
) -> None:
    turn_on(harness)
    harness.agents.patch("assistant", {"config": {"defaultPrompt": "count the open tasks"}})
    chat(harness, "next run just say hi")
    harness.finish_run(harness.runs.start("assistant").id)
    assert echo.seen == ["next run just say hi", "re: next run just say hi", "count the open tasks"]


def test_turning_it_on_starts_afresh_and_keeps_messages_visible(
    harness: Harness, echo: Echo
) -> None:
    chat(harness, "an old message")
    turn_on(harness)
    view = harness.runs.memory("assistant")
    assert (view.is_enabled, view.session_id, view.runs, view.status) == (True, None, 0, "Fresh")
    ran(harness, "run 1")
    assert echo.seen == ["run 1"]
    entries = harness.conversations.transcript(shared(harness)).entries()
    assert next(entry.message.text for entry in entries) == "an old message"


def test_turning_it_off_leaves_its_data_in_place_and_on_again_starts_afresh(
    harness: Harness, echo: Echo
) -> None:
    turn_on(harness)
    ran(harness, "run 1")
    kept = harness.runs.memory("assistant")
    turn_off(harness)
    off = harness.runs.memory("assistant")
    assert (off.session_id, off.runs, off.is_enabled) == (kept.session_id, 1, False)
    assert ran(harness, "run 2").session_before is None
    assert echo.seen == ["run 2"]
    assert harness.runs.memory("assistant").session_id == kept.session_id
    turn_on(harness)
    assert harness.runs.memory("assistant").session_id is None
    assert ran(harness, "run 3").session_before is None
    assert echo.seen == ["run 3"]


def test_on_again_while_it_is_on_resets_nothing(harness: Harness) -> None:
    turn_on(harness)
    run = ran(harness, "run 1")
    turn_on(harness)
    harness.agents.patch("assistant", {"config": {"defaultPrompt": "x"}})
    view = harness.runs.memory("assistant")
    assert (view.session_id, view.runs) == (run.session_after, 1)


def test_a_reset_clears_the_session_and_the_counter_and_nothing_that_was_said(
    harness: Harness, echo: Echo
) -> None:
    turn_on(harness)
    chat(harness, "chat 1")
    ran(harness, "run 1")
    view = harness.runs.reset_memory("assistant")
    assert (view.session_id, view.runs, view.status) == (None, 0, "Fresh")
    assert ran(harness, "run 2").session_before is None
    assert echo.seen == ["run 2"]
    said = [e.message.text for e in harness.conversations.transcript(shared(harness)).entries()]
    assert said == ["chat 1", "re: chat 1", "run 1", "re: run 1", "run 2", "re: run 2"]


def test_a_failed_run_does_not_move_the_session_and_the_next_one_does_not_see_it(
    harness: Harness, echo: Echo
) -> None:
    turn_on(harness)
    good = ran(harness, "good")
    echo.fails = True
    bad = ran(harness, "bad")
    echo.fails = False
    assert (bad.status, bad.session_before, bad.session_after) == (
        "failed",
        good.session_after,
        None,
    )
    view = harness.runs.memory("assistant")
    assert (view.session_id, view.runs) == (good.session_after, 1)
    again = ran(harness, "again")
    assert again.session_before == good.session_after
    assert echo.seen == ["good", "re: good", "again"]
    numbers = [e.number for e in harness.conversations.transcript(shared(harness)).entries()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_failed_run_in_the_middle_of_a_turn_leaves_nothing_in_the_context(
    scripted: Scripted,
) -> None:
    call = ToolCall("w1", "write", {"path": "tea.md", "content": "green"})
    harness, model = scripted("one", [Text("hm"), call], FAILS, "three")
    turn_on(harness)
    ran(harness, "first")
    assert ran(harness, "second").status == "failed"
    harness.run("third", is_shared=True)
    assert [m.text for m in model.requests[-1].messages] == ["first", "one", "third"]


def test_a_failed_chat_message_stays_in_the_context(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    echo.fails = True
    chat(harness, "please answer")
    echo.fails = False
    ran(harness, "run 1")
    assert "please answer" in " ".join(echo.seen)


def test_a_reset_while_a_run_is_active_wins(home: Path, clock: ManualClock) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Echo):
        async def reply(
            self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
        ) -> Reply | ModelFailure:
            begun.set()
            while not go_on.is_set():
                await _moment()
            return await super().reply(request, output_tokens_max=output_tokens_max, emit=emit)

    model = Slow()
    with Harness.open(home, model=model, clock=clock, sandbox=NoSandbox("not here")) as harness:
        turn_on(harness)
        run = harness.runs.start("assistant", "run 1")
        thread = threading.Thread(target=harness.finish_run, args=[run.id])
        thread.start()
        assert begun.wait(60)
        assert harness.runs.reset_memory("assistant").session_id is None
        go_on.set()
        thread.join(60)
        assert harness.runs.get(run.id).run.status == "succeeded"
        view = harness.runs.memory("assistant")
        assert (view.session_id, view.runs) == (None, 0)
        ran(harness, "run 2")
        assert model.seen == ["run 2"]


def test_a_missing_stored_session_starts_afresh_and_succeeds(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    ran(harness, "run 1")
    harness.conversations.delete(shared(harness))
    run = ran(harness, "run 2")
    assert (run.status, run.session_before) == ("succeeded", None)
    assert echo.seen == ["run 2"]
    assert harness.runs.memory("assistant").session_id == run.session_after


def test_a_broken_stored_session_starts_afresh_and_succeeds(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    ran(harness, "r" * 30_000 + "ü" * 20_000)  # too large for a record: it lies in the blob store
    entries = harness.settings.home.entries
    for file in entries.rglob(f"{shared(harness).id}/*.json"):
        file.unlink()
    run = ran(harness, "run 2")
    assert (run.status, run.session_before) == ("succeeded", None)
    assert echo.seen == ["run 2"]


def test_a_reset_of_the_conversation_itself_starts_afresh_too(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    ran(harness, "run 1")
    harness.conversations.reset(shared(harness))
    assert ran(harness, "run 2").session_before is None
    assert echo.seen == ["run 2"]


def test_the_counter_counts_succeeded_runs_and_no_chat(harness: Harness, echo: Echo) -> None:
    turn_on(harness)
    chat(harness, "chat")
    ran(harness, "run 1")
    echo.fails = True
    ran(harness, "run 2")
    echo.fails = False
    ran(harness, "run 3")
    assert harness.runs.memory("assistant").runs == 2


def test_the_warning_begins_with_the_twenty_first_run(harness: Harness) -> None:
    turn_on(harness)
    for _ in range(RUNS_BEFORE_WARNING):
        ran(harness, "go")
    assert harness.runs.memory("assistant").warning is None
    ran(harness, "go")
    warning = harness.runs.memory("assistant").warning
    assert warning is not None and "21 runs" in warning and "reset" in warning
    harness.runs.reset_memory("assistant")
    assert harness.runs.memory("assistant").warning is None


def test_an_agent_that_is_created_with_it_starts_afresh(harness: Harness) -> None:
    harness.agents.create("keen", activeMemory=True)
    view = harness.runs.memory("keen")
    assert (view.is_enabled, view.session_id) == (True, None)
    assert harness.runs.memories.state(harness.agents.get("keen").id).reset_at is not None


def test_agents_do_not_share_their_sessions(harness: Harness, echo: Echo) -> None:
    harness.agents.create("other", activeMemory=True)
    turn_on(harness)
    ran(harness, "run 1")
    harness.finish_run(harness.runs.start("other", "mine alone").id)
    assert echo.seen == ["mine alone"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (0, "just now"),
        (59, "just now"),
        (60, "1m"),
        (5 * 60 + 59, "5m"),
        (3600, "1h 0m"),
        (2 * 3600 + 15 * 60, "2h 15m"),
        (24 * 3600 - 1, "23h 59m"),
        (24 * 3600, "1d 0h"),
        (3 * 86_400 + 4 * 3600 + 59 * 60, "3d 4h"),
    ],
)
def test_ages_are_told_in_two_units_at_most(seconds: int, text: str) -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    assert age_text(now - timedelta(seconds=seconds), now) == text


def test_the_age_of_a_session_is_that_of_its_newest_turn(
    harness: Harness, clock: ManualClock
) -> None:
    turn_on(harness)
    assert harness.runs.memory("assistant").age is None
    ran(harness, "run 1")
    clock.advance(2 * 3600 + 15 * 60)
    assert harness.runs.memory("assistant").age == "2h 15m"


def test_a_turn_that_was_noted_by_nobody_moves_no_session(harness: Harness) -> None:
    """A turn of an earlier version has no note of its beginning."""
    turn_on(harness)
    run = ran(harness, "run 1")
    agent, memories = harness.agents.get("assistant"), harness.runs.memories
    conversation = shared(harness)
    key = Key(f"active-memory:{memories.account_id}", f"{agent.id} turn")
    memories.records.write(Delete(key))
    assert memories.begun(agent.id) is None
    assert run.session_after == harness.runs.memory("assistant").session_id
    assert conversation.key == "shared"


def shared(harness: Harness):
    found = harness.conversations.find(harness.agents.get("assistant").id, "shared")
    assert found is not None
    return found


async def _moment() -> None:
    import asyncio

    await asyncio.sleep(0.01)
