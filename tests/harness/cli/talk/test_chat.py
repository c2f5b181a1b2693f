"""`harness chat`: messages to the agent, and the commands of the chat."""

from __future__ import annotations

import signal
import subprocess

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Ended, Terminal, told


def said(harness: Terminal, *lines: str, key: str = "c1") -> Ended:
    return harness("chat", "-c", key, stdin="".join(f"{line}\n" for line in lines).encode()).done()


def test_chat_answers_each_line_and_prints_notices_on_standard_error(harness: Terminal) -> None:
    lines = "remember that tea is green\n\nWhat is green?\n/exit\nremember that nobody says this\n"
    chat = harness("chat", stdin=lines.encode()).done()
    assert chat.out.splitlines() == [
        "I have written to MEMORY.md: tea is green.",
        "From my memory: tea is green.",
    ]
    assert "assistant · workspaces: notes" in chat.stderr
    assert "ANTHROPIC_API_KEY" in chat.stderr
    assert harness("chat").done().out == ""


def test_an_interrupted_chat_exits_with_130(harness: Terminal) -> None:
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


def test_the_memory_command_shows_the_memory_files_in_the_prompt(harness: Terminal) -> None:
    chat = said(harness, "remember that tea is green", "/memory")
    assert "notes/MEMORY.md" in chat.stderr
    assert "- tea is green\n" in chat.out


def test_the_diff_command_shows_the_changes_of_the_last_answer_with_their_author(
    harness: Terminal,
) -> None:
    chat = said(harness, "remember that tea is green", "remember that water is wet", "hm?", "/diff")
    assert "+- water is wet\n" in chat.out
    assert "+- tea is green" not in chat.out
    assert "Conversation: conv_" in chat.out


def test_each_undo_command_reverts_one_more_answer(harness: Terminal) -> None:
    said(harness, "remember that tea is green", "remember that water is wet")
    chat = said(harness, "/undo", "/memory", "/undo", "/undo", "what is green?")
    assert chat.stderr.count("undone by ") == 2
    assert "no answer in this conversation has changed a file" in chat.stderr
    assert "- tea is green\n" in chat.out
    assert "water" not in chat.out
    assert "From my memory: tea" not in chat.out
    authors = [one["author"] for one in harness("log", "notes", "--json").done().json]
    assert authors == ["owner", "owner", "assistant", "assistant", "owner"]


def test_undo_takes_out_the_fact_of_its_answer_and_keeps_a_later_one(harness: Terminal) -> None:
    said(harness, "remember that tea is green")
    said(harness, "remember that water is wet", key="c2")
    assert "undone by " in said(harness, "/undo").stderr
    memory = harness("cat", "notes", "MEMORY.md").done().out
    assert "- water is wet\n" in memory
    assert "tea is green" not in memory


def test_undo_refuses_a_change_that_a_later_edit_replaced(harness: Terminal) -> None:
    said(harness, "remember that tea is green")
    memory = harness("cat", "notes", "MEMORY.md").done().out
    changed = memory.replace("tea is green", "tea is black").encode()
    harness("write", "notes", "MEMORY.md", stdin=changed).done()
    chat = said(harness, "/undo")
    assert "error (conflict): Cannot undo " in chat.stderr
    assert "  MEMORY.md:9  - tea is black\n" in chat.stderr
    assert "tea is black" in harness("cat", "notes", "MEMORY.md").done().out


def test_the_new_command_begins_another_conversation(harness: Terminal) -> None:
    said(harness, "remember that tea is green", "/new", "/diff", "hello")
    keys = [
        one["key"] for one in harness("conversation", "list", "--json").done().json["conversations"]
    ]
    assert len(keys) == 2
    assert "c1" in keys


def test_an_unknown_chat_command_is_not_sent_to_the_agent_but_a_path_is(
    harness: Terminal,
) -> None:
    chat = said(harness, "/nix", "/", "/etc/hosts is a file", "/mem")
    assert "there is no command /nix; the commands are:" in chat.stderr
    assert "/undo" in chat.stderr
    shown = harness("conversation", "show", "c1").done().out
    assert "/etc/hosts is a file" in shown
    assert "/nix" not in shown
    assert "notes/MEMORY.md" in chat.stderr


def test_the_exit_command_ends_the_chat_before_the_remaining_input(harness: Terminal) -> None:
    for end in ("/exit", "/quit", "/q"):
        assert "nobody" not in said(harness, end, "remember that nobody says this").out
    assert harness("conversation", "list", "--json").done().json["conversations"] == []


def test_the_compact_command_summarises_the_beginning(harness: Terminal) -> None:
    assert "this conversation has no messages yet" in said(harness, "/compact", key="c2").stderr
    facts = [f"remember that fact {number} is known" for number in range(4)]
    chat = said(harness, *facts, "/compact", "/diff")
    assert "compacted: c1: entries up to " in chat.out
    assert "+- fact 3 is known\n" in chat.out


def test_undo_reverts_changes_from_before_a_compaction(harness: Terminal) -> None:
    said(harness, *(f"remember that fact {number} is known" for number in range(4)))
    said(harness, "/compact", *["/undo"] * 4)
    assert "is known" not in harness("cat", "notes", "MEMORY.md").done().out
