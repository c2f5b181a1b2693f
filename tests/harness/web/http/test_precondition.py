"""Conditions of requests, judged as the standard says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.datastructures import Headers

from harness.web.http.errors import Malformed, Stale
from harness.web.http.precondition import Expectation, Precondition, etag
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import AlreadyExists, Conflict, Unavailable
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
def test_what_is_no_list_of_tags_is_refused_and_named(name: str, stated: str) -> None:
    with pytest.raises(Malformed) as caught:
        of(**{name: stated})
    assert caught.value.field == name.replace("_", "-").title()


def test_a_header_that_comes_twice_is_one_list() -> None:
    assert holds(of(if_match=[etag(TWO), etag(ONE)]), ONE)


def test_both_conditions_must_hold() -> None:
    both = of(if_match="*", if_none_match=etag(ONE))
    assert holds(both, TWO)
    assert not holds(both, ONE)
    assert not holds(both, None)


def test_without_a_condition_the_act_expects_anything() -> None:
    expected: list[Expectation] = []
    of().act(lambda: ONE, expected.append)
    assert expected == [ANY]


def test_the_act_expects_exactly_what_was_judged() -> None:
    expected: list[Expectation] = []
    of(if_match=f"{etag(ONE)}, {etag(TWO)}").act(lambda: TWO, expected.append)
    of(if_none_match="*").act(lambda: None, expected.append)
    assert expected == [TWO, ABSENT]


def test_when_somebody_was_faster_the_condition_is_judged_anew() -> None:
    seen: Iterator[Version | None] = iter([ONE, TWO])
    acts: list[Expectation] = []

    def act(expect: Expectation) -> str:
        acts.append(expect)
        if expect == ONE:
            raise Conflict("file", "x", expected=ONE, actual=TWO)
        return "done"

    assert of(if_match="*").act(lambda: next(seen), act) == "done"
    assert acts == [ONE, TWO]


def test_a_condition_that_the_faster_one_has_broken_is_stale() -> None:
    seen: Iterator[Version | None] = iter([None, ONE, ONE])

    def act(expect: Expectation) -> None:
        raise AlreadyExists("file", "x")

    with pytest.raises(Stale, match="the file already exists"):
        of(if_none_match="*").act(lambda: next(seen), act)


def test_a_name_that_another_file_nearly_has_is_no_stale_condition() -> None:
    def act(expect: Expectation) -> None:
        raise AlreadyExists("file", "X")

    with pytest.raises(AlreadyExists):
        of(if_none_match="*").act(lambda: None, act)


def test_a_file_that_never_stands_still_ends_the_trying() -> None:
    def act(expect: Expectation) -> None:
        raise Conflict("file", "x", expected=ONE, actual=TWO)

    with pytest.raises(Unavailable, match="faster"):
        of(if_match="*").act(lambda: ONE, act)
