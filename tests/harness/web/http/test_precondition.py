"""If-Match and If-None-Match: how they are parsed, and how a request is checked against a version."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from harness.web.http.errors import Malformed, Stale
from harness.web.http.precondition import Precondition, etag
from workspaces.ids import Version, version_of

ONE, TWO = version_of(b"one"), version_of(b"two")


def of(**headers: str | list[str]) -> Precondition:
    raw = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return Precondition.of(Headers(raw=raw))


def holds(condition: Precondition, version: Version | None) -> bool:
    try:
        condition.check(version)
    except Stale:
        return False
    return True


@pytest.mark.parametrize(
    ("stated", "version", "expected"),
    [
        (etag(ONE), ONE, True),
        (etag(ONE), TWO, False),
        (etag(ONE), None, False),
        (f"{etag(TWO)}, {etag(ONE)}", ONE, True),
        (f"{etag(TWO)},{etag(ONE)}", ONE, True),
        (f"{etag(TWO)} ,\t, {etag(ONE)}", ONE, True),
        (f"W/{etag(ONE)}", ONE, False),
        (f"W/{etag(ONE)}, {etag(ONE)}", ONE, True),
        ("*", ONE, True),
        ("*", None, False),
        ('""', ONE, False),
        ('"a,b"', ONE, False),
        (etag(Version(ONE.upper())), ONE, False),
    ],
)
def test_if_match_compares_strongly(stated: str, version: Version | None, expected: bool) -> None:
    assert holds(of(if_match=stated), version) is expected


@pytest.mark.parametrize(
    ("stated", "version", "expected"),
    [
        ("*", None, True),
        ("*", ONE, False),
        (etag(ONE), ONE, False),
        (etag(ONE), TWO, True),
        (etag(ONE), None, True),
        (f"W/{etag(ONE)}", ONE, False),
        (f"{etag(TWO)}, W/{etag(ONE)}", ONE, False),
    ],
)
def test_if_none_match_compares_weakly(
    stated: str, version: Version | None, expected: bool
) -> None:
    assert holds(of(if_none_match=stated), version) is expected


@pytest.mark.parametrize(
    "stated",
    [
        "",
        ",",
        ONE,
        f"'{ONE}'",
        f'"{ONE}',
        f'{ONE}"',
        "* *",
        f'*, "{ONE}"',
        f'"{ONE}" "{TWO}"',
        f'w/"{ONE}"',
        'W/ "x"',
        '"a b"',
        f'"{ONE}";',
        "W/*",
    ],
)
@pytest.mark.parametrize("name", ["if_match", "if_none_match"])
def test_a_malformed_etag_list_is_refused_with_the_header_name(name: str, stated: str) -> None:
    with pytest.raises(Malformed) as caught:
        of(**{name: stated})
    assert caught.value.field == name.replace("_", "-").title()


def test_a_repeated_if_match_header_is_read_as_one_list() -> None:
    assert holds(of(if_match=[etag(TWO), etag(ONE)]), ONE)


def test_if_match_and_if_none_match_must_both_hold() -> None:
    both = of(if_match="*", if_none_match=etag(ONE))
    assert holds(both, TWO)
    assert not holds(both, ONE)
    assert not holds(both, None)


def test_a_request_without_a_precondition_is_unconditional() -> None:
    assert of().as_check is None
    stated = of(if_match=etag(ONE)).as_check
    assert stated is not None
    with pytest.raises(Stale):
        stated(TWO)
