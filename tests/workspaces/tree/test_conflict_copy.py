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
def test_the_second_file_stands_beside_the_first(path: str, name: str) -> None:
    made = conflict_path(WorkspacePath(path), V)
    assert made == name
    assert is_conflict(made)


@pytest.mark.parametrize("stem", ["n" * 197, "ä" * 98, "a" * 190 + ".b"])
def test_a_long_name_is_cut_to_what_a_name_can_hold(stem: str) -> None:
    made = conflict_path(WorkspacePath(f"d/{stem}.md"), V)
    assert len(made.name.encode()) <= PART_BYTES_MAX
    assert is_conflict(made)


@pytest.mark.parametrize(
    "path", ["a.md", "conflict-0123456789ab.md", "a.conflict-xyz.md", f"a.conflict-{H}/b.md"]
)
def test_other_names_are_no_second_files(path: str) -> None:
    assert not is_conflict(path)
