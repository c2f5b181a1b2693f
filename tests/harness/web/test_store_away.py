"""Servers that share records, while S3 does not answer: what is refused, what waits, what was done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

import pytest

from harness import Harness
from tests.dynamodb_server import dynamodb, dynamodb_url
from tests.faulty_proxy import Carried, Fault, FaultyProxy, Reset, faulty_proxy
from tests.harness.web.serving import Home, Server
from tests.harness.web.test_shared_records import SHELL, Pair, homes, opened
from tests.servers import S3Server

__all__ = ["dynamodb", "dynamodb_url", "homes"]

ASYNC = {"Prefer": "respond-async"}


class Switch(FaultyProxy):
    """The wire to S3. It is cut by hand, or after some writes of files."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.writes_left: int | None = None

    def take(self, request: bytes) -> Fault:
        if self.writes_left == 0:
            return Reset()
        if self.writes_left is not None and _is_write(request):
            self.writes_left -= 1
        return Carried()


def _is_write(request: bytes) -> bool:
    line = request.partition(b"\r\n")[0]
    return line.startswith((b"PUT ", b"DELETE ")) and b".md" in line


@dataclass(frozen=True, kw_only=True)
class Wired(S3Server):
    wire: Switch


@pytest.fixture
def seaweedfs(seaweedfs: S3Server) -> Iterator[Wired]:
    """The server behind a wire, as the homes see it."""
    with faulty_proxy(seaweedfs.url, Switch) as wire:
        yield Wired(wire.url, wire=wire)


@pytest.fixture
def wire(seaweedfs: Wired) -> Switch:
    return seaweedfs.wire


@pytest.fixture
def pair(homes: tuple[Home, Home]) -> Iterator[Pair]:
    with opened(homes) as pair:
        yield pair


def answer(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Any:
    try:
        with server.opened(method, path, body, **headers) as opened:
            data = opened.read()
            is_json = "json" in opened.headers["Content-Type"]
            return opened.status, json.loads(data) if is_json else data, opened.headers
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers


def test_without_s3_a_request_is_refused_with_a_remedy_or_waits_if_it_may(
    pair: Pair, wire: Switch
) -> None:
    first, other = pair.servers
    place = pair.path("").removesuffix("/files/")
    before = answer(first, "PUT", pair.path("a.md"), "one")[1]["revision"]
    answer(first, "PUT", pair.path("a.md"), "two")
    wire.writes_left = 0
    for method, path, body in (
        ("GET", pair.path("a.md"), None),
        ("PUT", pair.path("a.md"), "three"),
        ("DELETE", pair.path("a.md"), None),
        ("POST", f"{place}/restore", {"path": "a.md", "revision": before}),
        ("POST", f"{place}/revert", {"revision": before}),
    ):
        status, said, _ = answer(first, method, path, body)
        assert status == 503, (method, path, said)
        assert said["error"]["code"] == "unavailable"
        told = said["error"]["message"].lower()
        assert "try again later" in told or "repeat the write" in told, said
    status, said, headers = answer(
        first, "POST", f"{place}/restore", {"path": "a.md", "revision": before}, **ASYNC
    )
    assert (status, headers["Preference-Applied"]) == (202, "respond-async"), said
    assert said["durable"]["files"] == "here"
    status, said, headers = answer(first, "PUT", pair.path("b.md"), "kept", **ASYNC)
    assert (status, headers["Preference-Applied"]) == (202, "respond-async"), said
    status, said, _ = answer(first, "PUT", pair.path("b.md"), "never", If_None_Match="*", **ASYNC)
    assert status == 503, "only S3 can say whether the condition holds"
    wire.writes_left = None
    for server in (first, other):  # the first one sends what waits
        assert answer(server, "GET", pair.path("b.md"))[1] == b'"kept"'
        assert answer(server, "GET", pair.path("a.md"))[1] == b'"one"'


def test_a_revert_says_which_files_are_done_and_which_are_left(pair: Pair, wire: Switch) -> None:
    with Harness.open(pair.homes[0].terminal.home) as harness:
        shared = harness.workspaces.get("shared")
        names = ["a.md", "b.md", "c.md"]
        revision = shared.change(names, lambda _: dict.fromkeys(names, b"told\n"), by=SHELL)
        harness.workspaces.sync("shared").run()
    server, place = pair.servers[0], pair.path("").removesuffix("/files/")
    wire.writes_left = 1
    status, said, _ = answer(server, "POST", f"{place}/revert", {"revision": revision})
    assert (status, said["files"]) == (200, ["a.md"])
    assert [one["path"] for one in said["left"]] == ["b.md", "c.md"]
    assert "cut" in said["left"][0]["message"]
    wire.writes_left = None
    kept = [answer(pair.servers[1], "GET", pair.path(name))[0] for name in names]
    assert kept == [404, 200, 200], "the answer says what the other server reads"
    status, said, _ = answer(server, "POST", f"{place}/revert", {"revision": revision})
    assert (status, said["files"], said["left"]) == (200, ["b.md", "c.md"], [])
