from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.runtime.templates import workspace_files, workspace_templates
from workspaces.errors import Refused

NOWHERE = Path("/nonexistent")
OURS = ("coding", "default", "personal", "research")
PROMPT_CHARACTERS_MAX = 1_000
"""Of a MEMORY.md that nobody has written into: it is paid for in every conversation."""


def test_there_is_a_template_for_each_use() -> None:
    assert tuple(sorted(workspace_templates(NOWHERE))) == OURS


@pytest.mark.parametrize("name", OURS)
def test_a_template_is_short_and_says_how_it_wants_to_be_kept(name: str) -> None:
    files = {path: data.decode() for path, data in workspace_files(name, NOWHERE).items()}
    assert {"MEMORY.md", "TASKS.md"} < set(files)
    assert any(path.startswith("notes/") for path in files)
    assert len(files["MEMORY.md"]) < PROMPT_CHARACTERS_MAX
    for path, text in files.items():
        assert text.startswith("# "), path
        assert text.endswith("\n"), path
        assert max(map(len, text.splitlines())) <= 120, path
    assert "<!--" in files["MEMORY.md"]


@pytest.mark.parametrize("name", OURS)
def test_a_workspace_of_each_begins_with_one_revision(name: str, tmp_path: Path) -> None:
    with Harness.open(tmp_path) as harness:
        workspace = harness.workspaces.create("new", template=name)
        assert len(workspace.log()) == 1
        assert workspace.scan().problems == []


def test_a_directory_of_ones_own_is_a_template_and_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "templates"
    (own / "team/notes").mkdir(parents=True)
    (own / "team/notes/a.md").write_text("a\n")
    (own / "team/notes/a.md~").write_text("an editor's\n")
    (own / "personal").mkdir()
    (own / "personal/MEMORY.md").write_text("# Mine\n")
    with Harness.open(tmp_path) as harness:
        assert harness.workspaces.create("one", template="team").files() == ["notes/a.md"]
        mine = harness.workspaces.create("two", template="personal")
        assert mine.read("MEMORY.md").text == "# Mine\n"
        for name in ("nothing", "../templates/team", str(own / "team"), "."):
            with pytest.raises(Refused, match="template"):
                harness.workspaces.create("three", template=name)
        assert [record.name for record in harness.workspaces.list()] == ["notes", "one", "two"]


def test_what_cannot_be_kept_in_a_template_is_said(tmp_path: Path) -> None:
    (tmp_path / "templates/team").mkdir(parents=True)
    (tmp_path / "templates/team/link.md").symlink_to("/etc/passwd")
    with Harness.open(tmp_path) as harness:
        with pytest.raises(Refused, match="link"):
            harness.workspaces.create("one", template="team")
        (tmp_path / "templates/team/link.md").unlink()
        (tmp_path / "templates/team/a:b.md").write_text("x")
        with pytest.raises(Refused, match=r"a:b\.md"):
            harness.workspaces.create("one", template="team")
