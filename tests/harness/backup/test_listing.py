"""Listings and snapshots that come from anyone: what leads elsewhere, or is not whole, is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.backup.depot import Depot
from harness.backup.listing import (
    LINE_BYTES_MAX,
    PIECE_BYTES_MAX,
    BackupSnapshot,
    FileSignature,
    ListedFile,
    Piece,
    Range,
    parse_listing,
    parse_snapshot,
)
from harness.backup.restore import restore
from workspaces.conditions import ABSENT
from workspaces.errors import Failure, Refused
from workspaces.home.locations import blobs_at
from workspaces.ids import version_of

NAME = f"fs-{'0' * 40}"
DIGEST = "a" * 64
STAMP = "2026-11-20T095238.215242Z"
FILE: dict[str, Any] = {
    "path": f"workspaces/{NAME}/a.md",
    "mode": 0o600,
    "size": 3,
    "mtime": 1,
    "pieces": [[DIGEST, 0, 3]],
}


def parsed(*lines: dict[str, Any]) -> list[Any]:
    return list(parse_listing(STAMP, ["".join(f"{json.dumps(one)}\n" for one in lines).encode()]))


def snapshot(listing: tuple[str, ...], files: int, size: int) -> BackupSnapshot:
    return BackupSnapshot(
        stamp=STAMP,
        machine="m",
        records=False,
        records_signature=(),
        files=files,
        size=size,
        listing=listing,
        left_out=(),
    )


def test_a_line_returns_as_it_was_written() -> None:
    signature = FileSignature(3, 1, 2, 9)
    parts = (Range(Piece(DIGEST), 4, 3),)
    file = ListedFile(f"workspaces/{NAME}/\udcff.md", 0o640, 3, 1, parts, signature)
    text = f"{file.as_line()}\n".encode()
    assert list(parse_listing(STAMP, [text[:20], text[20:]])) == [file]


@pytest.mark.parametrize(
    "change",
    [
        {"path": f"workspaces/{NAME}/../../../x"},
        {"path": f"/workspaces/{NAME}/x"},
        {"path": f"workspaces/{NAME}//x"},
        {"path": f"workspaces/{NAME}/x\0"},
        {"path": "workspaces/other/x"},
        {"path": "history/x.git/HEAD"},
        {"path": "locks/servers.lock"},
        {"path": "tokens/x"},
        {"path": "machine"},
        {"path": "state.db-wal"},
        {"path": "a" * 5000 + ".yaml"},
        {"path": 7},
        {"mode": 0o4755},
        {"mode": -1},
        {"mode": True},
        {"size": 4},
        {"size": 2**80},
        {"mtime": "1"},
        {"pieces": [["../../x", 0, 3]]},
        {"pieces": [[DIGEST, PIECE_BYTES_MAX, 3]]},
        {"pieces": [[DIGEST, 0]]},
        {"pieces": 3},
        {"ctime": 1},
    ],
)
def test_a_line_that_is_not_of_a_backup_is_refused(change: dict[str, Any]) -> None:
    assert len(parsed(FILE)) == 1
    with pytest.raises(Refused):
        parsed({**FILE, **change})


def test_a_listing_that_repeats_a_path_or_does_not_end_is_refused() -> None:
    with pytest.raises(Refused, match="twice"):
        parsed(FILE, FILE)
    with pytest.raises(Refused, match="ends within"):
        list(parse_listing(STAMP, [json.dumps(FILE).encode()]))
    with pytest.raises(Refused, match="too long"):
        list(parse_listing(STAMP, [b"x" * (LINE_BYTES_MAX + 1)]))
    with pytest.raises(Refused):
        list(parse_listing(STAMP, [b"[" * 100_000 + b"\n"]))


@pytest.mark.parametrize(
    "change",
    [{"format": 2}, {"format": None}, {"at": "other"}, {"listing": ["x"]}, {"files": 2**62}],
)
def test_a_snapshot_with_an_invalid_field_is_refused(change: dict[str, Any]) -> None:
    document = json.loads(snapshot((DIGEST,), 1, 3).as_bytes())
    assert parse_snapshot(STAMP, json.dumps(document).encode()).files == 1
    with pytest.raises(Refused, match=STAMP):
        parse_snapshot(STAMP, json.dumps({**document, **change}).encode())


@pytest.mark.parametrize(
    "lines",
    [
        [{**FILE, "path": "cards"}, {**FILE, "path": "cards/x"}],  # a file is no directory
        [{**FILE, "size": 9, "pieces": [[None, 0, 9]]}],  # a piece shorter than it says
        [{**FILE, "size": 2**62, "pieces": [[None, 0, 3]] * 2}],
    ],
)
def test_a_hostile_listing_leaves_the_home_as_it_was(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    store = blobs_at(f"file:{tmp_path / 'backup'}")
    data = version_of(b"tea")
    store.write(f"objects/{data[:2]}/{data}", b"tea", expect=ABSENT)
    for line in lines:
        line["pieces"] = [[data, *rest] for _, *rest in line["pieces"]]
    listing = "".join(f"{json.dumps(one)}\n" for one in lines).encode()
    name = version_of(listing)
    store.write(f"objects/{name[:2]}/{name}", listing, expect=ABSENT)
    size = sum(line["size"] for line in lines)
    Depot(store, "here").put_snapshot(snapshot((name,), len(lines), size))
    with pytest.raises(Failure):
        restore(tmp_path / "home", str(tmp_path / "backup"), files_only=True)
    assert not list((tmp_path / "home/workspaces").iterdir())
    assert not list((tmp_path / "home/cards").glob("*"))
