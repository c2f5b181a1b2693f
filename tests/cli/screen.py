"""A person's terminal: what is printed can be waited for, and answered."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from codecs import getincrementaldecoder

from tests.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal, told

PLAIN = {"TERM": "dumb", "NO_COLOR": "1"}


class Screen:
    def __init__(self, harness: Terminal, *arguments: str, **variables: str) -> None:
        """Without colours, unless `variables` say another terminal."""
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=harness.environment(**(variables or PLAIN)),
            start_new_session=True,
        )
        os.close(theirs)
        self._decoder = getincrementaldecoder("utf-8")()
        self.shown = ""

    @property
    def lines(self) -> list[str]:
        """As they are read, without what steers colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.shown).replace("\r\n", "\n").split("\n")

    def wait_for(self, text: str) -> None:
        while text not in self.shown:
            data = self._read()
            assert data, self.shown
            self.shown += self._decoder.decode(data)

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, and an empty line: a signal that comes in the instant before readline waits for a key is
        seen at the end of a line."""
        self.process.send_signal(signal.SIGINT)
        os.write(self._ours, b"\n")

    def close(self) -> int:
        """Its exit code, once it has ended."""
        while data := self._read():
            self.shown += self._decoder.decode(data)
        os.close(self._ours)
        told(self.shown.encode())
        return self.process.wait(timeout=COMMAND_S_MAX)

    def _read(self) -> bytes:
        """Nothing once the other side is closed."""
        ready, _, _ = select.select([self._ours], [], [], COMMAND_S_MAX)
        if not ready:
            self.process.kill()
            raise AssertionError(f"it waits for something: {self.shown}")
        try:
            return os.read(self._ours, 65536)
        except OSError:
            return b""
