"""Embeddings from an endpoint with OpenAI's interface: `POST {url}/embeddings`.

The endpoint may be slow, broken or hostile. One deadline covers a request and its answer, however slowly the
answer arrives. The answer's length is limited. The key is sent only to the address that the owner has set:
redirects are refused.
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
"""Seconds that a recall query waits for its embedding; after that it is answered by its words alone."""

ANSWER_BYTES_MAX = 32 * 2**20
"""The largest answer. 64 vectors of 4 096 numbers in decimal take a fifth of it."""


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
        """Return one vector for each text.

        Raises: Unavailable if the endpoint does not answer, or not with one vector for each text.
        """
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
            reason = f"it does not answer within {self.answer_s_max:g} s"
            raise Unavailable(address, reason) from error
        except (OSError, ValueError, HTTPException) as error:
            raise Unavailable(address, str(error)) from error
        except (LookupError, TypeError, RecursionError, OverflowError) as error:
            raise Unavailable(address, "its answer contains no valid embeddings") from error

    def _answer(self, request: urllib.request.Request) -> bytes:
        deadline = monotonic() + self.answer_s_max
        opener = urllib.request.build_opener(_NoRedirect, _Http(deadline), _Https(deadline))
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
    """A handler that makes every redirect an error: following one would send the key to another host."""

    def redirect_request(
        self, req: object, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connection_with_deadline(HTTPConnection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connection_with_deadline(HTTPSConnection, self._deadline), req)


def _connection_with_deadline(kind: type[HTTPConnection], deadline: float) -> Any:
    """Return a connection class whose answers are read until the deadline and no longer."""

    class Response(HTTPResponse):
        def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            raw: Any = self.fp.detach()
            self.fp = io.BufferedReader(_Timed(raw, sock.settimeout, deadline))

    class Connection(kind):
        response_class = Response

    return Connection


class _Timed(io.RawIOBase):
    """The bytes of a socket under one deadline: each read waits at most for the time that is left."""

    def __init__(self, raw: Any, settimeout: Callable[[float], None], deadline: float) -> None:
        self._raw = raw
        self._settimeout = settimeout
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self._settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _refusal(error: urllib.error.HTTPError) -> str:
    reason = f"it answers {error.code} {error.reason}"
    location = error.headers.get("Location")
    return (
        f"{reason}, a redirect to {location!r}: redirects are not followed" if location else reason
    )


def _remedy(error: urllib.error.HTTPError) -> str | None:
    """Return a remedy for a redirect, else None: the owner must set the endpoint's real address."""
    if error.headers.get("Location") is None:
        return None
    return "set HARNESS_EMBEDDINGS_URL to that address if you trust it with the key"


def _vectors(document: Any) -> list[list[float]]:
    """Return the vectors in the order of the texts, which the answer numbers."""
    ordered = sorted(document["data"], key=lambda one: one["index"])
    vectors = [[float(number) for number in one["embedding"]] for one in ordered]
    if not all(isfinite(number) for vector in vectors for number in vector):
        raise TypeError("not a number")
    return vectors
