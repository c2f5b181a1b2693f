"""Locations: from the text of a location to a store, or to a refusal that names the broken rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.errors import Refused, Unavailable
from workspaces.home.locations import blobs_at, records_at
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.storage.s3.blobs import S3Blobs
from workspaces.storage.sqlite import SqliteRecords


def test_a_file_location_stores_blobs_under_their_names(tmp_path: Path) -> None:
    blobs_at(f"file:{tmp_path}").write("notes/a.md", b"hello", expect=ABSENT)
    assert (tmp_path / "blobs/notes/a.md").read_bytes() == b"hello"
    assert blobs_at(f"file:{tmp_path}").read("notes/a.md").data == b"hello"


def test_an_s3_location_opens_with_or_without_a_prefix_and_without_network() -> None:
    assert isinstance(blobs_at("s3://my-bucket"), S3Blobs)
    assert isinstance(blobs_at("s3://my-bucket/team/a"), S3Blobs)
    assert isinstance(blobs_at("s3://my-bucket/"), S3Blobs)


def test_a_memory_location_opens_blobs_and_records() -> None:
    assert isinstance(blobs_at("memory:"), MemoryBlobs)
    assert isinstance(records_at("memory:"), MemoryRecords)


def test_a_sqlite_location_creates_its_file(tmp_path: Path) -> None:
    store = records_at(f"sqlite:{tmp_path}/state.db", clock=ManualClock())
    assert isinstance(store, SqliteRecords)
    store.close()
    assert (tmp_path / "state.db").exists()


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("", "must be file:/directory, s3://bucket/prefix or memory:"),
        ("nonsense", "must be file:/directory, s3://bucket/prefix or memory:"),
        ("gs://bucket", "must be file:/directory, s3://bucket/prefix or memory:"),
        ("memory:x", "must be file:/directory, s3://bucket/prefix or memory:"),
        ("sqlite:/x.db", "must be file:/directory, s3://bucket/prefix or memory:"),
        ("file:", "must have an absolute path after the colon"),
        ("file:here", "must have an absolute path after the colon"),
        ("file:/a\0b", "must have an absolute path after the colon"),
        ("s3:bucket", "must be written s3://bucket/prefix"),
        ("s3://", "must name a bucket"),
        ("s3://B", "must name a bucket"),
        ("s3://user:key@bucket/prefix", "must name a bucket"),
        ("s3://bucket/../up", "has a prefix that has an empty, '.' or '..' part"),
        ("s3://bucket//x", "has a prefix that is absolute"),
    ],
)
def test_a_location_that_cannot_be_opened_is_refused_with_its_rule(
    location: str, rule: str
) -> None:
    with pytest.raises(Refused) as caught:
        blobs_at(location, field="storage.files")
    assert (caught.value.field, caught.value.value) == ("storage.files", location)
    assert caught.value.rule.startswith(rule)


@pytest.mark.parametrize("location", ["", "s3://bucket", "memory", "sqlite:state.db"])
def test_a_records_location_that_cannot_be_opened_is_refused(location: str) -> None:
    with pytest.raises(Refused) as caught:
        records_at(location)
    assert (caught.value.field, caught.value.value) == ("records", location)


def test_a_file_location_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        blobs_at(f"file:{tmp_path}/file/below")
