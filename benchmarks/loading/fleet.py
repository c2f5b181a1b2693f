"""Servers of one place, of which one is killed again and again, and the processor time that they took."""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.loading.places import Place
from tests.harness.cli.terminal import COMMAND, Terminal

START_S_MAX = 120.0


@dataclass
class Running:
    """One server process."""

    number: int
    process: subprocess.Popen[str]
    url: str
    ready_at_s: float
    """Its processor time when it was ready."""

    def taken_s(self) -> float:
        """Return the processor time that it has taken since it was ready."""
        return processor_s(self.process.pid) - self.ready_at_s

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=START_S_MAX)


@dataclass
class Fleet:
    """The servers that answer now. Threads may share it."""

    place: Place
    log: Path
    deaths: int = 0
    _ended_s: float = 0.0
    _alive: dict[int, Running] = field(default_factory=dict[int, Running])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def running(self) -> Generator[Fleet]:
        numbers = range(len(self.place.homes))
        try:
            with ThreadPoolExecutor(len(numbers)) as pool:
                list(pool.map(self.start, numbers))
            yield self
        finally:
            for number in numbers:
                self.kill(number)

    def urls(self) -> list[str]:
        """Return the addresses of the servers that answer. Waits until there is one."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._alive), START_S_MAX)
            return [one.url for one in self._alive.values()]

    def taken_s(self) -> float:
        """Return the processor time of all servers, without what their starts took."""
        with self._changed:
            return self._ended_s + sum(one.taken_s() for one in self._alive.values())

    def start(self, number: int) -> None:
        home: Terminal = self.place.homes[number]
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*COMMAND, "up", "--port", "0", "--no-token"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=home.environment(),
                text=True,
            )
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("/?")[0].rstrip("/")
        if not url:
            process.wait(START_S_MAX)
            raise RuntimeError(f"a server did not start: {self.log.read_text()[-2000:]}")
        with self._changed:
            self._alive[number] = Running(number, process, url, processor_s(process.pid))
            self._changed.notify_all()

    def kill(self, number: int) -> None:
        with self._changed:
            running = self._alive.pop(number, None)
        if running is not None:
            self._ended_s += running.taken_s()
            running.end()

    @contextmanager
    def dying(self, every_s: float, chance: random.Random) -> Generator[None]:
        """Until the block ends, kill a server every so many seconds, and start it again."""
        ends = threading.Event()

        def go_on(starting: ThreadPoolExecutor) -> None:
            started: list[Future[None]] = []
            while not ends.wait(every_s):
                with self._changed:
                    alive = [*self._alive]
                if len(alive) > 1:  # the others are on their way
                    number = chance.choice(alive)
                    self.kill(number)
                    self.deaths += 1
                    started.append(starting.submit(self.start, number))
            for one in started:
                one.result(START_S_MAX)

        with (
            ThreadPoolExecutor(len(self.place.homes)) as starting,
            ThreadPoolExecutor(1) as killing,
        ):
            killer = killing.submit(go_on, starting)
            try:
                yield
            finally:
                ends.set()
            killer.result(START_S_MAX)


def processor_s(pid: int) -> float:
    """Return the processor time of a process and of those that it has waited for (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(number) for number in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")
