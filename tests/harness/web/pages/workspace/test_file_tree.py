"""The tree of files: what is open, and pages of long folders."""

from __future__ import annotations

from harness.web.pages.workspace.file_tree import ENTRIES_MAX, TreeFolder, folder_of


def names(folder: TreeFolder) -> list[str]:
    return [*(f"{name}/" for name, _ in folder.folders), *(name for name, _ in folder.files)]


SIZES = {"MEMORY.md": 1, "notes/a.md": 2, "notes/deep/b.md": 3, "notes/deep/c.md": 4, "other/d": 5}


def test_only_the_folders_above_the_file_are_open() -> None:
    root = folder_of(SIZES, "notes/a.md")
    assert names(root) == ["notes/", "other/", "MEMORY.md"]
    (_, notes), (_, other) = root.folders
    assert notes is not None
    assert names(notes) == ["deep/", "a.md"]
    assert notes.folders[0][1] is None
    assert other is None


def test_a_folder_itself_can_be_opened() -> None:
    (_, notes), _ = folder_of(SIZES, "notes/deep").folders
    assert notes is not None
    deep = notes.folders[0][1]
    assert deep is not None
    assert names(deep) == ["b.md", "c.md"]


def test_a_long_folder_comes_in_pages_that_hold_every_entry_once() -> None:
    sizes = {f"f{n:04}.md": n for n in range(ENTRIES_MAX + 30)} | {
        f"d{n:03}/x.md": n for n in range(ENTRIES_MAX + 7)
    }
    seen: list[str] = []
    after = ""
    while True:
        page = folder_of(sizes, "", after)
        assert len(page.folders) + len(page.files) <= ENTRIES_MAX
        seen += names(page)
        after = page.following
        if not after:
            break
    assert len(seen) == len(set(seen)) == 2 * ENTRIES_MAX + 37
