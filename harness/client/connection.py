"""A connection to a server: what is asked, what is answered, and events as they come."""

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
"""For an answer to begin: longer than a server waits for anybody."""
SILENCE_S_MAX = 45.0
"""Within a stream, in which a server gives signs of life every fifteen seconds."""

_TIMEOUT = httpx2.Timeout(ANSWER_S_MAX, connect=CONNECT_S_MAX)
_FOLLOWING = httpx2.Timeout(SILENCE_S_MAX, connect=CONNECT_S_MAX)
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream, in the words of docs/turns.md."""

    name: str
    data: JsonObject
    entry: int | None = None
    """The number of the entry that it is."""

    @property
    def text(self) -> str:
        """The piece of the answer that it is, if it is one."""
        return self.data["text"] if self.name == "text" else ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """For one event loop. Whatever goes wrong is a ServerFailure."""

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
        """`fields` are sent as JSON, `data` as it is."""
        if fields is not None:
            data, headers = _json(fields), {**_JSON, **(headers or {})}
        with self._translated():
            answered = await self._http.request(
                method, path, content=data, params=query, headers=headers
            )
        if answered.status_code >= 300:
            raise refusal_of(answered.status_code, answered.headers, answered.content)
        return HttpResponse(answered.status_code, answered.headers, answered.content)

    @asynccontextmanager
    async def told(
        self, method: str, path: str, *, fields: object = None, after: int = 0
    ) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """What is told from behind the entry `after` on, with signs of life."""
        data = None if fields is None else _json(fields)
        headers = {**(_JSON if data else {}), **({"Last-Event-ID": str(after)} if after else {})}
        with self._translated():
            asked = self._http.stream(
                method, path, content=data, headers=headers, timeout=_FOLLOWING
            )
            async with asked as answered:
                if answered.status_code >= 300:
                    body = await answered.aread()
                    raise refusal_of(answered.status_code, answered.headers, body)
                yield _told(_lines(answered.aiter_bytes()))

    async def close(self) -> None:
        await self._http.aclose()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise unreachable(self.url, str(error) or type(error).__name__) from error


def _json(fields: object) -> bytes:
    """ASCII, so that whatever Python takes for a text can be sent, and is judged where it arrives."""
    return json.dumps(fields).encode()


SIGN = StreamEvent("sign", {})
"""A sign of life."""


async def _told(lines: AsyncIterator[bytes]) -> AsyncIterator[StreamEvent]:
    found: dict[bytes, bytes] = {}
    async for line in lines:
        if line.startswith(b":"):
            yield SIGN
        elif line:
            name, _, value = line.partition(b":")
            found[name] = value.removeprefix(b" ")
        elif b"event" in found:
            number = found.get(b"id")
            data = json.loads(found[b"data"])
            yield StreamEvent(
                found[b"event"].decode(), data, None if number is None else int(number)
            )
            found = {}


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """An entry may be a line of megabytes: what comes of it is put together once."""
    begun: list[bytes] = []
    async for piece in pieces:
        first, *rest = piece.split(b"\n")
        begun.append(first)
        for line in rest:
            yield b"".join(begun)
            begun = [line]
