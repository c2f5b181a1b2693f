"""A DynamoDB for tests, and a wire before it that loses answers and is busy on request."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

REGION = "eu-central-1"


class _OneAtATime:
    """The stand-in checks a condition and writes in two steps, and its threads come in between; the
    service that it stands in for does both in one."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        with self._lock:
            return self._app(environ, start_response)


@pytest.fixture(scope="session")
def dynamodb_url() -> Iterator[str]:
    with serving_dynamodb() as url:
        yield url


@contextmanager
def serving_dynamodb() -> Iterator[str]:
    from moto.moto_server import werkzeug_app  # 0.1 s that only these tests need
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _OneAtATime(werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app))
    handler = werkzeug_app.MotoRequestHandler
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(timeout=120)
        server.server_close()


@pytest.fixture
def dynamodb(dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The standard variables point to the server; the url, for those who put a wire before it."""
    point_to(dynamodb_url, monkeypatch)
    return dynamodb_url


def point_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings_for(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def settings_for(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def make_table(url: str, name: str) -> None:
    keys = {"partition": "HASH", "sort": "RANGE"}
    request = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in keys],
    }
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    headers = {
        "X-Amz-Target": "DynamoDB_20120810.CreateTable",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/dynamodb/aws4_request",
    }
    connection.request("POST", "/", json.dumps(request), headers)
    assert connection.getresponse().status == 200
    connection.close()


class Wire:
    """Carries requests to the server. `next_answers` says what becomes of the next ones:

    "lost" reaches the server and never comes back; an error's name is answered instead of the server;
    "" is carried through, as everything is once the list is empty.
    """

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")
        self.next_answers: list[str] = []
        self.operations: list[str] = []
        self.items_written = 0
        """Items of writes, checked ones included: what is paid for."""

    def exchange(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        operation = handler.headers["X-Amz-Target"].rpartition(".")[2]
        self.operations.append(operation)
        if operation == "TransactWriteItems":
            self.items_written += len(json.loads(body)["TransactItems"])
        elif operation not in {"GetItem", "Query"}:
            self.items_written += 1
        fate = self.next_answers.pop(0) if self.next_answers else ""
        if fate not in {"", "lost"}:
            status = 500 if fate.startswith("Internal") else 400
            answer(handler, status, json.dumps({"__type": f"x#{fate}", "message": fate}).encode())
            return
        connection = http.client.HTTPConnection(self._address, timeout=120)
        connection.request("POST", "/", body, dict(handler.headers))
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        if fate == "lost":
            handler.close_connection = True
            return
        answer(handler, reply.status, content)


def answer(handler: BaseHTTPRequestHandler, status: int, content: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/x-amz-json-1.0")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def wire_to(url: str) -> Iterator[tuple[Wire, str]]:
    wire = Wire(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version: ClassVar[str] = "HTTP/1.1"
        disable_nagle_algorithm: ClassVar[bool] = True  # else each answer waits 40 ms

        def do_POST(self) -> None:
            wire.exchange(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield wire, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=120)
