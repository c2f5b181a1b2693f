"""The header `Prefer`."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from harness.web.http.preference import may_wait


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["respond-async"], True),
        (["Respond-Async"], True),
        (["wait=10, respond-async"], True),
        (["return=minimal", "respond-async; x=1"], True),
        (["respond-asynchronously"], False),
        (["wait=10"], False),
        ([], False),
    ],
)
def test_only_respond_async_means_that_a_caller_does_not_wait(
    stated: list[str], expected: bool
) -> None:
    assert may_wait(Headers(raw=[(b"prefer", one.encode()) for one in stated])) is expected
