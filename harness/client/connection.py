"""A connection to a server: requests, responses, and events as they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from harness.client.errors import refusal_of, unreachable
from workspaces.storage.records import JsonObject

CONNECT_S_MAX = 10.0
ANSWER_S_MAX = 120.0
"""Seconds for a response to begin: longer than a server waits for any lock or store."""
SILENCE_S_MAX = 45.0
"""Seconds without data in a stream, in which a server sends a sign of life every fifteen seconds."""

_TIMEOUT = httpx2.Timeout(ANSWER_S_MAX, connect=CONNECT_S_MAX)
_FOLLOWING = httpx2.Timeout(SILENCE_S_MAX, connect=CONNECT_S_MAX)
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream, as docs/turns.md names it."""

    name: str
    data: JsonObject
    entry: int | None = None
    """The entry's number, if the event is an entry."""

    @property
    def text(self) -> str:
        """Return the piece of text, if the event is one; otherwise an empty text."""
        return self.data["text"] if self.name == "text" else ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A connection for one event loop. Every failure is raised as a ServerFailure."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        with self._translated():
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                transport=transport,
                timeout=_TIMEOUT,
            )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        fields: object = None,
        data: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request and return its response. `fields` are sent as JSON, `data` as it is."""
        if fields is not None:
            data, headers = _json(fields), {**_JSON, **(headers or {})}
        with self._translated():
            response = await self._http.request(
                method, path, content=data, params=query, headers=headers
            )
        if response.status_code >= 300:
            raise refusal_of(response.status_code, response.headers, response.content)
        return HttpResponse(response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, fields: object = None, after: int = 0
    ) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """Yield the events of a stream from behind the entry `after` on, with signs of life."""
        data = None if fields is None else _json(fields)
        headers = {**(_JSON if data else {}), **({"Last-Event-ID": str(after)} if after else {})}
        with self._translated():
            request = self._http.stream(
                method, path, content=data, headers=headers, timeout=_FOLLOWING
            )
            async with request as response:
                if response.status_code >= 300:
                    body = await response.aread()
                    raise refusal_of(response.status_code, response.headers, body)
                yield _events(_lines(response.aiter_bytes()))

    async def close(self) -> None:
        await self._http.aclose()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise unreachable(self.url, str(error) or type(error).__name__) from error


def _json(fields: object) -> bytes:
    """Return the JSON in ASCII. So every text that Python accepts can be sent, and the server validates
    it."""
    return json.dumps(fields).encode()


SIGN = StreamEvent("sign", {})
"""A sign of life."""


async def _events(lines: AsyncIterator[bytes]) -> AsyncIterator[StreamEvent]:
    fields: dict[bytes, bytes] = {}
    async for line in lines:
        if line.startswith(b":"):
            yield SIGN
        elif line:
            name, _, value = line.partition(b":")
            fields[name] = value.removeprefix(b" ")
        elif b"event" in fields:
            number = fields.get(b"id")
            data = json.loads(fields[b"data"])
            yield StreamEvent(
                fields[b"event"].decode(), data, None if number is None else int(number)
            )
            fields = {}


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. An entry may be a line of megabytes, so its pieces are joined once."""
    line_start: list[bytes] = []
    async for piece in pieces:
        first, *rest = piece.split(b"\n")
        line_start.append(first)
        for line in rest:
            yield b"".join(line_start)
            line_start = [line]
