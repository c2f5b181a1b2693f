"""Parallel listing: in a model while names come and go, and on S3 servers."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import md5

import pytest
from greenlet import getcurrent, greenlet

from tests.servers import BUCKET, S3Server
from workspaces.conditions import ANY
from workspaces.ids import new_id
from workspaces.storage.blobs import Stat, Token
from workspaces.storage.s3 import blobs
from workspaces.storage.s3.blobs import S3Blobs
from workspaces.storage.s3.parallel_listing import ListingPage, cuts_of, in_parts

NAMES = [f"{a}{b}{c}" for a in ("notes", "no") for b in ("/", "-", ".", "/x/") for c in "abcdefg"]

ORDERS: list[Callable[[str], object]] = [
    lambda name: name,
    lambda name: name.split("/"),  # directory by directory, as seaweedfs
    lambda name: md5(name.encode(), usedforsecurity=False).digest(),
]


class Listed:
    """A store that somebody changes with every page."""

    def __init__(self, randomly: random.Random) -> None:
        self._randomly = randomly
        self._order = randomly.choice(ORDERS)
        self._page_keys = randomly.randrange(1, 8)
        self.names = set(randomly.sample(NAMES, randomly.randrange(len(NAMES))))
        self.always = {name for name in self.names if randomly.random() < 0.7}
        self.ever = set(self.names)

    def ask(self, after: str, more: str | None) -> ListingPage:
        self._change()
        last = after if more is None else more
        behind = sorted(
            (n for n in self.names if not last or self._order(n) > self._order(last)),
            key=self._order,  # type: ignore[arg-type]
        )
        page = behind[: self._page_keys]
        is_last = len(behind) <= self._page_keys
        return ListingPage(
            [Stat(name, 1, Token("t")) for name in page], None if is_last else page[-1]
        )

    def _change(self) -> None:
        name = self._randomly.choice(NAMES)
        if self._randomly.random() < 0.5 and name not in self.always:
            self.names.symmetric_difference_update({name})
            self.ever |= self.names


def interleaved(randomly: random.Random, listed: Listed) -> tuple[object, object]:
    """Parts that take turns at every page, as the seed has it."""
    parts: list[greenlet] = []

    def ask(after: str, more: str | None) -> ListingPage:
        if getcurrent() in parts:
            hub.switch()
        page = listed.ask(after, more)
        if getcurrent() in parts and randomly.random() < 0.5:
            hub.switch()  # its answer is on the way
        return page

    def each(do: Callable[[int], None], count: int) -> None:
        parts.extend(greenlet(lambda number=number: do(number)) for number in range(count))
        running = list(parts)
        while running:
            one = randomly.choice(running)
            one.switch()
            if one.dead:
                running.remove(one)

    hub = getcurrent()
    return ask, each


@pytest.mark.parametrize("shard", range(10))
def test_a_parallel_listing_misses_no_name_that_exists_throughout(shard: int) -> None:
    first = random.randrange(2**40)
    for seed in range(first, first + 300):
        randomly = random.Random(seed)
        listed = Listed(randomly)
        cuts = randomly.sample(NAMES, randomly.randrange(6))
        ask, each = interleaved(randomly, listed)
        found = {stat.name for stat in in_parts(ask, cuts, each)}  # type: ignore[arg-type]
        print(f"seed {seed}")
        assert listed.always <= found <= listed.ever


def test_a_parallel_listing_requests_each_page_once() -> None:
    names = sorted(NAMES)
    asked: list[tuple[str, str | None]] = []

    def ask(after: str, more: str | None) -> ListingPage:
        asked.append((after, more))
        behind = [name for name in names if name > (more or after)]
        return ListingPage(
            [Stat(n, 1, Token("t")) for n in behind[:10]], behind[9] if behind[10:] else None
        )

    assert sorted(stat.name for stat in in_parts(ask, cuts_of(names, 10))) == names
    assert len(asked) == -(-len(names) // 10)
    assert all(more is None for _, more in asked)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 21])
def test_the_cuts_of_a_parallel_listing_are_at_page_ends(count: int) -> None:
    names = [f"{number:03}" for number in range(count)]
    assert list(cuts_of(names, 10)) == names[9:-1:10]
    assert len(cuts_of(names, 10)) + 1 == max(1, -(-count // 10))


def test_a_failure_in_a_part_fails_the_parallel_listing() -> None:
    def ask(after: str, more: str | None) -> ListingPage:
        if after == "b":
            raise ConnectionError
        return ListingPage([], None)

    with pytest.raises(ConnectionError):
        in_parts(ask, ["a", "b", "c"])


@pytest.fixture(params=["seaweedfs", "moto_s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Blobs:
    server: S3Server = request.getfixturevalue(request.param)
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    store = S3Blobs(BUCKET, new_id("test"), page_keys=3)
    request.addfinalizer(store.close)
    return store


def test_a_parallel_listing_of_a_server_equals_a_sequential_listing(store: S3Blobs) -> None:
    seed = random.randrange(2**40)
    print(f"seed {seed}")
    randomly = random.Random(seed)
    names = [f"{name}.md" for name in NAMES[::2]]
    there = set(names)
    for name in names:
        store.write(name, b"x", expect=ANY)
    for _ in range(6):
        whole = [stat.name for stat in store.walk()]
        assert whole == sorted(there)
        for known in (sorted(names), sorted(randomly.sample(names, 12)), ["0", "notes/5.md", "zz"]):
            assert [stat.name for stat in store.walk(known=known)] == whole
        for name in randomly.sample(sorted(there), 3):
            store.delete(name, expect=ANY)
            there.remove(name)


def test_names_missing_in_a_parallel_listing_are_checked_by_a_sequential_listing(
    store: S3Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"notes/{number}.md" for number in range(9)]
    for name in names:
        store.write(name, b"x", expect=ANY)
    whole = blobs.in_parts

    def forgetful(ask: object, cuts: object) -> list[Stat]:
        found = whole(ask, cuts)  # type: ignore[arg-type]
        return found[1:] if cuts else found

    monkeypatch.setattr(blobs, "in_parts", forgetful)
    assert [stat.name for stat in store.walk(known=names)] == names


@pytest.mark.parametrize("known", [9, 4, 0])
def test_a_parallel_listing_counts_its_requests(store: S3Blobs, known: int) -> None:
    names = [f"notes/{number}.md" for number in range(9)]
    for name in names:
        store.write(name, b"x", expect=ANY)
    asked: list[None] = []
    listed = store.walk(known=names[:known], asked=lambda: asked.append(None))
    assert (len(list(listed)), len(asked)) == (9, 3)
