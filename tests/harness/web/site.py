"""A home behind its HTTP app, in this process, and callers with keys of their own."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from harness import Harness
from harness.bootstrap.authentication import admin_key
from harness.models.port import Model
from harness.runtime.json_log import JsonLines
from harness.web.app import create_app
from workspaces.clock import Clock

BASE = "http://testserver"


@dataclass(frozen=True)
class Caller:
    """Somebody with a key, or without."""

    client: TestClient
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __call__(self, method: str, path: str, **more: Any) -> httpx2.Response:
        own = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers = {**own, **self.headers, **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **more)

    def get(self, path: str, **more: Any) -> Any:
        answer = self("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def list(self, path: str, name: str, **more: Any) -> list[Any]:
        """The list of an answer, which is the only page."""
        page = self.get(path, **more)
        assert set(page) == {name, "nextCursor"}, page
        assert page["nextCursor"] is None
        return page[name]

    def post(self, path: str, fields: object, status: int = 201, **more: Any) -> Any:
        answer = self("POST", path, json=fields, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def refused(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The error of an answer that must have this status and the one shape of errors."""
        answer = self(method, path, **more)
        assert answer.status_code == status, (answer.status_code, answer.text)
        body = answer.json()
        assert set(body) == {"error"}, body
        optional = {"field", "lines", "memory"}
        assert {"code", "message"} <= set(body["error"]) <= {"code", "message", *optional}, body
        return body["error"]

    def workspace(self, name: str = "w", **fields: Any) -> str:
        return self.post("/accounts/me/workspaces", {"name": name, **fields})["id"]

    def file(self, workspace: str, path: str, data: bytes = b"x\n") -> httpx2.Response:
        answer = self("PUT", f"/v1/workspaces/{workspace}/files/{path}", content=data)
        assert answer.status_code in {200, 201}, answer.text
        return answer

    def agent(self, name: str = "helper", **config: Any) -> str:
        mounts = [{"name": "w", "workspaceId": self.workspace(f"of {name}")}]
        config = {"workspaces": mounts, **config}
        return self.post("/accounts/me/agents", {"name": name, "config": config})["id"]

    def as_user(self, reference: str) -> Caller:
        return Caller(self.client, self.key, {"X-Harness-User": reference})

    def user_key(self, name: str) -> Caller:
        """Somebody with a key of a new user of this caller's account."""
        user = self.post("/accounts/me/users", {"name": name})
        key = self.post(f"/accounts/me/users/{user['id']}/keys", {})["key"]
        return Caller(self.client, key)


@dataclass(frozen=True)
class Site:
    harness: Harness
    app: FastAPI
    client: TestClient
    lines: io.StringIO
    """What was logged."""

    @classmethod
    @contextmanager
    def open(
        cls, home: Path, *, model: Model | None = None, clock: Clock | None = None, **options: Any
    ) -> Iterator[Site]:
        with Harness.open(home, model=model, clock=clock) as harness, captured_log() as lines:
            app = create_app(harness, **options)
            with TestClient(app, BASE, raise_server_exceptions=False) as client:
                yield cls(harness, app, client, lines)

    @property
    def nobody(self) -> Caller:
        return Caller(self.client)

    @property
    def admin(self) -> Caller:
        return Caller(self.client, admin_key(self.harness.settings.home))

    def account(self, name: str) -> Caller:
        return Caller(self.client, self.admin.post("/accounts", {"name": name})["key"])


@contextmanager
def captured_log() -> Iterator[io.StringIO]:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("harness")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
