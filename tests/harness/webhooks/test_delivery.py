"""One delivery: its signature, what counts as received, and addresses that are refused."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from harness.jobs.job import ATTEMPTS_MAX
from harness.jobs.runner import TryAgain
from harness.webhooks import delivery
from harness.webhooks.delivery import PAUSES_S, deliver
from harness.webhooks.webhook import Webhook, WebhookRecord
from tests.harness.webhooks.receiver import receiving

NOTICE = {"id": "notice_1", "event": "turn.finished", "turnId": "turn_1"}
AT_S = 1_790_000_000


def webhook(url: str) -> Webhook:
    fields: dict[str, Any] = {"id": "hook_1", "created_at": "2026-01-01T00:00:00.000000Z"}
    return Webhook(WebhookRecord(url=url, events=("turn.finished",), **fields), "whsec_test")


def sent(url: str, *, allows_private: bool = True) -> None:
    asyncio.run(deliver(webhook(url), NOTICE, now_s=AT_S, allows_private=allows_private))


def refused(url: str, *, allows_private: bool = True) -> str:
    with pytest.raises(TryAgain) as caught:
        sent(url, allows_private=allows_private)
    assert caught.value.pauses_s == PAUSES_S
    return str(caught.value)


def test_a_receiver_can_verify_the_signature_of_a_delivery() -> None:
    with receiving() as receiver:
        sent(receiver.url)
        ((headers, body),) = receiver.received
    assert json.loads(body) == NOTICE
    time, _, given = headers["harness-signature"].partition(",v1=")
    assert time == f"t={AT_S}"
    expected = hmac.new(b"whsec_test", f"{AT_S}.".encode() + body, sha256).hexdigest()
    assert hmac.compare_digest(given, expected)
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "reason"), [(500, "answered 500"), (404, "answered 404"), (302, "not followed")]
)
def test_an_answer_outside_200_to_299_is_tried_again_and_no_redirect_is_followed(
    status: int, reason: str
) -> None:
    with receiving() as receiver:
        receiver.statuses = [status]
        assert reason in refused(receiver.url)
        assert len(receiver.received) == 1


def test_eight_tries_take_a_day() -> None:
    assert len(PAUSES_S) + 1 == ATTEMPTS_MAX == 8
    assert 23 * 3600 < sum(PAUSES_S) < 24 * 3600


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[64:ff9b::10.0.0.1]",
        "[2002:0a00:0001::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "224.0.0.1",
        "100.64.0.1",
    ],
)
def test_an_address_that_is_not_public_is_not_connected_to(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: object, **more: object) -> Any:
        raise AssertionError("it connected")

    monkeypatch.setattr(asyncio, "open_connection", never)
    assert "not public" in refused(f"http://{host}:8/x", allows_private=False)


def test_a_name_with_one_private_address_is_refused_and_the_checked_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that answers anew at each question cannot lead the connection elsewhere."""
    asked: list[str] = []
    connected: list[str] = []

    async def found(self: object, host: str, port: int, **more: object) -> Any:
        asked.append(host)
        addresses = ["93.184.216.34", "10.0.0.1"] if host == "mixed.example" else ["93.184.216.34"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    async def connect(address: str, port: int, **more: object) -> Any:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    assert "not public" in refused("http://mixed.example/x", allows_private=False)
    assert connected == []
    assert "cannot be reached" in refused("http://public.example/x", allows_private=False)
    assert (asked, connected) == (["mixed.example", "public.example"], ["93.184.216.34"])


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """The address of a server that sends these bytes and then keeps the connection open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            wire, _ = server.accept()
            with wire:
                wire.sendall(data)
                ended.wait(60)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        ended.set()
        thread.join(60)


@pytest.mark.parametrize("data", [b"SSH-2.0\r\n", b"HTTP/1.1 2000 OK\r\n", b"x" * 100_000, b"\n"])
def test_what_is_no_http_is_not_taken_for_an_answer(data: bytes) -> None:
    with answering(data) as url:
        assert "it answered 0" in refused(url)


def test_a_receiver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "ANSWER_S", 0.2)
    with answering(b"HTTP/1.1 ") as url:
        assert "no answer" in refused(url)


def test_a_receiver_whose_certificate_nobody_vouches_for_is_not_sent_to() -> None:
    with answering(b"not tls") as url:
        assert "cannot be reached" in refused(url.replace("http://", "https://"))
