"""Vectors from an endpoint that speaks as OpenAI's does: `POST {url}/embeddings`.

The endpoint may be slow, broken or hostile. A question and its answer have one deadline, however the
answer drips. The answer has a longest length. The key goes to the address that the owner has set and
nowhere else: a redirect is refused.
"""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import isfinite
from time import monotonic
from typing import Any

from workspaces.errors import Unavailable

ANSWER_S_MAX = 10.0
"""A question waits for this; then it is answered by its words alone."""

ANSWER_BYTES_MAX = 32 * 2**20
"""64 vectors of 4 096 numbers in decimal are a fifth of it."""


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    answer_s_max: float = ANSWER_S_MAX
    answer_bytes_max: int = ANSWER_BYTES_MAX

    @property
    def name(self) -> str:
        return f"{self.model} at {self.url}"

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Unavailable when it does not answer, or not with one vector a text."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        body = json.dumps({"model": self.model, "input": list(texts)}).encode()
        address = f"{self.url.rstrip('/')}/embeddings"
        try:
            request = urllib.request.Request(address, body, headers)  # noqa: S310 - the owner's setting
            return _vectors(json.loads(self._answer(request)))
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(address, _refusal(error), remedy=_remedy(error)) from error
        except TimeoutError as error:
            told = f"it does not answer within {self.answer_s_max:g} s"
            raise Unavailable(address, told) from error
        except (OSError, ValueError, HTTPException) as error:
            raise Unavailable(address, str(error)) from error
        except (LookupError, TypeError, RecursionError, OverflowError) as error:
            raise Unavailable(address, "its answer holds no embeddings") from error

    def _answer(self, request: urllib.request.Request) -> bytes:
        until = monotonic() + self.answer_s_max
        opener = urllib.request.build_opener(_NoRedirect, _Http(until), _Https(until))
        try:
            with opener.open(request, timeout=self.answer_s_max) as answer:
                data: bytes = answer.read(self.answer_bytes_max + 1)
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise error.reason from error
            raise
        if len(data) > self.answer_bytes_max:
            raise ValueError(f"its answer has more than {self.answer_bytes_max:,} bytes")
        return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves every redirect an error: following one would take the key to another host."""

    def redirect_request(
        self, req: object, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


class _Http(urllib.request.HTTPHandler):
    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_read_until(HTTPConnection, self._until), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_read_until(HTTPSConnection, self._until), req)


def _read_until(kind: type[HTTPConnection], until: float) -> Any:
    """Return what makes connections whose answers are read until then and no longer."""

    class Response(HTTPResponse):
        def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            raw: Any = self.fp.detach()
            self.fp = io.BufferedReader(_Timed(raw, sock.settimeout, until))

    class Connection(kind):
        response_class = Response

    return Connection


class _Timed(io.RawIOBase):
    """A socket's bytes: each read waits no longer than what is left of the time for all of them."""

    def __init__(self, raw: Any, settimeout: Callable[[float], None], until: float) -> None:
        self._raw = raw
        self._settimeout = settimeout
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        self._settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _refusal(error: urllib.error.HTTPError) -> str:
    told = f"it answers {error.code} {error.reason}"
    where = error.headers.get("Location")
    return f"{told}, a redirect to {where!r}: none is followed" if where else told


def _remedy(error: urllib.error.HTTPError) -> str | None:
    """Of a redirect alone: where the endpoint really is must be said by the owner."""
    if error.headers.get("Location") is None:
        return None
    return "set HARNESS_EMBEDDINGS_URL to where the endpoint is, if you trust that with its key"


def _vectors(document: Any) -> list[list[float]]:
    """In the order of the texts, which the answer numbers."""
    ordered = sorted(document["data"], key=lambda one: one["index"])
    vectors = [[float(number) for number in one["embedding"]] for one in ordered]
    if not all(isfinite(number) for vector in vectors for number in vector):
        raise TypeError("not a number")
    return vectors
