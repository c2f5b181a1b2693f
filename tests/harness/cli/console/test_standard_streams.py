"""Standard streams that are no text, without end, closed, full, or read by nobody."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_input_that_is_no_text_cannot_be_said_but_can_be_kept(born: Terminal) -> None:
    data = bytes(range(256)) * 8
    run, chat, write = (
        born("run", "-", stdin=data),
        born("chat", stdin=data),
        born("write", "notes", "b.bin", stdin=data),
    )
    run.refused("standard input", "not UTF-8")
    chat.refused("standard input", "not UTF-8")
    write.done()
    assert born("cat", "notes", "b.bin").stdout == data


def test_a_nul_in_what_is_said_is_only_a_character(born: Terminal) -> None:
    assert born("run", "-", "--json", stdin=b"remember that a\0b").done().json["outcome"] == "done"


def test_input_without_end_is_refused(born: Terminal) -> None:
    ended = born.shell("harness write notes big.md < /dev/zero")
    ended.refused("over_limit")


def test_closed_input_is_not_empty_input(born: Terminal) -> None:
    born("write", "notes", "a.md", stdin=b"kept").done()
    born.shell("harness write notes a.md <&-").refused("standard input")
    born.shell("harness run - <&-").refused("standard input")
    born.shell("harness chat <&-").done()
    assert born("cat", "notes", "a.md").out == "kept"


def test_a_reader_that_has_gone_is_no_error(born: Terminal) -> None:
    commands = ["log notes", "log notes --json", "ls notes", "cat notes MEMORY.md", "path notes"]
    commands += ["prompt", "run hello", "doctor", "--help"]
    for command in commands:
        born.shell(f"harness {command} | head -c 0").done()
    assert born.shell("harness ls nix --json | head -c 0").code == 1


def test_output_that_cannot_be_written_is_told(born: Terminal) -> None:
    for command in ("log notes", "log notes --json", "cat notes MEMORY.md"):
        born.shell(f"harness {command} > /dev/full").refused("cannot write", "No space left")


def test_output_and_messages_may_be_closed(born: Terminal) -> None:
    assert born.shell("harness path notes >&-").code == 0
    assert born.shell("harness ls nix 2>&-").code == 1
    assert born.shell("harness run hello 2>&- | cat").out
