"""The embedding endpoint: what is sent, and which answers are refused."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from harness import Harness
from harness.models.embedding import EmbeddingEndpoint
from harness.runtime.settings import read_settings
from tests.workspaces.search.test_embeddings import Concepts
from workspaces.errors import Unavailable
from workspaces.revision import Author


class Endpoint(ThreadingHTTPServer):
    """`POST /v1/embeddings`, as OpenAI describes it, with vectors of the tests' own embedder."""

    daemon_threads = True
    answer: bytes | None = None
    status = 200
    location: str | None = None
    seen: list[tuple[str | None, Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.headers["Authorization"], document))
        data = [
            {"object": "embedding", "index": number, "embedding": vector}
            for number, vector in enumerate(Concepts()(document["input"]))
        ]
        body = self.server.answer or json.dumps({"data": data[::-1]}).encode()
        found = self.server.status if self.path == "/v1/embeddings" else 404
        self.send_response(found)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as server:
        yield server


@contextmanager
def serving() -> Iterator[Endpoint]:
    with Endpoint(("127.0.0.1", 0), _Handler) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def test_embeddings_come_in_the_order_of_the_texts(endpoint: Endpoint) -> None:
    embed = EmbeddingEndpoint(endpoint.url, "small", "secret")
    assert embed(["dog", "boat"]) == Concepts()(["dog", "boat"])
    assert endpoint.seen == [("Bearer secret", {"model": "small", "input": ["dog", "boat"]})]
    assert "secret" not in repr(embed)
    assert "secret" not in embed.name


HOSTILE = [
    b"[" * 100_000,
    b'{"data": [{"index": 0, "embedding": [NaN]}]}',
    b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b"]}]}",
]


@pytest.mark.parametrize("answer", [b"{}", b"nonsense", b'{"data": [1]}', b"[]", b"\xff", *HOSTILE])
def test_a_malformed_embedding_answer_is_unavailable(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = answer
    with pytest.raises(Unavailable):
        EmbeddingEndpoint(endpoint.url, "small")(["dog"])


def test_an_embedding_error_states_the_http_status(endpoint: Endpoint) -> None:
    endpoint.status = 429
    with pytest.raises(Unavailable, match="429"):
        EmbeddingEndpoint(endpoint.url, "small")(["dog"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_an_embedding_redirect_is_refused_and_the_key_is_not_forwarded(
    endpoint: Endpoint, status: int
) -> None:
    with serving() as other:
        endpoint.status = status
        endpoint.location = f"{other.url}/embeddings"
        with pytest.raises(Unavailable, match=f"{status}.*redirect") as refused:
            EmbeddingEndpoint(endpoint.url, "small", "secret")(["dog"])
        assert refused.value.remedy
        assert other.seen == []


DRIP_S = 0.01
"""Between two bytes: no single read waits long."""


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n[", b""])
def test_a_dripping_embedding_answer_has_one_deadline(head: bytes) -> None:
    """In its head, in its body, or with no byte at all."""
    with dripping(head, b"1" if head else b"") as url:
        begun = monotonic()
        with pytest.raises(Unavailable, match=r"within 0\.3 s"):
            EmbeddingEndpoint(url, "small", answer_s_max=0.3)(["dog"])
        assert monotonic() - begun < 5


def test_an_endless_embedding_answer_is_cut_at_the_size_limit() -> None:
    endless = dripping(b"HTTP/1.1 200 OK\r\n\r\n[", b"1" * 65536)
    with endless as url, pytest.raises(Unavailable, match="more than 100,000 bytes"):
        EmbeddingEndpoint(url, "small", answer_bytes_max=100_000)(["dog"])


@pytest.mark.parametrize("answer", [b"", b"no http\r\n", b"HTTP/1.1 200 OK\r\n" + b"X" * 70_000])
def test_an_embedding_answer_that_is_not_http_is_unavailable(answer: bytes) -> None:
    with dripping(answer, None) as url, pytest.raises(Unavailable):
        EmbeddingEndpoint(url, "small")(["dog"])


@contextmanager
def dripping(head: bytes, then: bytes | None) -> Iterator[str]:
    """A server that answers so, and goes on with `then` as long as somebody reads; None: it closes."""
    over = threading.Event()

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            while then is not None and not over.wait(DRIP_S):
                connection.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        over.set()
        thread.join(10)


def test_recall_uses_the_configured_embedding_endpoint_and_works_when_the_endpoint_fails(
    endpoint: Endpoint, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_EMBEDDINGS_URL", endpoint.url)
    monkeypatch.setenv("HARNESS_EMBEDDINGS_KEY", "embeddings-key")
    assert "embeddings-key" not in repr(read_settings(home))
    with Harness.open(home) as harness:
        notes = harness.workspaces.get("notes")
        notes.write("a.md", "- the dog barks\n", by=Author("ann", "usr_1", "api"))
        assert notes.recall.find("puppy", limit=1)[0].path == "a.md"
        endpoint.status = 500
        (line,) = notes.recall.find("dog", limit=1)
        assert line.path == "a.md"
        assert "500" in line.why[-1]


def test_recall_accepts_any_callable_as_embedder(home: Path) -> None:
    with Harness.open(home, embedder=Concepts()) as harness:
        notes = harness.workspaces.get("notes")
        notes.write("a.md", "- the dog barks\n", by=Author("ann", "usr_1", "api"))
        assert notes.recall.find("puppy", limit=1)[0].path == "a.md"
