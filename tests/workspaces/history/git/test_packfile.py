from __future__ import annotations

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT
from workspaces.clock import ManualClock
from workspaces.history.git.objects import PACKED_FROM, GitObjects
from workspaces.history.git.packfile import BYTES_MAX, Packed, fits_in_pack, write_pack
from workspaces.history.history import History
from workspaces.paths import WorkspacePath


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "h.git"


@pytest.fixture
def history(directory: Path, clock: ManualClock) -> History:
    return History.create(directory, clock)


def git(directory: Path, *arguments: str) -> str:
    command = ["git", f"--git-dir={directory}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def loose(directory: Path) -> list[Path]:
    return list(directory.glob("objects/[0-9a-f][0-9a-f]/*"))


def packs(directory: Path) -> list[Path]:
    return sorted(directory.glob("objects/pack/*.pack"))


def files(count: int, salt: str = "") -> dict[WorkspacePath, bytes | None]:
    return {
        WorkspacePath(f"notes/{number % 7}/{number}.md"): b"%d %s\n" % (number, salt.encode())
        for number in range(count)
    }


def test_many_files_are_written_as_a_single_pack_that_git_can_read(
    history: History, directory: Path
) -> None:
    planted = files(PACKED_FROM)
    revision = history.record(planted, AGENT)
    assert len(packs(directory)) == 1 and loose(directory) == []
    assert git(directory, "fsck", "--strict", "--full") == ""
    git(directory, "verify-pack", str(packs(directory)[0]))
    for reader in (history, History(directory, ManualClock())):
        tree = reader.tree(revision)
        assert {path: reader.read(found) for path, found in tree.items()} == planted


def test_few_files_are_written_as_loose_objects(history: History, directory: Path) -> None:
    history.record(files(3), AGENT)
    assert packs(directory) == [] and loose(directory)


def test_existing_objects_are_not_packed_again(history: History, directory: Path) -> None:
    history.record(files(10), AGENT)
    before = len(loose(directory))
    history.record(files(PACKED_FROM * 2), AGENT)
    names = {path.parent.name + path.name for path in loose(directory)}
    packed = git(directory, "verify-pack", "-v", str(packs(directory)[0])).split()
    assert len(names) == before and not names & set(packed)
    assert git(directory, "fsck", "--strict", "--full") == ""


def test_packing_joins_all_packs_and_loose_objects_into_a_single_pack(
    history: History, directory: Path
) -> None:
    for salt in ("a", "b", "c"):
        history.record(files(PACKED_FROM, salt), AGENT)
        history.record({WorkspacePath("MEMORY.md"): salt.encode()}, AGENT)
    assert len(packs(directory)) == 3
    (directory / "objects/pack/tmp_pack_left").write_bytes(b"by one who died")
    tree = history.tree(history.tip())
    history.pack()
    assert len(packs(directory)) == 1 and loose(directory) == []
    assert history.tree(history.tip()) == tree
    assert git(directory, "fsck", "--strict", "--full") == ""


def test_objects_of_every_size_and_id_are_read_back_from_a_pack(directory: Path) -> None:
    """Sizes around each length of the size's own encoding; names from the first byte to the last."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    git(directory.parent, "init", "--quiet", "--bare", str(directory))
    sizes = [0, 1, 15, 16, 2047, 2048, 2**18 - 1, 2**18, 3_000_000]
    sizes += [dice.randrange(5000) for _ in range(600)]
    blobs = [dice.randbytes(size // 2) + b"x" * (size - size // 2) for size in sizes]
    held = {_blob_id(data): Packed("blob", data) for data in blobs}
    assert len({one[:2] for one in held}) > 200
    write_pack(directory / "objects/pack", held, level=1)
    git(directory, "verify-pack", str(packs(directory)[0]))
    objects = GitObjects(directory / "objects")
    assert all(objects.read(name) == one.data for name, one in held.items())


def test_objects_too_large_for_a_pack_are_detected() -> None:
    class Endless(bytes):
        def __len__(self) -> int:
            return BYTES_MAX

    assert fits_in_pack({"a": Packed("blob", b"x")})
    assert not fits_in_pack({"a": Packed("blob", Endless())})


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()
