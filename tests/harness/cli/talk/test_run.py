"""`harness run`: one message, its outcome and its effects."""

from __future__ import annotations

import re
import signal
import subprocess

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal, told
from tests.harness.messages_server import Hold, MessagesServer, breaks_off, says, text, tool_use

DEMO = "the offline demo model answers: ANTHROPIC_API_KEY is not set\n"
REVISION = re.compile(r"[0-9a-f]{40}")


def test_a_remembered_fact_is_in_a_file_a_revision_and_the_prompt(
    harness: Terminal,
) -> None:
    said = harness("run", "Remember that the sky is blue.").done()
    assert said.out == "I have written to MEMORY.md: the sky is blue.\n"
    assert said.stderr == f"{DEMO}memory: MEMORY.md +1\n"
    cat, log, prompt, asked = harness.all(
        ("cat", "notes", "MEMORY.md"),
        ("log", "notes"),
        ("prompt",),
        ("run", "What colour is the sky?"),
    )
    assert cat.done().out.endswith("- the sky is blue\n")
    assert "the sky is blue" in log.done().out.splitlines()[1]
    assert "- the sky is blue" in prompt.done().out
    assert asked.done().out == "From my memory: the sky is blue.\n"
    assert [ended.stderr for ended in (cat, log, asked)] == ["", "", DEMO]
    assert "tokens with the tools" in prompt.stderr


def test_run_prints_its_outcome_as_json(harness: Terminal) -> None:
    told = harness("run", "remember that tea is green", "-c", "c1", "--json").done().json
    assert set(told) == {
        "outcome",
        "reply",
        "conversation",
        "turn",
        "usage",
        "revisions",
        "durable",
    }
    assert told["outcome"] == "done"
    assert set(told["usage"]) >= {"input", "output", "cacheRead", "cacheWrite"}
    assert not any(told["usage"].values())
    (change,) = told["revisions"]
    assert change["workspace"] == "notes"
    assert REVISION.fullmatch(change["revision"])


def test_run_reads_the_message_from_standard_input(harness: Terminal) -> None:
    said = harness("run", "-", stdin="remember that Zoë drinks 茶".encode())
    assert "Zoë drinks 茶" in said.done().out


def test_an_interrupted_run_exits_with_130_and_the_conversation_continues(
    asking: Terminal, server: MessagesServer
) -> None:
    hold = Hold()
    call = tool_use("toolu_1", "write", '{"path": "kept.md", "content": "kept"}')
    server.answers(says(call), breaks_off(text("Once"), ending=[hold]))
    with subprocess.Popen(
        [*COMMAND, "run", "Write and tell.", "-c", "c1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=asking.environment(),
    ) as run:
        assert hold.reached.wait(COMMAND_S_MAX)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=COMMAND_S_MAX)
    told(errors)
    assert run.returncode == 130
    server.answers(says(text("The end.")))
    assert asking("run", "Go on.", "-c", "c1").done().out == "The end.\n"
    assert asking("cat", "notes", "kept.md").out == "kept"


def test_run_says_on_standard_error_that_the_demo_model_answers(
    asking: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("Hello.")))
    assert asking("run", "Hi.").done().stderr == ""
    without_key = asking("run", "Hi.", ANTHROPIC_API_KEY="").done()
    assert without_key.stderr == DEMO
    on_purpose = asking("run", "Hi.", HARNESS_MODEL="demo").done()
    assert on_purpose.stderr == "the offline demo model answers, as the settings say\n"


def test_a_model_that_nothing_can_ask_is_refused_when_it_is_set_and_when_it_is_asked(
    harness: Terminal,
) -> None:
    for arguments in (
        ("agent", "create", "toy", "--model", "gpt-9"),
        ("agent", "set", "assistant", "--model", "gpt-9"),
    ):
        harness(*arguments).refused("config.model: 'gpt-9'", "claude-…", "ANTHROPIC_BASE_URL")
    said = harness("run", "Hi.", HARNESS_MODEL="gpt-9")
    said.refused("model: 'gpt-9'")
    assert said.out == ""
    own = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    harness("agent", "set", "assistant", "--model", "gpt-9", **own).done()
    harness("agent", "set", "assistant", "--system", "Be brief.").done()
    harness("run", "Hi.").refused("model: 'gpt-9'")
