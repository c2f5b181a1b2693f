from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.embedding import EmbeddingEndpoint
from harness.settings import read_settings
from tests.workspaces.search.test_meaning import Concepts
from workspaces.errors import Unavailable
from workspaces.revision import Author


class Endpoint(ThreadingHTTPServer):
    """`POST /v1/embeddings`, as OpenAI describes it, with vectors of the tests' own embedder."""

    daemon_threads = True
    answer: bytes | None = None
    status = 200
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
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(("127.0.0.1", 0), _Handler) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def test_vectors_come_in_the_order_of_the_texts(endpoint: Endpoint) -> None:
    embed = EmbeddingEndpoint(endpoint.url, "small", "secret")
    assert embed(["dog", "boat"]) == Concepts()(["dog", "boat"])
    assert endpoint.seen == [("Bearer secret", {"model": "small", "input": ["dog", "boat"]})]
    assert "secret" not in repr(embed)
    assert "secret" not in embed.name


@pytest.mark.parametrize("answer", [b"{}", b"nonsense", b'{"data": [1]}', b"[]", b"\xff"])
def test_an_answer_that_is_none_is_unavailable(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = answer
    with pytest.raises(Unavailable):
        EmbeddingEndpoint(endpoint.url, "small")(["dog"])


def test_a_refusal_is_told_with_its_status(endpoint: Endpoint) -> None:
    endpoint.status = 429
    with pytest.raises(Unavailable, match="429"):
        EmbeddingEndpoint(endpoint.url, "small")(["dog"])


def test_an_endpoint_of_the_settings_is_asked_and_never_needed(
    endpoint: Endpoint, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_EMBEDDINGS_URL", endpoint.url)
    monkeypatch.setenv("HARNESS_EMBEDDINGS_KEY", "secret")
    assert "secret" not in repr(read_settings(home))
    with Harness.open(home) as harness:
        notes = harness.workspaces.get("notes")
        notes.write("a.md", "- the dog barks\n", by=Author("ann", "usr_1", "api"))
        assert notes.recall.find("puppy", limit=1)[0].path == "a.md"
        endpoint.status = 500
        (line,) = notes.recall.find("dog", limit=1)
        assert line.path == "a.md"
        assert "500" in line.why[-1]


def test_any_callable_will_do(home: Path) -> None:
    with Harness.open(home, embedder=Concepts()) as harness:
        notes = harness.workspaces.get("notes")
        notes.write("a.md", "- the dog barks\n", by=Author("ann", "usr_1", "api"))
        assert notes.recall.find("puppy", limit=1)[0].path == "a.md"
