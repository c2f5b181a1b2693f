"""Capabilities of a store: the probe finds out which stores honour conditions, and leaves no blob behind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.dynamodb_server import dynamodb, dynamodb_url
from tests.faulty_proxy import Lost, faulty_proxy
from tests.servers import BUCKET, S3Server
from workspaces.conditions import ANY
from workspaces.errors import Conflict, Unavailable
from workspaces.home.locations import blobs_at, make_record_table, records_at
from workspaces.remote.s3_capabilities import Capabilities, keeps_conditions, probe
from workspaces.storage.blobs import BlobName, Expect
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.storage.records import Check, Delete, Put, RecordChange, RecordStore
from workspaces.storage.s3.blobs import S3Blobs
from workspaces.storage.sqlite import SqliteRecords

__all__ = ["dynamodb", "dynamodb_url"]

HONEST = Capabilities(conditional_put=True, conditional_delete=True)


@pytest.fixture
def open_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[S3Server], S3Blobs]]:
    stores: list[S3Blobs] = []

    def open_on(server: S3Server, url: str | None = None) -> S3Blobs:
        for name, value in server.environment(url=url).items():
            monkeypatch.setenv(name, value)
        stores.append(S3Blobs(BUCKET, f"test-{secrets.token_hex(6)}", sleep=lambda _: None))
        return stores[-1]

    yield open_on
    for store in stores:
        store.close()


@pytest.mark.parametrize("server", ["seaweedfs", "moto_s3"])
def test_the_probe_recognises_an_s3_server_that_honours_conditions(
    server: str, request: pytest.FixtureRequest, open_on: Callable[[S3Server], S3Blobs]
) -> None:
    store = open_on(request.getfixturevalue(server))
    assert probe(store) == HONEST
    assert list(store.walk()) == []


def test_the_probe_recognises_that_rclone_ignores_conditions(
    rclone_s3: S3Server, open_on: Callable[[S3Server], S3Blobs]
) -> None:
    store = open_on(rclone_s3)
    assert probe(store) == Capabilities(conditional_put=False, conditional_delete=False)
    assert list(store.walk()) == []


def test_the_probe_recognises_memory_and_directories_as_honouring_conditions(
    tmp_path: Path,
) -> None:
    for store in (MemoryBlobs(), blobs_at(f"file:{tmp_path}")):
        assert probe(store) == HONEST
        assert list(store.scan()) == []


class _DeletesBlindly(MemoryBlobs):
    def delete(self, name: BlobName, *, expect: Expect) -> None:
        super().delete(name, expect=ANY)


class _KnowsOnlyAbsent(MemoryBlobs):
    """Takes a token for ANY, as servers do that came before `If-Match`."""

    def _check(self, name: BlobName, expect: Expect) -> None:
        if not isinstance(expect, str):
            super()._check(name, expect)


class _RefusesEveryToken(MemoryBlobs):
    def _check(self, name: BlobName, expect: Expect) -> None:
        if isinstance(expect, str):
            raise Conflict("file", name, expected=expect, actual="?")
        super()._check(name, expect)


@pytest.mark.parametrize(
    ("store", "honesty"),
    [
        (_DeletesBlindly(), Capabilities(conditional_put=True, conditional_delete=False)),
        (_KnowsOnlyAbsent(), Capabilities(conditional_put=False, conditional_delete=False)),
        (_RefusesEveryToken(), Capabilities(conditional_put=False, conditional_delete=False)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_probe_detects_a_store_that_honours_only_some_conditions(
    store: MemoryBlobs, honesty: Capabilities
) -> None:
    assert probe(store) == honesty
    assert list(store.scan()) == []


def test_the_probe_reports_an_unreachable_store_as_unavailable(
    seaweedfs: S3Server, open_on: Callable[..., S3Blobs]
) -> None:
    with faulty_proxy(seaweedfs.url) as proxy:
        store = open_on(seaweedfs, proxy.url)
        assert list(store.walk()) == []
        proxy.next_faults = [Lost()]
        with pytest.raises(Unavailable):
            probe(store)
        assert list(store.walk()) == []


class AcceptsStaleWrites(MemoryRecords):
    """What a store would do that takes conditions and does not look at them."""

    def write(self, *changes: RecordChange) -> tuple[int, ...]:
        blind = (
            replace(change, expect=ANY) for change in changes if isinstance(change, Put | Delete)
        )
        return super().write(*blind)


class AcceptsBrokenGuards(MemoryRecords):
    def write(self, *changes: RecordChange) -> tuple[int, ...]:
        return super().write(*(change for change in changes if not isinstance(change, Check)))


def test_the_probe_recognises_record_stores_that_honour_conditions(tmp_path: Path) -> None:
    stores: list[RecordStore] = [MemoryRecords(), SqliteRecords(tmp_path / "state.db")]
    for store in stores:
        assert keeps_conditions(store)
        store.close()


@pytest.mark.usefixtures("dynamodb")
def test_the_probe_recognises_that_dynamodb_honours_conditions() -> None:
    make_record_table("honest-records")
    store = records_at("dynamodb:honest-records")
    assert keeps_conditions(store)
    store.close()


@pytest.mark.parametrize("liar", [AcceptsStaleWrites, AcceptsBrokenGuards])
def test_the_probe_detects_a_record_store_that_ignores_conditions(
    liar: type[MemoryRecords],
) -> None:
    store = liar()
    assert not keeps_conditions(store)
