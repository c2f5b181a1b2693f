"""Connections of the HTTP server on real sockets: timeouts, size limits, malformed requests, shutdown."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.web.app import ServerTimeouts
from harness.web.server import HEAD_BYTES_MAX, listen
from tests.harness.web.wire import Running, answer, is_closed, received, running, send, until
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import Unavailable

SHORT = 0.3
"""Patience with those who are slow on purpose; no test here is asked to be fast."""

PATIENT = ServerTimeouts()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("wire") / "home") as served:
        yield served


def test_a_server_answers_a_request_over_a_socket(server: Running) -> None:
    got = server.ask(server.head("GET", f"{server.files}/MEMORY.md"))
    assert got.status == 200
    assert got.body.startswith(b"# Memory")
    assert "server" not in got.headers


def test_an_incomplete_request_head_times_out_with_408(tmp_path: Path) -> None:
    with running(tmp_path / "home", patience=replace(PATIENT, head_s=SHORT)) as server:
        with server.connected() as wire:
            send(wire, b"GET /healthz HTTP/1.1\r\nHost: x")
            got = answer(wire)
            assert (got.status, got.error["code"]) == (408, "too_slow")
            assert is_closed(wire)
        with server.connected() as wire:  # says nothing at all
            assert answer(wire).status == 408
            assert is_closed(wire)


def test_sending_a_request_head_byte_by_byte_does_not_extend_its_timeout(tmp_path: Path) -> None:
    with (
        running(tmp_path / "home", patience=replace(PATIENT, head_s=SHORT)) as server,
        server.connected() as wire,
    ):
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.02) and send(wire, b"x"):
                pass

        send(wire, b"GET /healthz HTTP/1.1\r\nx: ")
        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert answer(wire).status == 408
        finally:
            ended.set()
            dripping.join()


def test_an_incomplete_request_body_times_out_with_408(tmp_path: Path) -> None:
    with running(tmp_path / "home", patience=replace(PATIENT, body_s=SHORT)) as server:
        for path, method in ((f"{server.files}/a.md", "PUT"), ("/accounts/me/workspaces", "POST")):
            with server.connected() as wire:
                send(wire, server.head(method, path, Content_Length="100") + b"{")
                got = answer(wire)
                assert (got.status, got.error["code"]) == (408, "too_slow")
                assert is_closed(wire)


def test_a_client_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    with running(tmp_path / "home", patience=replace(PATIENT, reader_s=SHORT)) as server:
        large = b"x" * 5_000_000
        put = server.head("PUT", f"{server.files}/large.md", Content_Length=str(len(large)))
        assert server.ask(put + large).status == 201
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", server.port))
            send(wire, server.head("GET", f"{server.files}/large.md") * 4)
            until(lambda: not server.server.server_state.connections)


def test_an_idle_connection_is_closed_without_an_error(tmp_path: Path) -> None:
    """Between requests it is simply closed, after a while."""
    with (
        running(tmp_path / "home", patience=replace(PATIENT, idle_s=SHORT)) as server,
        server.connected() as wire,
    ):
        send(wire, server.head("GET", "/healthz"))
        assert answer(wire).status == 200
        assert wire.recv(1) == b""


@pytest.mark.parametrize("size", [10 * 2**20, 60 * 2**20])
def test_a_body_over_the_limit_is_413_and_the_client_receives_the_answer(
    server: Running, size: int
) -> None:
    """A caller that sends all before it reads, as most do, up to a bound; then the connection ends."""
    with server.connected() as wire:
        head = server.head("PUT", f"{server.files}/a.md", Content_Length=str(size))
        if send(wire, head + b"x" * size):
            got = answer(wire)
            assert (got.status, got.error["code"]) == (413, "over_limit")
            assert is_closed(wire)
        else:
            assert size > 20 * 2**20
    assert server.is_well


def test_a_chunked_body_is_cut_off_at_the_size_limit(server: Running) -> None:
    """No length is declared, and there is no end."""
    with server.connected() as wire:
        head = server.head("PUT", f"{server.files}/a.md", Transfer_Encoding="chunked")
        send(wire, head)
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        sent = 0
        while sent < 200 and send(wire, chunk):
            sent += 1
        assert sent < 200
    assert server.is_well


def test_a_large_body_costs_no_more_memory_than_its_limit(server: Running) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        size = 20 * 2**20
        head = server.head("PUT", f"{server.files}/a.md", Content_Length=str(size))
        with server.connected() as wire:
            send(wire, head)
            for _ in range(20):
                send(wire, b"x" * 2**20)
            assert answer(wire).status == 413
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 40 * 1024


def test_a_client_expecting_100_continue_is_refused_before_sending_the_body(
    server: Running,
) -> None:
    head = server.head(
        "PUT", f"{server.files}/a.md", Content_Length=str(10 * 2**20), Expect="100-continue"
    )
    assert server.ask(head).status == 413
    with server.connected() as wire:
        send(
            wire,
            server.head("PUT", f"{server.files}/c.md", Content_Length="1", Expect="100-continue"),
        )
        assert answer(wire).status == 100
        send(wire, b"x")
        assert answer(wire).status == 201


def test_a_request_without_a_valid_key_is_401_before_its_body_is_read(server: Running) -> None:
    stranger = replace(server, key="wh_wrong")
    head = stranger.head("PUT", f"{server.files}/a.md", Content_Length=str(10 * 2**20))
    assert stranger.ask(head).status == 401


def test_deeply_nested_json_is_400(server: Running) -> None:
    for body in (b"[" * 10**6, b'{"a":' * 10**6, b'{"a":[' * 10**5):
        head = server.head(
            "POST",
            "/accounts/me/workspaces",
            Content_Length=str(len(body)),
            Content_Type="application/json",
        )
        assert server.ask(head + body).status == 400
    assert server.is_well


def test_too_many_or_too_long_headers_are_431(server: Running) -> None:
    many = {f"x-{number}": "1" for number in range(200)}
    got = server.ask(server.head("GET", "/healthz", **many))
    assert (got.status, got.error["code"]) == (431, "too_many_headers")
    with server.connected() as wire:
        send(wire, b"GET /healthz HTTP/1.1\r\nx: " + b"x" * (2 * HEAD_BYTES_MAX))
        got = answer(wire)
        assert (got.status, got.error["code"]) == (431, "too_many_headers")
    assert server.is_well


@pytest.mark.parametrize("padding", [b"x", b" "])
def test_the_request_head_limit_is_exact_to_the_byte(server: Running, padding: bytes) -> None:
    head = server.head("GET", "/healthz").removesuffix(b"\r\n")
    room = HEAD_BYTES_MAX - len(head + b"x: \r\n\r\n")
    for over, status in ((0, 200), (1, 431), (8 * 1024, 431)):
        with server.connected() as wire:
            send(wire, head + b"x: " + padding * (room + over) + b"\r\n\r\n")
            assert answer(wire).status == status
            assert status == 200 or is_closed(wire)
    assert server.is_well


def test_a_body_received_with_its_head_does_not_count_as_head_bytes(server: Running) -> None:
    size = 2 * HEAD_BYTES_MAX
    put = server.head("PUT", f"{server.files}/body.md", Content_Length=str(size)) + b"x" * size
    with server.connected() as wire:
        for status in (201, 200):
            send(wire, put)
            assert answer(wire).status == status


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        (b"1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        (b"1.1", b"Content-Length: 41\r\nTRANSFER-ENCODING: chunked\r\n"),
        (b"1.0", b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n"),
    ],
)
def test_an_ambiguous_body_length_is_400_and_closes_the_connection(
    server: Running, version: bytes, headers: bytes
) -> None:
    smuggled = server.head("GET", "/healthz")
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    with server.connected() as wire:
        line = b"POST /healthz HTTP/" + version + b"\r\n"
        send(wire, line + host + headers + b"\r\n0\r\n\r\n" + smuggled)
        got = answer(wire)
        assert (got.status, got.error["code"], got.headers["connection"]) == (
            400,
            "invalid",
            "close",
        )
        assert wire.recv(1) == b""
    assert server.is_well


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /\x80 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_malformed_http_gets_a_json_error_and_closes_the_connection(
    server: Running, data: bytes
) -> None:
    with server.connected() as wire:
        send(wire, data + b"\r\n" * 2)
        got = answer(wire)
        assert got.status in {400, 501}
        assert set(json.loads(got.body)) == {"error"}
        assert is_closed(wire)
    assert server.is_well


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET /healthz HTTP/1.1", "127.0.0.1:{port}", 200),
        ("GET /healthz HTTP/1.1", "localhost:{port}", 200),
        ("GET /healthz HTTP/1.1", "[::1]:{port}", 200),
        ("GET /healthz HTTP/1.1", "localhost", 421),
        ("GET /healthz HTTP/1.1", "127.0.0.1:evil.com", 421),
        ("GET /healthz HTTP/1.1", "rebound.evil.com:{port}", 421),
        ("GET http://127.0.0.1:{port}/healthz HTTP/1.1", "rebound.evil.com:{port}", 421),
        ("GET http://evil.com/healthz HTTP/1.1", "127.0.0.1:{port}", 404),
        ("GET //evil.com/healthz HTTP/1.1", "127.0.0.1:{port}", 404),
        ("OPTIONS * HTTP/1.1", "127.0.0.1:{port}", 404),
        ("CONNECT evil.com:443 HTTP/1.1", "127.0.0.1:{port}", 404),
        ("TRACE /healthz HTTP/1.1", "127.0.0.1:{port}", 405),
    ],
)
def test_the_origin_check_runs_before_routing(
    server: Running, line: str, host: str, status: int
) -> None:
    stated = f"{line}\r\nHost: {host}\r\n\r\n".replace("{port}", str(server.port))
    assert server.ask(stated.encode()).status == status


def test_http_1_0_without_a_host_is_refused(server: Running) -> None:
    assert server.ask(b"GET /healthz HTTP/1.0\r\n\r\n").status == 400


def test_a_user_header_that_is_not_utf_8_is_400(server: Running) -> None:
    head = server.head("GET", "/accounts/me", X_Harness_User="ID")
    got = server.ask(head.replace(b"ID", b"\xff"))
    assert (got.status, got.error["field"]) == (400, "X-Harness-User")


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    with server.connected() as wire:
        send(wire, server.head("GET", "/healthz") + server.head("GET", "/accounts/me"))
        told = b""
        while b"ownerId" not in told:
            told += received(wire)
        assert told.count(b"HTTP/1.1 200 OK") == 2
        assert told.index(b'{"status":"ok"}') < told.index(b"ownerId")


def test_a_disconnected_client_does_not_break_the_server(server: Running) -> None:
    for _ in range(20):
        with server.connected() as wire:
            send(wire, server.head("PUT", f"{server.files}/a.md", Content_Length="100") + b"x")
        with server.connected() as wire:
            send(wire, server.head("GET", f"{server.files}/MEMORY.md"))
    assert server.is_well
    assert server.ask(server.head("GET", f"{server.files}/a.md")).status == 404


def test_a_stopping_server_finishes_running_requests_and_accepts_no_new_connection(
    tmp_path: Path,
) -> None:
    """A write waits for the writer lock; the server is asked to end; the lock is let go."""
    with running(tmp_path / "home") as server:
        workspace = server.harness.workspaces.get("notes")
        lock = WriterLock(server.harness.settings.home.lock(workspace.namespace))
        with server.connected() as wire, server.connected() as idle:
            send(idle, server.head("GET", "/healthz"))
            assert answer(idle).status == 200
            until(lambda: not server.server.server_state.tasks)
            with lock.hold("the test"):
                put = server.head("PUT", f"{server.files}/a.md", Content_Length="1") + b"x"
                send(wire, put)
                until(lambda: server.server.server_state.tasks)
                server.server.should_exit = True
                assert is_closed(idle)
                with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port)):
                    pass
            assert answer(wire).status == 201
            assert is_closed(wire)
    assert workspace.read("a.md").data == b"x"


def test_an_endless_request_does_not_prevent_shutdown(tmp_path: Path) -> None:
    with (
        running(tmp_path / "home", patience=replace(PATIENT, drain_s=SHORT)) as server,
        server.connected() as wire,
    ):
        send(wire, server.head("PUT", f"{server.files}/a.md", Content_Length="100") + b"x")
        until(lambda: server.server.server_state.tasks)
        server.server.should_exit = True
        assert is_closed(wire)
    assert "CancelledError" in server.log.getvalue()


def test_a_connection_over_the_maximum_is_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.web.server.CONNECTIONS_MAX", 2)
    with running(tmp_path / "home") as server:
        with server.connected() as one, server.connected() as two:
            until(lambda: len(server.server.server_state.connections) == 2)
            with server.connected() as three:
                got = answer(three)
                assert (got.status, got.error["code"]) == (503, "busy")
                assert is_closed(three)
            for wire in (one, two):
                send(wire, server.head("GET", "/healthz"))
                assert answer(wire).status == 200
        until(lambda: not server.server.server_state.connections)
        assert server.is_well


def test_a_port_already_in_use_is_an_error_that_names_the_option(server: Running) -> None:
    with pytest.raises(Unavailable, match=str(server.port)) as caught:
        listen("127.0.0.1", server.port)
    assert "--port" in (caught.value.remedy or "")
    with pytest.raises(Unavailable):
        listen("no.such.name.invalid", 0)
