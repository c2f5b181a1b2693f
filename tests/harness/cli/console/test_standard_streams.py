"""Standard streams that are binary, endless, closed, full, or whose reader has exited."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_binary_input_is_refused_as_a_message_but_written_as_a_file(born: Terminal) -> None:
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


def test_a_message_may_contain_a_nul_character(born: Terminal) -> None:
    assert born("run", "-", "--json", stdin=b"remember that a\0b").done().json["outcome"] == "done"


def test_endless_input_is_refused(born: Terminal) -> None:
    ended = born.shell("harness write notes big.md < /dev/zero")
    ended.refused("over_limit")


def test_closed_standard_input_does_not_count_as_empty_input(born: Terminal) -> None:
    born("write", "notes", "a.md", stdin=b"kept").done()
    born.shell("harness write notes a.md <&-").refused("standard input")
    born.shell("harness run - <&-").refused("standard input")
    born.shell("harness chat <&-").done()
    assert born("cat", "notes", "a.md").out == "kept"


def test_a_closed_output_pipe_is_not_an_error(born: Terminal) -> None:
    commands = ["log notes", "log notes --json", "ls notes", "cat notes MEMORY.md", "path notes"]
    commands += ["prompt", "run hello", "doctor", "--help"]
    for command in commands:
        born.shell(f"harness {command} | head -c 0").done()
    assert born.shell("harness ls nix --json | head -c 0").code == 1


def test_output_to_a_full_disk_is_an_error(born: Terminal) -> None:
    for command in ("log notes", "log notes --json", "cat notes MEMORY.md"):
        born.shell(f"harness {command} > /dev/full").refused("cannot write", "No space left")


def test_closed_standard_output_or_error_does_not_break_a_command(born: Terminal) -> None:
    assert born.shell("harness path notes >&-").code == 0
    assert born.shell("harness ls nix 2>&-").code == 1
    assert born.shell("harness run hello 2>&- | cat").out
