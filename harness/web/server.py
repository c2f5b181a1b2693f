"""Serve the app on a port, with limits for each connection and an orderly shutdown.

uvicorn has no timeout for the head of a request, for the rest of a body that the app does not read, or for
a caller that does not read its response. This module adds these timeouts to its protocol. `body` has the
timeout for bodies that the app reads. h11 limits the size of a head only while it is incomplete, and it
accepts a body with two lengths. This module therefore replaces its connection with a stricter one.

After SIGTERM or Ctrl-C, the server accepts no new requests, finishes running ones within a time limit, and
returns. The signal itself does not end the process.
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
"""Largest request line with all headers. Eight KiB would be generous."""

CONNECTIONS_MAX = 500
"""Largest number of connections: half of the usual limit of file descriptors per process."""

BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections. Port 0 chooses a free port.

    Raises:
        Unavailable: the address or the port cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # state the protocol: otherwise asyncio keeps Nagle's algorithm, which costs 44 ms a request
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
        timeouts: ServerTimeouts = app.state.timeouts

        class Protocol(TimeoutProtocol):
            server_timeouts = timeouts

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
        config.timeout_keep_alive = cast(int, timeouts.idle_s)
        config.timeout_graceful_shutdown = cast(int, timeouts.drain_s)  # a float works too
        super().__init__(config)
        self._shutdown_notice: ShutdownNotice = app.state.shutdown
        self.ended_by: int | None = None
        """The signal that ended the server."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle SIGTERM and SIGINT during the block.

        uvicorn's version raises the signal again at the end, which would end the process. A signal that comes
        before the server has started ends it as soon as it starts.
        """
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
        """Shut down. Streams end by themselves, and their readers reconnect to another process."""
        self._shutdown_notice.call()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.ended_by = self.ended_by or sig
        super().handle_exit(sig, frame)


class StrictConnection(h11.Connection):
    """An h11 connection that refuses a head over the limit, and a body whose end is ambiguous."""

    failure: HttpFailure = Malformed("this is not a valid HTTP request")
    """The failure for the response, after `next_event` has raised."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)

    def next_event(self) -> Any:
        """Return the next event of h11.

        Raises:
            RemoteProtocolError: the connection cannot be read further; `failure` says why.
        """
        buffered = self._buffered_bytes if self.their_state is h11.IDLE else 0
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.failure = _too_large()
            raise
        if isinstance(event, h11.Request):
            # h11 has no limit for a head that arrives in one piece
            if buffered - self._buffered_bytes > HEAD_BYTES_MAX:
                self.failure = _too_large()
                raise h11.RemoteProtocolError("head over the limit")
            if _is_framed_ambiguously(event):
                self.failure = Malformed(
                    "The request has both Transfer-Encoding and Content-Length, or "
                    "Transfer-Encoding in HTTP/1.0. State the length of the body in one way.",
                    field="Transfer-Encoding",
                )
                raise h11.RemoteProtocolError("ambiguous framing")
        return event

    @property
    def _buffered_bytes(self) -> int:
        return len(self.trailing_data[0])


class TimeoutProtocol(H11Protocol):
    """The HTTP protocol of uvicorn with timeouts for the head of a request and for the reader."""

    server_timeouts = ServerTimeouts()

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
        del msg  # uvicorn has one message for all failures
        self._refuse(self.conn.failure)

    @property
    def _is_in_request(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.server_timeouts.head_s, self._refuse_late_head)

    def _wait_for_reader(self) -> None:
        wait_s = self.server_timeouts.reader_s
        unread = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(wait_s, self._check_reader, unread, wait_s)

    def _check_reader(self, unread_before: int, waited_s: float) -> None:
        """Close the connection if the caller reads too slowly. A long response alone is no reason."""
        taken = unread_before - self.transport.get_write_buffer_size()
        if taken < waited_s * BYTES_PER_S_MIN:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _refuse_late_head(self) -> None:
        self._head_timer = None
        if self._is_in_request or self.transport.is_closing():
            return
        self._refuse(TooSlow("The head of the request did not arrive in time."))

    def _refuse(self, failure: HttpFailure) -> None:
        """Send a refusal and close the connection. There is no request that the app could answer."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = refused(failure)
            headers = [(k, v) for k, v in answer.raw_headers if k != b"connection"]
            head = h11.Response(
                status_code=answer.status_code, headers=[*headers, (b"connection", b"close")]
            )
            for part in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()


def _too_large() -> TooManyHeaders:
    return TooManyHeaders(f"The request line and headers have more than {HEAD_BYTES_MAX:,} bytes.")


def _is_framed_ambiguously(request: h11.Request) -> bool:
    """Return True if a proxy could see the end of the body in another place (RFC 9112, 6.1)."""
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
        remedy = "choose another port with --port; another `harness up` may already use this one"
    return Unavailable(f"{host}:{port}", error.strerror or str(error), remedy=remedy)
