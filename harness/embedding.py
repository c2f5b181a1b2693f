"""Vectors from an endpoint that speaks as OpenAI's does: `POST {url}/embeddings`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
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
            with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:  # noqa: S310
                document = json.loads(answer.read(ANSWER_BYTES_MAX))
            return _vectors(document)
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(address, f"it answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise Unavailable(address, str(error)) from error
        except (LookupError, TypeError) as error:
            raise Unavailable(address, "its answer holds no embeddings") from error


def _vectors(document: Any) -> list[list[float]]:
    """In the order of the texts, which the answer numbers."""
    ordered = sorted(document["data"], key=lambda one: one["index"])
    return [[float(number) for number in one["embedding"]] for one in ordered]
