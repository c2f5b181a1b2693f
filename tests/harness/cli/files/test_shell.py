"""`harness shell`: a person's commands run in the same sandbox as an agent's."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cli.terminal import COMMAND, Terminal
from tests.ordinary import reachable_directory

WAIT_S_MAX = 60


@pytest.fixture(scope="module")
def harness() -> Iterator[Terminal]:
    with reachable_directory() as place:
        terminal = Terminal(place / "home", {})
        found = {one["check"]: one for one in terminal("doctor", "--json").done().json}["sandbox"]
        if found["state"] != "ok":
            pytest.skip(f"no sandbox on this machine: {found['detail']}")
        yield terminal


def test_shell_passes_on_the_output_and_exit_code_of_the_command(harness: Terminal) -> None:
    ended = harness("shell", "notes", "--", "bash", "-c", "pwd; id -u; ls; echo bad >&2; exit 7")
    assert ended.code == 7
    assert ended.out == "/workspaces/notes\n1000\nMEMORY.md\nTASKS.md\nnotes\n"
    assert ended.stderr == "bad\n"


def test_shell_passes_standard_input_to_the_command(harness: Terminal) -> None:
    assert harness("shell", "notes", "--", "cat", stdin=b"a\xff\n").done().stdout == b"a\xff\n"


def test_a_file_changed_in_the_shell_is_a_revision_by_the_person(harness: Terminal) -> None:
    script = "echo '- tea is green' >> MEMORY.md; chmod 000 ."
    harness("shell", "notes", "--", "bash", "-c", script).done()
    newest = harness("log", "notes", "--json").done().json[0]
    assert (newest["author"], newest["paths"]) == ("owner", ["MEMORY.md"])
    assert "tea is green" in harness("cat", "notes", "MEMORY.md").done().out


def test_without_a_command_an_interactive_shell_starts(harness: Terminal) -> None:
    ended = harness("shell", "notes", stdin=b"pwd\nexit 5\n")
    assert ended.code == 5
    assert "/workspaces/notes" in ended.out


def test_the_sandbox_shows_only_the_workspace(harness: Terminal) -> None:
    script = f"ls {harness.home} /root /home 2>/dev/null; ls /workspaces"
    assert harness("shell", "notes", "--", "bash", "-c", script).out == "notes\n"


def test_an_unknown_workspace_sandbox_or_program_is_refused(harness: Terminal) -> None:
    harness("shell", "nots", "--", "true").refused("nots")
    harness("shell", "notes", "--sandbox", "nowhere", "--", "true").refused("nowhere")
    assert harness("shell", "notes", "--", "no-such-program").code == 127


def test_without_a_usable_sandbox_no_command_runs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's sandbox can be had below a closed directory too")
    harness = Terminal(tmp_path / "home", {})
    harness("shell", "notes", "--", "touch", "made").refused("may not enter", "chmod o+x")
    assert "made" not in harness("ls", "notes").done().out


def test_an_interactive_shell_has_job_control_and_ctrl_c(harness: Terminal) -> None:
    """Interrupting what runs in the shell ends that, not the shell and not the harness."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(COMMAND[0], [*COMMAND, "shell", "notes"], harness.environment(TERM="dumb"))
    try:
        typed(terminal, b"set -o | grep monitor\n", b"monitor        \ton")
        # said by what has the terminal by then: an interruption before would meet the shell
        in_front = b"bash -c \"echo be''gun; exec sleep 600\"\n"
        typed(terminal, in_front, b"begun")
        typed(terminal, b"\x03", b"^C")
        typed(terminal, b"echo st''ill here\n", b"still here")
        os.write(terminal, b"exit 4\n")
        assert os.waitstatus_to_exitcode(waited(child, terminal)) == 4
    finally:
        os.close(terminal)


def test_ctrl_c_ends_a_single_command(harness: Terminal) -> None:
    with subprocess.Popen(
        [*COMMAND, "shell", "notes", "--", "bash", "-c", "echo begun; sleep 600"],
        env=harness.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    harness("write", "notes", "free.md", stdin=b"the lock is free").done()


def typed(terminal: int, keys: bytes, answer: bytes) -> None:
    """Type, and read until the answer stands there."""
    os.write(terminal, keys)
    read, deadline = b"", time.monotonic() + WAIT_S_MAX
    while answer not in read:
        assert time.monotonic() < deadline, read
        if select.select([terminal], [], [], 0.1)[0]:
            read += os.read(terminal, 4096)


def waited(child: int, terminal: int) -> int:
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                os.read(terminal, 4096)  # else whoever writes would wait for a reader
            except OSError:
                return os.waitpid(child, 0)[1]
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
