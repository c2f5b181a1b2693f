"""A server that records what webhooks send to it, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S_MAX = 60.0


@dataclass
class Receiver:
    url: str
    statuses: list[int] = field(default_factory=list[int])
    """What it answers to the next requests; 204 when there is nothing left."""
    received: list[tuple[dict[str, str], bytes]] = field(
        default_factory=list[tuple[dict[str, str], bytes]]
    )
    _came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self._came:
            self.received.append((headers, body))
            self._came.notify_all()
            return self.statuses.pop(0) if self.statuses else 204

    def notices(self, count: int) -> list[Any]:
        """The bodies, once there are so many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.received) >= count, WAIT_S_MAX)
            return [json.loads(body) for _, body in self.received]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take({k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook?a=b")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S_MAX)
