"""A person with a browser, without the browser: a client with a session, who posts forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.testclient import TestClient

from tests.harness.web.site import BASE, Site

TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


@dataclass(frozen=True)
class Visitor:
    client: TestClient
    token: str
    """Of the forms of this session."""

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def post(self, path: str, /, files: Any = None, **fields: str) -> httpx2.Response:
        data = {"token": self.token, **fields}
        return self.client.post(path, data=data, files=files, headers={"Origin": BASE})

    def done(self, path: str, /, files: Any = None, **fields: str) -> str:
        """The address to which a form leads."""
        answer = self.post(path, files, **fields)
        assert answer.status_code == 303, (path, answer.status_code, answer.text)
        return answer.headers["location"]


def visitor(site: Site, key: str | None = None) -> Visitor:
    """Signed in with a key; without one, with a new key of the home's account."""
    if key is None:
        _, key = site.harness.rooms.keys.create()
    client = TestClient(site.app, BASE, follow_redirects=False, raise_server_exceptions=False)
    answer = client.post("/sign-in", data={"key": key}, headers={"Origin": BASE})
    assert answer.status_code == 303, answer.text
    found = TOKEN.search(client.get("/").text)
    assert found is not None
    return Visitor(client, found[1])
