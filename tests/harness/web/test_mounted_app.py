"""The API mounted inside another web application, behind that application's authentication."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from harness import Harness
from harness.web.app import create_app
from tests.harness.web.site import BASE, Caller
from tests.harness.web.turning import Puppet, said, settled
from workspaces.accounts.principal import Principal

TURNS = "/memory/v1/agents/assistant/turns"


@pytest.fixture
def platform(tmp_path: Path, puppet: Puppet) -> Iterator[Caller]:
    """Somebody whom the platform knows."""
    with Harness.open(tmp_path / "home", model=puppet) as harness:

        async def authenticate(request: Request) -> Principal | None:
            return harness.rooms.principal if request.headers.get("x-session") == "me" else None

        memory = create_app(harness, authenticate=authenticate)

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
            async with memory.router.lifespan_context(memory):
                yield

        app = FastAPI(lifespan=lifespan)
        app.mount("/memory", memory)
        with TestClient(app, BASE, raise_server_exceptions=False) as client:
            yield Caller(client, headers={"x-session": "me"})


def test_locations_in_answers_of_a_mounted_app_are_reachable(
    platform: Caller, puppet: Puppet
) -> None:
    puppet.stops("hello")
    answer = platform("POST", TURNS, json=said("e/1"))
    assert answer.headers["location"] == answer.json()["statusUrl"]
    done = settled(platform, answer.json()["statusUrl"])
    assert done["reply"] == "hello"
    for path, fields in (
        (f"/memory/v1/conversations/{done['conversationId']}/fork", {"key": "c2"}),
        ("/memory/accounts/me/agents", {"name": "helper"}),
    ):
        made = platform("POST", path, json=fields)
        assert platform.get(made.headers["location"])["id"] == made.json()["id"]


def test_links_between_pages_of_a_mounted_app_work(platform: Caller) -> None:
    seen, left = set[str](), ["/memory/", "/memory/docs"]
    while left:
        path = left.pop()
        seen.add(path)
        answer = platform("GET", path)
        assert answer.status_code == 200, path
        if "html" in answer.headers["content-type"]:
            found = re.findall(r'(?:src|href)="([^"#]+)', answer.text)
            left += {unescape(one) for one in found} - seen
    assert {"/memory/assets/docs.js", "/memory/assets/style.css", "/memory/openapi.json"} <= seen


def test_a_caller_unknown_to_the_platform_is_401(platform: Caller) -> None:
    stranger = Caller(platform.client)
    assert stranger.refused(401, "GET", "/memory/accounts/me")["code"] == "unauthorized"
    assert platform.refused(404, "GET", "/memory/nope")["code"] == "not_found"
    assert platform.refused(405, "PUT", "/memory/accounts/me")["code"] == "method_not_allowed"
