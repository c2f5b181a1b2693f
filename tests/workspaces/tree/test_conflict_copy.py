from __future__ import annotations

import pytest

from workspaces.ids import version_of
from workspaces.paths import PART_BYTES_MAX, WorkspacePath
from workspaces.tree.conflict_copy import conflict_path, is_conflict

V = version_of(b"x")
H = V[:12]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("notes/plan.md", f"notes/plan.conflict-{H}.md"),
        ("MEMORY.md", f"MEMORY.conflict-{H}.md"),
        ("Makefile", f"Makefile.conflict-{H}"),
        (".env", f".env.conflict-{H}"),
        ("a.tar.gz", f"a.tar.conflict-{H}.gz"),
        ("x/plan.conflict-0123456789ab.md", f"x/plan.conflict-{H}.md"),
    ],
)
def test_a_conflict_copy_is_named_after_its_file_and_version(path: str, name: str) -> None:
    made = conflict_path(WorkspacePath(path), V)
    assert made == name
    assert is_conflict(made)


@pytest.mark.parametrize("stem", ["n" * 197, "ä" * 98, "a" * 190 + ".b"])
def test_the_name_of_a_conflict_copy_is_cut_to_the_length_limit(stem: str) -> None:
    made = conflict_path(WorkspacePath(f"d/{stem}.md"), V)
    assert len(made.name.encode()) <= PART_BYTES_MAX
    assert is_conflict(made)


@pytest.mark.parametrize(
    "path", ["a.md", "conflict-0123456789ab.md", "a.conflict-xyz.md", f"a.conflict-{H}/b.md"]
)
def test_similar_names_are_not_conflict_copies(path: str) -> None:
    assert not is_conflict(path)
