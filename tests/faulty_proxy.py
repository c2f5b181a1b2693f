"""A wire between a client and an S3 server, with the faults that wires have.

Each request is carried on a connection of its own. The next ones meet what `next_faults` lists, in that
order; once the list is empty everything is carried through. `carried` counts what reached the server.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

WAIT_S_MAX = 120


@dataclass(frozen=True, slots=True)
class Carried:
    """Nothing happens to it."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before the request reaches the server."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The server carries it out; its answer is dropped and the connection reset."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """Half of the answer's body comes, then the end."""


@dataclass(frozen=True, slots=True)
class Late:
    """The server carries it out; the answer waits for `released`, or for the client to hang up."""

    released: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Answered:
    """Somebody on the way answers; the server never hears of it."""

    status: str
    code: str = ""
    body: bytes | None = None
    headers: tuple[str, ...] = ()

    def as_bytes(self) -> bytes:
        error = f"<?xml version='1.0'?><Error><Code>{self.code}</Code></Error>".encode()
        body = error if self.body is None else self.body
        lines = (f"HTTP/1.1 {self.status}", f"Content-Length: {len(body)}", "Connection: close")
        return "\r\n".join((*lines, *self.headers, "", "")).encode() + body


Fault = Carried | Reset | Lost | Truncated | Late | Answered


class FaultyProxy(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Wire)
        address = urlsplit(url)
        self.server = (address.hostname or "", address.port or 80)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.next_faults: list[Fault] = []
        self.fault_at: tuple[str, str, Fault] | None = None
        """A fault for the next request with this method and this text in its address."""
        self.carried: list[str] = []
        """The methods, in the order in which the server was done with them."""
        self.asked = 0
        self.under_way = 0
        """Connections that came and are not done with, also where the client has given up."""
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self.under_way += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        with self._lock:
            self.under_way -= 1

    def take(self, request: bytes) -> Fault:
        method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        with self._lock:
            self.asked += 1
            if self.fault_at and self.fault_at[0] == method and self.fault_at[1] in rest:
                (_, _, fault), self.fault_at = self.fault_at, None
                return fault
            return self.next_faults.pop(0) if self.next_faults else Carried()


P = TypeVar("P", bound=FaultyProxy)


@contextmanager
def faulty_proxy(url: str, kind: type[P] = FaultyProxy) -> Iterator[P]:
    with kind(url) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join(timeout=WAIT_S_MAX)


class _Wire(socketserver.StreamRequestHandler):
    server: FaultyProxy
    disable_nagle_algorithm = True
    timeout: ClassVar[float] = WAIT_S_MAX

    def handle(self) -> None:
        with suppress(OSError):  # a client that hangs up has seen enough
            request = self._request()
            if request:
                self._answer(request, self.server.take(request))

    def _request(self) -> bytes:
        lines: list[bytes] = []
        length = 0
        while (line := self.rfile.readline()) not in {b"\r\n", b""}:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            if name.lower() != b"connection":
                lines.append(line)
        if not lines:
            return b""
        # So that the end of the connection is the end of the answer; no signature covers it.
        return b"".join((*lines, b"Connection: close\r\n\r\n")) + self.rfile.read(length)

    def _answer(self, request: bytes, fault: Fault) -> None:
        match fault:
            case Carried():
                self.wfile.write(self._carry(request))
            case Reset():
                self._reset()
            case Lost():
                self._carry(request)
                self._reset()
            case Truncated():
                head, _, body = self._carry(request).partition(b"\r\n\r\n")
                self.wfile.write(head + b"\r\n\r\n" + body[: len(body) // 2])
            case Late():
                answer = self._carry(request)
                fault.released.wait(timeout=WAIT_S_MAX)
                self.wfile.write(answer)
            case Answered():
                self.wfile.write(fault.as_bytes())

    def _carry(self, request: bytes) -> bytes:
        with socket.create_connection(self.server.server, timeout=WAIT_S_MAX) as upstream:
            upstream.sendall(request)
            answer = b"".join(iter(lambda: upstream.recv(65536), b""))
        self.server.carried.append(request.split(b" ", 1)[0].decode())
        return answer

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
