"""A person's terminal: what is printed can be waited for, and answered."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from codecs import getincrementaldecoder
from time import monotonic

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal, told

PRESS_S, PRESSES_MAX = 10.0, 10
"""How long a person waits before they press Ctrl-C once more, and how often."""

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
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def interrupt_prompt(self, answer: str | None) -> None:
        """Ctrl-C until there is an answer, or until it has ended (None): one that comes in the instant before
        readline waits for a key is seen at the end of a line, or not at all."""
        self.shown = ""
        for _ in range(PRESSES_MAX):
            self.interrupt()
            os.write(self._ours, b"\n")
            give_up_at = monotonic() + PRESS_S
            while (left := give_up_at - monotonic()) > 0 and self._has_more(left):
                data = self._read()
                self.shown += self._decoder.decode(data)
                if not data or (answer is not None and answer in self.shown):
                    return
        raise AssertionError(f"it does not hear Ctrl-C: {self.shown}")

    def close(self) -> int:
        """Its exit code, once it has ended."""
        while data := self._read():
            self.shown += self._decoder.decode(data)
        os.close(self._ours)
        told(self.shown.encode())
        return self.process.wait(timeout=COMMAND_S_MAX)

    def _read(self) -> bytes:
        """Nothing once the other side is closed."""
        if not self._has_more(COMMAND_S_MAX):
            self.process.kill()
            raise AssertionError(f"it waits for something: {self.shown}")
        try:
            return os.read(self._ours, 65536)
        except OSError:
            return b""

    def _has_more(self, wait_s: float) -> bool:
        return bool(select.select([self._ours], [], [], wait_s)[0])
