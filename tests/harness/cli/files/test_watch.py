"""`harness watch`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal


def test_watch_prints_each_manual_edit_until_interrupted(harness: Terminal) -> None:
    place = Path(harness("path", "notes").done().out.strip())
    command = [*COMMAND, "watch", "notes"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=harness.environment(),
        text=True,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        try:
            assert watching.stderr.readline() == "watching notes; Ctrl-C ends\n"
            (place / "TASKS.md").write_text("- [ ] call Ann\n")
            told = watching.stdout.readline()
            assert "  notes  " in told
            assert "TASKS.md: +1" in told
            watching.send_signal(signal.SIGINT)
            assert watching.wait(COMMAND_S_MAX) == 130
            assert watching.stderr.read() == ""
        finally:
            watching.kill()
    assert harness("log", "notes", "-n", "1", "--json").json[0]["trailers"]["Source"] == "edit"


def test_watch_refuses_an_unknown_workspace(harness: Terminal) -> None:
    harness("watch", "nothing").refused("not_found", "nothing")
