"""Templates of workspaces: those that are shipped and those of a home."""

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


def test_every_shipped_template_is_listed() -> None:
    assert tuple(sorted(workspace_templates(NOWHERE))) == OURS


@pytest.mark.parametrize("name", OURS)
def test_a_template_is_short_and_explains_how_to_keep_memory(name: str) -> None:
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
def test_a_workspace_created_from_a_template_has_one_revision(name: str, tmp_path: Path) -> None:
    with Harness.open(tmp_path) as harness:
        workspace = harness.workspaces.create("new", template=name)
        assert len(workspace.log()) == 1
        assert workspace.tree.scan().problems == []


def test_a_template_directory_of_the_home_overrides_a_shipped_template(tmp_path: Path) -> None:
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


def test_a_template_file_that_cannot_be_kept_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "templates/team").mkdir(parents=True)
    (tmp_path / "templates/team/link.md").symlink_to("/etc/passwd")
    with Harness.open(tmp_path) as harness:
        with pytest.raises(Refused, match="link"):
            harness.workspaces.create("one", template="team")
        (tmp_path / "templates/team/link.md").unlink()
        (tmp_path / "templates/team/a:b.md").write_text("x")
        with pytest.raises(Refused, match=r"a:b\.md"):
            harness.workspaces.create("one", template="team")
