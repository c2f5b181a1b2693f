"""`harness conversation cancel`: cancelling a turn from another terminal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.harness.cli.terminal import COMMAND_S_MAX, Terminal
from tests.harness.messages_server import Hold, MessagesServer, breaks_off, says, text


def test_a_turn_is_cancelled_from_another_terminal_and_the_conversation_continues(
    asking: Terminal, server: MessagesServer
) -> None:
    hold = Hold()
    server.answers(breaks_off(text("Once upon "), ending=[hold]))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asking, "run", "Tell me.", "-c", "c1", "--json")
        assert hold.reached.wait(COMMAND_S_MAX)
        assert asking("conversation", "cancel", "c1").done().out == "c1: the turn ends\n"
        ended = running.result(COMMAND_S_MAX)
    assert (ended.code, ended.json["outcome"]) == (1, "interrupted")
    assert hold.left.wait(COMMAND_S_MAX), "the model is not asked any more"
    again = asking("conversation", "cancel", "c1", "--json").done()
    assert again.json == {"cancelled": False}
    asking("conversation", "cancel", "nix").refused("not_found", "conversation list")
    server.answers(says(text("The end.")))
    assert asking("run", "Go on.", "-c", "c1").done().out == "The end.\n"


def test_cancelling_a_turn_that_waits_for_approval_runs_no_call(
    born: Terminal,
) -> None:
    born("sandbox", "set", "default", "--permission", "ask").done()
    assert born("run", "remember that tea is green", "-c", "c1").code == 1
    assert born("conversation", "cancel", "c1", "--json").done().json == {"cancelled": True}
    born("approve", "c1").refused("not_found")
    assert "green" not in born("cat", "notes", "MEMORY.md").done().out
