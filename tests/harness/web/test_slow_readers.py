"""The timeout for clients that read slowly, with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from harness.web.app import ServerTimeouts
from harness.web.http.body import BYTES_PER_S_MIN
from harness.web.server import TimeoutProtocol

READER_S = ServerTimeouts().reader_s


@dataclass
class Timer:
    delay_s: float
    call: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Hands:
    """An event loop whose time passes when the test says so."""

    timers: list[Timer] = field(default_factory=list[Timer])

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Timer(delay_s, lambda: call(*arguments)))
        return self.timers[-1]

    def pass_over(self, delay_s: float) -> None:
        """Whatever was set for that long is due."""
        due = [timer for timer in self.timers if timer.delay_s == delay_s]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.is_cancelled:
                timer.call()


@dataclass
class Line:
    """A transport that holds so much unread."""

    unread: int = 0
    is_aborted: bool = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_aborted = True


def connected() -> tuple[TimeoutProtocol, Hands, Line]:
    async def nothing(scope: object, receive: object, send: object) -> None: ...

    config = uvicorn.Config(cast(Any, nothing), lifespan="off", log_config=None)
    hands, line = Hands(), Line()
    protocol = TimeoutProtocol(config, ServerState(), {}, _loop=cast(Any, hands))
    protocol.connection_made(cast(Any, line))
    return protocol, hands, line


def test_a_slow_reader_stays_connected_while_reading_at_the_minimum_rate() -> None:
    protocol, hands, line = connected()
    taken = int(READER_S * BYTES_PER_S_MIN)
    line.unread = 10 * taken
    protocol.pause_writing()
    for _ in range(9):
        line.unread -= taken
        hands.pass_over(READER_S)
        assert not line.is_aborted
    line.unread -= taken - 1
    hands.pass_over(READER_S)
    assert line.is_aborted


def test_a_reader_that_catches_up_gets_a_new_timeout() -> None:
    protocol, hands, line = connected()
    for _ in range(3):
        line.unread = 100_000
        protocol.pause_writing()
        line.unread = 0
        protocol.resume_writing()
        hands.pass_over(READER_S)
    assert not line.is_aborted
