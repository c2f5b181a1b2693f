"""How a turn is printed: at a terminal, on a narrow terminal, without colours, and in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.cli.screen import Screen
from tests.harness.cli.terminal import COMMAND_S_MAX, Terminal
from tests.harness.messages_server import (
    KEY,
    Drop,
    Hold,
    MessagesServer,
    breaks_off,
    says,
    text,
    tool_use,
)

COLOURS = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
LONG = json.dumps({"path": "notes/" + "long-" * 20 + "name.md", "content": "x"})


@pytest.fixture
def harness(tmp_path: Path, server: MessagesServer) -> Terminal:
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    return Terminal(tmp_path / "home", variables)


def looks_and_says(server: MessagesServer) -> None:
    call = tool_use("toolu_1", "read", '{"path": "MEMORY.md"}')
    server.answers(says(text("Let me look."), call), says(text("It is\nempty.\n")))


def test_tool_calls_are_printed_on_separate_lines_between_the_texts(
    harness: Terminal, server: MessagesServer
) -> None:
    looks_and_says(server)
    screen = Screen(harness, "run", "What do you know?")
    assert screen.close() == 0
    assert screen.lines == ["Let me look.", "✓ read MEMORY.md", "It is", "empty.", ""]


def test_a_running_tool_call_is_shown_and_overwritten_at_a_capable_terminal(
    harness: Terminal, server: MessagesServer
) -> None:
    looks_and_says(server)
    screen = Screen(harness, "run", "What do you know?", TERM="xterm", NO_COLOR="1")
    assert screen.close() == 0
    assert screen.lines[1] == "… read MEMORY.md\r\x1b[K✓ read MEMORY.md"
    assert screen.lines[2:] == ["It is", "empty.", ""]


def test_in_a_pipe_texts_go_to_stdout_and_tool_calls_to_stderr(
    harness: Terminal, server: MessagesServer
) -> None:
    looks_and_says(server)
    chat = harness("chat", stdin=b"What do you know?\n").done()
    assert chat.out == "Let me look.\nIt is\nempty.\n"
    assert "✓ read MEMORY.md\n" in chat.stderr
    assert "\x1b" not in chat.out + chat.stderr


def test_a_tool_call_fits_one_line_of_a_narrow_terminal(
    harness: Terminal, server: MessagesServer
) -> None:
    server.answers(says(tool_use("toolu_1", "write", LONG)), says(text("Done.")))
    screen = Screen(harness, "run", "Write it.", COLUMNS="40", TERM="xterm", NO_COLOR="1")
    assert screen.close() == 0
    call, reply, note, _ = screen.lines
    assert note.startswith("memory: notes/long-")
    call = call.rpartition("\x1b[K")[2]
    assert (len(call), call[:20], call[-1], reply) == (40, "✓ write notes/long-l", "…", "Done.")
    server.answers(says(tool_use("toolu_2", "write", LONG)), says(text("Done.")))
    chat = harness("chat", stdin=b"Again.\n").done()
    assert json.loads(LONG)["path"] in chat.stderr, "whoever keeps a log keeps all of it"


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [(COLOURS, True), ({**COLOURS, "NO_COLOR": "1"}, False)]
)
def test_a_terminal_gets_colours_unless_the_environment_disables_colours(
    harness: Terminal, server: MessagesServer, variables: dict[str, str], is_coloured: bool
) -> None:
    looks_and_says(server)
    screen = Screen(harness, "run", "What do you know?", **variables)
    assert screen.close() == 0
    assert ("\x1b[32m✓" in screen.shown) == is_coloured


def test_an_interrupted_reply_is_announced_before_being_repeated(
    harness: Terminal, server: MessagesServer
) -> None:
    server.answers(breaks_off(text("Half an"), ending=[Drop()]), says(text("Whole.")))
    screen = Screen(harness, "run", "Say it.")
    assert screen.close() == 0
    first, withdrawn, waiting, answer, _ = screen.lines
    assert (first, withdrawn) == ("Half an", "(the answer was interrupted and starts again)")
    assert waiting.startswith("the provider cannot be reached")
    assert answer == "Whole."


def test_ctrl_c_cancels_the_turn_and_twice_at_the_prompt_exits_the_chat(
    harness: Terminal, server: MessagesServer
) -> None:
    hold = Hold()
    server.answers(breaks_off(text("Once upon "), ending=[hold]), says(text("The end.")))
    screen = Screen(harness, "chat", "-c", "c1")
    screen.wait_for("you ›")
    screen.type("Tell me.\n")
    screen.wait_for("Once upon")
    assert hold.reached.wait(COMMAND_S_MAX)
    screen.interrupt()
    screen.wait_for("(stopped)")
    assert hold.left.wait(COMMAND_S_MAX), "the model is not asked any more"
    screen.wait_for("you ›")
    screen.interrupt_prompt("(press Ctrl-C again to end)")
    screen.wait_for("you ›")
    screen.type("Go on.\n")
    screen.wait_for("The end.")
    screen.wait_for("you ›")
    screen.interrupt_prompt("(press Ctrl-C again to end)")
    screen.wait_for("you ›")
    screen.interrupt_prompt(None)
    assert screen.close() == 130
