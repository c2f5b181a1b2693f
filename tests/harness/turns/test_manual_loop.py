"""The manual loop: the caller asks the provider, the harness does the rest of the turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from harness import Harness, tool
from harness.messages.event import Approval
from harness.messages.message import ToolResult
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.turns.manual_loop import ManualLoop
from tests.harness.messages_server import KEY, MessagesServer, says, text, thinking, tool_use
from tests.strace import ROOT
from workspaces.errors import Refused

MODEL = "claude-sonnet-5-5"
HI: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}

NO_BLOCKS: list[object] = [
    7,
    {},
    {"type": "text", "text": 7},
    {"type": "tool_use", "id": "t1", "input": {}},
    {"type": "tool_use", "id": "t1", "name": "read", "input": "{}"},
]


@pytest.fixture
def harness(home: Path) -> Iterator[Harness]:
    """Whatever it is asked itself, it cannot answer."""
    with Harness.open(home, model=ScriptedModel(), sandbox=NoSandbox("not here")) as opened:
        yield opened


def ask(server: MessagesServer, context: ManualLoop) -> Any:
    prompt: dict[str, Any] = {
        "system": context.system,
        "tools": context.tools,
        "messages": context.messages,
    }
    with anthropic.Anthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
        return client.messages.create(model=MODEL, max_tokens=1000, **prompt)


def stored(harness: Harness, key: str = "c1") -> list[str]:
    transcript = harness.conversations.transcript(harness.conversation(key))
    return [entry.message.role for entry in transcript.entries()]


def test_a_manual_loop_records_tool_calls_thinking_and_a_second_question(
    harness: Harness, server: MessagesServer
) -> None:
    note = json.dumps({"path": "tea.md", "content": "green\n"})
    server.answers(
        says(
            thinking("Hm."), tool_use("t1", "write", note), tool_use("t2", "read", '{"path": "x"}')
        ),
        says(text("Noted."), output=11),
        says(text("Green.")),
    )
    with harness.context("assistant", "c1") as context:
        context.record("Remember that I like green tea.")
        while context.is_open:
            context.record(ask(server, context))
        assert context.outcome is not None
        assert (context.outcome.status, context.outcome.reply) == ("done", "Noted.")
        context.record({"role": "user", "content": "Which tea?"})
        while context.is_open:
            context.record(ask(server, context))
        assert context.outcome.reply == "Green."
    assert harness.workspaces.get("notes").read("tea.md").text == "green\n"
    assert [role[0] for role in stored(harness)] == list("uauuaua")
    assert server.requests[0]["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert sum("cache_control" in json.dumps(one) for one in server.requests) == 3
    assert harness.usage(by="purpose").total.usage.output == 7 + 11 + 7
    steps = [
        step
        for turn in harness.explain(harness.conversation("c1")).turns()
        for step in turn.receipts
    ]
    assert len(steps) == 3


def test_a_manual_loop_runs_custom_tools_and_waits_for_their_approval(
    harness: Harness, server: MessagesServer
) -> None:
    @tool(asks=True)
    def launch(what: str) -> str:
        """Launch it."""
        return f"{what} is up"

    server.answers(says(tool_use("t1", "launch", '{"what": "it"}')), says(text("Up.")))
    with harness.context("assistant", "c1", tools=[launch]) as context:
        context.record("go")
        context.record(ask(server, context))
        assert not context.is_open
        assert context.outcome is not None
        assert context.outcome.status == "waiting"
        context.answer(Approval(call_id="t1", is_allowed=True))
        assert context.is_open
        (result,) = context.messages[-1]["content"][:1]
        assert result["content"] == "it is up"
        context.record(ask(server, context))
        assert context.outcome.reply == "Up."


def test_a_manual_loop_refuses_messages_out_of_order_and_unknown_blocks(harness: Harness) -> None:
    with harness.context("assistant", "c1") as context:
        for read in (lambda: context.system, lambda: context.messages, lambda: context.record(HI)):
            with pytest.raises(Refused):
                read()
        context.record("hello")
        with pytest.raises(Refused):
            context.record("and another thing")
        with pytest.raises(Refused):
            context.record({"role": "system", "content": "x"})
        with pytest.raises(Refused):
            context.record(7)
        for at, block in enumerate(NO_BLOCKS):
            with pytest.raises(Refused) as caught:
                context.record({"role": "assistant", "content": [HI["content"][0], block]})
            assert caught.value.field.startswith("message.content.1"), at
        context.record(HI)
        assert context.outcome is not None
        assert context.outcome.reply == "hi"


def test_leaving_a_manual_loop_early_interrupts_the_turn_and_not_the_conversation(
    harness: Harness,
) -> None:
    with pytest.raises(ZeroDivisionError), harness.context("assistant", "c1") as context:
        context.record("hello")
        raise ZeroDivisionError
    assert stored(harness) == ["user"]
    assert harness.jobs.list() == []
    with harness.context("assistant", "c1") as context:
        context.record("again")
        assert context.messages[0]["content"][-1]["text"] == "again"
        context.record(HI)
    assert stored(harness) == ["user", "user", "assistant"]


def test_a_cancellation_during_a_manual_loop_interrupts_the_turn(harness: Harness) -> None:
    with harness.context("assistant", "c1") as context:
        context.record("hello")
        assert harness.cancel(harness.conversation("c1"))
        context.record(HI)
        assert context.outcome is not None
        assert context.outcome.status == "interrupted"


CRASHING = """
import os, signal, sys
from harness import Harness

with Harness.open(sys.argv[1]) as harness, harness.context("assistant", "c1") as context:
    context.record("hello")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_turn_of_a_manual_loop_whose_process_died_is_not_resumed(home: Path) -> None:
    """The model of the home is not the one that was talked to: it must not answer in its place."""
    code = subprocess.run(
        [sys.executable, "-c", CRASHING, str(home)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    ).returncode
    assert code == -signal.SIGKILL
    model = ScriptedModel("never")
    with Harness.open(home, model=model, sandbox=NoSandbox("not here")) as harness:
        (job,) = harness.jobs.list()
        harness.jobs.retry(job.job.id)
        assert harness.run_jobs().failed == 0
        assert harness.jobs.list() == []
        assert model.requests == []
        with harness.context("assistant", "c1") as context:
            context.record("again")
            texts = [block["text"] for block in context.messages[0]["content"]]
            assert texts[:1] == ["hello"]
            context.record(HI)
        entries = harness.conversations.transcript(harness.conversation("c1")).entries()
        assert not any(isinstance(p, ToolResult) for e in entries for p in e.message.parts)
