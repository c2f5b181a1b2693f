"""A restored home that shares its workspaces: it takes what changed meanwhile, and brings nothing back."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.backup.create import create
from harness.backup.restore import restore
from harness.backup.verify import verify
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock

COUNT = 12


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def laptops(tmp_path: Path, clock: ManualClock) -> tuple[Laptop, Laptop]:
    """Two machines with the same files; the second one joined."""
    prefix = MemoryPrefix()
    first = Laptop(tmp_path / "first", prefix, clock, joins=False)
    for number in range(COUNT):
        first.put("notes", f"{number}.md", f"{number}\n")
    first.sync()
    second = Laptop(tmp_path / "second", prefix, clock)
    second.attach("notes")
    return first, second


def test_a_restored_home_pulls_and_pushes_neither_old_files_nor_deletions(
    laptops: tuple[Laptop, Laptop], tmp_path: Path, clock: ManualClock
) -> None:
    first, second = laptops
    first.put("notes", "unpushed.md", "only here\n")
    first.put("notes", "5.md", "5\nonly here\n")
    place = str(tmp_path / "backup")
    assert create(first.home, place, bucket=first.place()).troubles == []
    assert verify(place).is_whole

    # afterwards the first machine writes on and is lost, and the second one changes, deletes and adds
    first.put("notes", "0.md", "0, by the lost machine\n")
    first.put("notes", "later.md", "later, by the lost machine\n")
    first.sync()
    second.sync()
    second.put("notes", "1.md", "1, changed\n")
    second.put("notes", "new.md", "new\n")
    for gone in ("2.md", "3.md"):
        (second.workspaces.get("notes").root / gone).unlink()
    second.sync()
    expected = second.texts("notes")

    restore(tmp_path / "restored", place)
    restored = Laptop(tmp_path / "restored", first.prefix, clock, joins=False)
    assert "2.md" in restored.texts("notes")
    restored.sync()
    assert restored.texts("notes") == expected
    second.sync()
    assert second.texts("notes") == expected
    assert "2.md" not in expected
    assert expected["5.md"] == "5\nonly here\n"
    assert not any("conflict" in name for name in expected)


def test_what_was_not_pushed_at_the_backup_is_pushed_by_the_restored_home(
    laptops: tuple[Laptop, Laptop], tmp_path: Path, clock: ManualClock
) -> None:
    first, second = laptops
    first.put("notes", "unpushed.md", "only here\n")
    first.put("notes", "5.md", "5\nonly here\n")
    (first.workspaces.get("notes").root / "7.md").unlink()
    place = str(tmp_path / "backup")
    create(first.home, place, bucket=first.place())
    restore(tmp_path / "restored", place)
    restored = Laptop(tmp_path / "restored", first.prefix, clock, joins=False)
    restored.sync()
    second.sync()
    assert second.texts("notes") == restored.texts("notes")
    assert second.texts("notes")["unpushed.md"] == "only here\n"
    assert second.texts("notes")["5.md"] == "5\nonly here\n"
    assert "7.md" not in second.texts("notes")
