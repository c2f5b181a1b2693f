"""Serving the app on a port: what a connection may take, and how a server ends.

uvicorn waits for ever for the head of a request, for the rest of a body nobody reads, and for a caller
who reads nothing. Its protocol is therefore given an end to its patience; bodies that are read have
theirs in `body`. h11 limits a head only while it is incomplete, and reads a body whose length is stated
twice: its connection is therefore replaced by a stricter one.

Asked to end (SIGTERM, or Ctrl-C), the server takes nothing new, finishes what runs
within a bound, and returns: it is not the signal that ends the process.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from harness.turns.event_stream import ShutdownNotice
from harness.web.app import ServerTimeouts
from harness.web.http.body import BYTES_PER_S_MIN
from harness.web.http.errors import (
    Crowded,
    HttpFailure,
    Malformed,
    TooManyHeaders,
    TooSlow,
    refused,
)
from harness.web.loop_watchdog import watched
from workspaces.errors import Unavailable

HEAD_BYTES_MAX = 32 * 1024
"""Of the request line and all headers; eight would be generous."""

CONNECTIONS_MAX = 500
"""Half of the file descriptors that a process is commonly given."""

BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A socket that already takes connections in; port 0 is one that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # with its protocol: without, asyncio leaves Nagle's algorithm on, 44 ms a request
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unavailable(host, port, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _unavailable(host, port, error) from error
    return listening


class Server(uvicorn.Server):
    def __init__(self, app: FastAPI) -> None:
        patience: ServerTimeouts = app.state.patience

        class Protocol(TimeoutProtocol):
            patience_of_server = patience

        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
        )
        config.timeout_keep_alive = cast(int, patience.idle_s)
        config.timeout_graceful_shutdown = cast(int, patience.drain_s)  # any number will do
        super().__init__(config)
        self._curfew: ShutdownNotice = app.state.curfew
        self.ended_by: int | None = None
        """The signal that did."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """uvicorn's own raises the signal again at the end, which then ends the process. A signal that
        comes before the server has begun ends it at its beginning."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with watched(asyncio.get_running_loop()):
            await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams end by themselves: whoever reads them takes them up again elsewhere."""
        self._curfew.call()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.ended_by = self.ended_by or sig
        super().handle_exit(sig, frame)


class StrictConnection(h11.Connection):
    """A connection that takes no head over the limit, and no body whose end two readers could see in two
    places."""

    failure: HttpFailure = Malformed("this is no HTTP request that can be read")
    """What the caller is answered once `next_event` has raised."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)

    def next_event(self) -> Any:
        """Return what h11 has read.

        Raises:
            RemoteProtocolError: nothing more is to be read here; `failure` says why.
        """
        buffered = self._buffered_bytes if self.their_state is h11.IDLE else 0
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.failure = _too_large()
            raise
        if isinstance(event, h11.Request):
            # also of a head that came in one piece, which h11 takes at any size
            if buffered - self._buffered_bytes > HEAD_BYTES_MAX:
                self.failure = _too_large()
                raise h11.RemoteProtocolError("head over the limit")
            if _is_framed_ambiguously(event):
                self.failure = Malformed(
                    "Transfer-Encoding stands beside Content-Length, or in HTTP/1.0: "
                    "state the length of the body in one way",
                    field="Transfer-Encoding",
                )
                raise h11.RemoteProtocolError("ambiguous framing")
        return event

    @property
    def _buffered_bytes(self) -> int:
        return len(self.trailing_data[0])


class TimeoutProtocol(H11Protocol):
    patience_of_server = ServerTimeouts()

    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: StrictConnection = StrictConnection()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(Crowded("too many connections"))
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _stopped(self._head_timer)
        self._reader_timer = _stopped(self._reader_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_request:
            self._head_timer = _stopped(self._head_timer)
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._reader_timer = _stopped(self._reader_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        del msg  # the same for everything
        self._refuse(self.conn.failure)

    @property
    def _is_in_request(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        return cycle is not None and not cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.patience_of_server.head_s, self._give_up)

    def _wait_for_reader(self) -> None:
        wait_s = self.patience_of_server.reader_s
        left = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(wait_s, self._look_at_reader, left, wait_s)

    def _look_at_reader(self, left_before: int, waited_s: float) -> None:
        """One who reads, however much there is to read, is waited for."""
        taken = left_before - self.transport.get_write_buffer_size()
        if taken < waited_s * BYTES_PER_S_MIN:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _give_up(self) -> None:
        self._head_timer = None
        if self._is_in_request or self.transport.is_closing():
            return
        self._refuse(TooSlow("the head of a request did not come in time"))

    def _refuse(self, failure: HttpFailure) -> None:
        """As the app would; there is no request that it could be given."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = refused(failure)
            headers = [(k, v) for k, v in answer.raw_headers if k != b"connection"]
            head = h11.Response(
                status_code=answer.status_code, headers=[*headers, (b"connection", b"close")]
            )
            for told in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(told) or b"")
        self.transport.close()


def _too_large() -> TooManyHeaders:
    return TooManyHeaders(f"a request line and headers of more than {HEAD_BYTES_MAX:,} bytes")


def _is_framed_ambiguously(request: h11.Request) -> bool:
    """Whether another reader, a proxy say, could take the end of the body for another one (RFC 9112, 6.1)."""
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" not in names:
        return False
    return b"content-length" in names or request.http_version < b"1.1"


def _stopped(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _unavailable(host: str, port: int, error: OSError) -> Unavailable:
    remedy = "name an address of this machine with --host"
    if error.errno in {errno.EADDRINUSE, errno.EACCES}:
        remedy = "choose another port with --port; another `harness up` may be running at this one"
    return Unavailable(f"{host}:{port}", error.strerror or str(error), remedy=remedy)
