"""`harness chat`: what is said, and what is for the program itself."""

from __future__ import annotations

import signal
import subprocess

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Ended, Terminal, told


def said(harness: Terminal, *lines: str, key: str = "c1") -> Ended:
    return harness("chat", "-c", key, stdin="".join(f"{line}\n" for line in lines).encode()).done()


def test_chat_answers_line_by_line_and_says_the_rest_on_standard_error(harness: Terminal) -> None:
    lines = "remember that tea is green\n\nWhat is green?\n/exit\nremember that nobody says this\n"
    chat = harness("chat", stdin=lines.encode()).done()
    assert chat.out.splitlines() == [
        "I have written to MEMORY.md: tea is green.",
        "From my memory: tea is green.",
    ]
    assert "assistant · workspaces: notes" in chat.stderr
    assert "ANTHROPIC_API_KEY" in chat.stderr
    assert harness("chat").done().out == ""


def test_an_interrupted_chat_ends_with_130(harness: Terminal) -> None:
    with subprocess.Popen(
        [*COMMAND, "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=harness.environment(),
    ) as chat:
        assert chat.stdin is not None
        assert chat.stderr is not None
        chat.stdin.write(b"hello\n/help\n")
        chat.stdin.flush()
        while b"/quit" not in chat.stderr.readline():  # the last line of the help
            pass
        chat.send_signal(signal.SIGINT)
        _, errors = chat.communicate(timeout=COMMAND_S_MAX)
    told(errors)
    assert chat.returncode == 130


def test_memory_shows_what_the_agent_always_knows(harness: Terminal) -> None:
    chat = said(harness, "remember that tea is green", "/memory")
    assert "notes/MEMORY.md" in chat.stderr
    assert "- tea is green\n" in chat.out


def test_diff_shows_what_the_last_answer_changed_and_who_wrote_it(harness: Terminal) -> None:
    chat = said(harness, "remember that tea is green", "remember that water is wet", "hm?", "/diff")
    assert "+- water is wet\n" in chat.out
    assert "+- tea is green" not in chat.out
    assert "Conversation: conv_" in chat.out


def test_undo_takes_back_one_answer_after_the_other(harness: Terminal) -> None:
    said(harness, "remember that tea is green", "remember that water is wet")
    chat = said(harness, "/undo", "/memory", "/undo", "/undo", "what is green?")
    assert chat.stderr.count("undone by ") == 2
    assert "no answer in this conversation has changed a file" in chat.stderr
    assert "- tea is green\n" in chat.out
    assert "water" not in chat.out
    assert "From my memory: tea" not in chat.out
    authors = [one["author"] for one in harness("log", "notes", "--json").done().json]
    assert authors == ["owner", "owner", "assistant", "assistant", "owner"]


def test_what_was_changed_again_since_is_not_undone_silently(harness: Terminal) -> None:
    said(harness, "remember that tea is green")
    memory = harness("cat", "notes", "MEMORY.md").done().out
    changed = memory.replace("tea is green", "tea is black").encode()
    harness("write", "notes", "MEMORY.md", stdin=changed).done()
    chat = said(harness, "/undo")
    assert "error (" in chat.stderr
    assert "tea is black" in harness("cat", "notes", "MEMORY.md").done().out


def test_new_begins_another_conversation(harness: Terminal) -> None:
    said(harness, "remember that tea is green", "/new", "/diff", "hello")
    keys = [
        one["key"] for one in harness("conversation", "list", "--json").done().json["conversations"]
    ]
    assert len(keys) == 2
    assert "c1" in keys


def test_a_command_that_is_not_there_is_not_said_to_the_agent_but_a_path_is(
    harness: Terminal,
) -> None:
    chat = said(harness, "/nix", "/", "/etc/hosts is a file", "/mem")
    assert "there is no command /nix; the commands are:" in chat.stderr
    assert "/undo" in chat.stderr
    shown = harness("conversation", "show", "c1").done().out
    assert "/etc/hosts is a file" in shown
    assert "/nix" not in shown
    assert "notes/MEMORY.md" in chat.stderr


def test_exit_ends_and_the_rest_is_not_said(harness: Terminal) -> None:
    for end in ("/exit", "/quit", "/q"):
        assert "nobody" not in said(harness, end, "remember that nobody says this").out
    assert harness("conversation", "list", "--json").done().json["conversations"] == []


def test_compact_makes_a_summary_of_the_beginning(harness: Terminal) -> None:
    assert "this conversation has no messages yet" in said(harness, "/compact", key="c2").stderr
    facts = [f"remember that fact {number} is known" for number in range(4)]
    chat = said(harness, *facts, "/compact", "/diff")
    assert "compacted: c1: entries up to " in chat.out
    assert "+- fact 3 is known\n" in chat.out


def test_undo_reaches_behind_a_summary(harness: Terminal) -> None:
    said(harness, *(f"remember that fact {number} is known" for number in range(4)))
    said(harness, "/compact", *["/undo"] * 4)
    assert "is known" not in harness("cat", "notes", "MEMORY.md").done().out
