"""Importing notes: where files go, and that nothing in the workspace is overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from harness import Harness
from harness.integrations.import_notes import ImportPlan, carry_out, plan_import, recognised
from workspaces.errors import Conflict, NotFound, OverLimit, Refused
from workspaces.revision import RevisionId
from workspaces.workspace.workspace import Workspace


@pytest.fixture
def harness(tmp_path: Path) -> Generator[Harness]:
    with Harness.open(tmp_path / "home") as harness:
        yield harness


@pytest.fixture
def notes(harness: Harness) -> Workspace:
    return harness.workspaces.get("notes")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def fill(place: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def brought(harness: Harness, plan: ImportPlan, workspace: Workspace) -> list[RevisionId]:
    by = harness.rooms.principal.author("api")
    return carry_out(plan, workspace, by=by, on_progress=lambda _: None)


def fates(plan: ImportPlan) -> dict[str, tuple[str, str]]:
    return {item.source: (item.fate, item.path) for item in plan.items}


def reasons(plan: ImportPlan) -> dict[str, str]:
    return {left.name: left.reason for left in plan.left}


def test_importing_a_directory_keeps_every_path_in_one_revision(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"notes/a.md": "a\n", "plans/2026/b.md": "b\n", "data.bin": b"\0\xff"})
    before = len(notes.log())
    plan = plan_import(source, notes)
    assert (plan.kind, len(notes.log())) == ("files", before)  # planning changes nothing
    (revision,) = brought(harness, plan, notes)
    newest = notes.log()[0]
    assert newest.id == revision
    assert newest.subject.startswith("imported from source · 3 files: data.bin, notes/a.md")
    assert newest.trailers["Imported"] == "source"
    assert notes.read("data.bin").data == b"\0\xff"


def test_importing_the_same_directory_again_changes_nothing(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"MEMORY.md": "# Memory\n\n- tea\n", "notes/a.md": "a\n"})
    brought(harness, plan_import(source, notes), notes)
    again = plan_import(source, notes)
    assert {item.fate for item in again.items} == {"same"}
    assert brought(harness, again, notes) == []
    notes.write("notes/a.md", "a, and more\n", by=harness.rooms.principal.author("api"))
    assert fates(plan_import(source, notes))["notes/a.md"] == ("known", "notes/a.md")


def test_an_import_overwrites_no_file(harness: Harness, notes: Workspace, source: Path) -> None:
    me = harness.rooms.principal.author("api")
    notes.write("notes/a.md", "mine\n", by=me)
    notes.write("TASKS.md", "# Tasks\n\n- [ ] mine\n", by=me)
    fill(source, {"notes/a.md": "theirs\n", "TASKS.md": "# Tasks\n\n- [ ] theirs\n- [ ] mine\n"})
    plan = plan_import(source, notes)
    fate, beside = fates(plan)["notes/a.md"]
    assert fate == "beside"
    brought(harness, plan, notes)
    assert notes.read("notes/a.md").text == "mine\n"
    assert notes.read(beside).text == "theirs\n"
    assert notes.read("TASKS.md").text == "# Tasks\n\n- [ ] mine\n\n- [ ] theirs\n"
    assert {item.fate for item in plan_import(source, notes).items} == {"same"}


def test_a_memory_file_that_is_not_text_is_imported_beside_the_existing_file(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"MEMORY.md": b"\xff\xfe# M"})
    memory = notes.read("MEMORY.md").data
    plan = plan_import(source, notes, "files")
    brought(harness, plan, notes)
    assert plan.items[0].fate == "beside"
    assert notes.read("MEMORY.md").data == memory
    assert notes.read(plan.items[0].path).data == b"\xff\xfe# M"


def test_an_import_stops_at_a_file_changed_after_the_plan(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"notes/a.md": "theirs\n"})
    plan = plan_import(source, notes)
    (notes.root / "notes").mkdir(exist_ok=True)
    (notes.root / "notes/a.md").write_text("by hand, a moment ago\n")
    with pytest.raises(Conflict):
        brought(harness, plan, notes)
    assert notes.read("notes/a.md").text == "by hand, a moment ago\n"


def test_imported_names_are_mapped_or_skipped_and_each_is_reported(
    notes: Workspace, source: Path
) -> None:
    fill(
        source,
        {
            "What: now?.md": "w",
            "memory.MD": "not the list",
            "NOTES/b.md": "b",
            ".git/config": "x",
            "sub/.gitignore": "x",
            "a.md~": "backup",
            ".DS_Store": "x",
            "notes/c.md": "c",
            "MEMORY.md/inside.md": "below a file",
        },
    )
    plan = plan_import(source, notes, "files")
    told = fates(plan)
    assert told["What: now?.md"] == ("new", "What_ now_.md")
    assert told["NOTES/b.md"][1].casefold() == "notes/b.md"
    assert {told[name][1].split("/")[0] for name in ("NOTES/b.md", "notes/c.md")} == {
        told["NOTES/b.md"][1].split("/")[0]
    }
    left = reasons(plan)
    assert left[".git/"] == "was not searched"
    assert "reserved" in left["sub/.gitignore"]
    assert left["a.md~"] == left[".DS_Store"] == "belongs to another program"
    assert left["MEMORY.md/inside.md"] == "would lie below MEMORY.md, which is a file"


def test_imported_files_whose_names_collide_do_not_overwrite_each_other(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(
        source,
        {"x/Plan.md": "one\n", "x/plan.md": "two\n", "x/plan:.md": "3\n", "x/plan_.md": "4\n"},
    )
    brought(harness, plan_import(source, notes), notes)
    assert notes.tree.scan().problems == []
    texts = {notes.read(path).text for path in notes.files() if path.startswith("x/")}
    assert texts == {"one\n", "two\n", "3\n", "4\n"}


def test_an_import_over_the_quota_is_refused_before_writing(harness: Harness, source: Path) -> None:
    config = {"quota": {"files": 10, "bytes": 10_000, "fileBytes": 6_000}}
    small = harness.workspaces.create("small", config=config)
    tip = small.history.tip()
    fill(source, {"a.md": "a" * 5_000, "b.md": "b" * 4_900})
    with pytest.raises(OverLimit, match="size of the workspace"):
        plan_import(source, small)
    assert small.history.tip() == tip


def test_many_imported_files_become_few_revisions(
    harness: Harness, notes: Workspace, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.integrations.import_notes.REVISION_FILES_MAX", 10)
    fill(source, {f"n{number}.md": f"{number}\n" for number in range(25)})
    done: list[int] = []
    plan = plan_import(source, notes)
    revisions = carry_out(
        plan, notes, by=harness.rooms.principal.author("api"), on_progress=done.append
    )
    assert (len(revisions), done) == (3, [10, 10, 5])


# --- what people have -------------------------------------------------------------------------------


def test_the_instructions_of_a_project_are_imported_into_memory(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(
        source,
        {
            "CLAUDE.md": "# Shop\n\n- Run `make test` first.\n\nSee @docs/style.md and @AGENTS.md.\n",
            "AGENTS.md": "# Agents\n\n- Never push.\n",
            ".claude/rules/css/grid.md": "- Use grid.\n",
            ".claude/rules/tests.md": "- Test first.\n",
            ".claude/settings.json": "{}",
            "src/main.py": "print()",
            ".git/config": "x",
        },
    )
    plan = plan_import(source, notes)
    assert plan.kind == "project"
    brought(harness, plan, notes)
    memory = notes.read("MEMORY.md").text
    assert "## From CLAUDE.md\n\n### Shop\n\n- Run `make test` first." in memory
    assert "## From AGENTS.md\n\n### Agents\n\n- Never push." in memory
    assert notes.read("notes/rules/tests.md").text == "- Test first.\n"
    left = reasons(plan)
    assert left["docs/style.md"] == "is mentioned in CLAUDE.md; import it by itself"
    assert left[".claude/settings.json"] == "is not an instruction for agents"
    assert left["src/"] == left[".git/"] == "was not searched"
    assert not [path for path in notes.files() if "main.py" in path]
    assert plan_import(source, notes).after == {}


def test_long_instructions_are_imported_as_a_note_linked_from_memory(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"CLAUDE.md": "".join(f"- rule {number}\n" for number in range(200))})
    brought(harness, plan_import(source / "CLAUDE.md", notes), notes)
    assert notes.read("notes/CLAUDE.md").text.count("rule") == 200
    assert "`notes/CLAUDE.md`" in notes.read("MEMORY.md").text
    assert "rule 1\n" not in notes.read("MEMORY.md").text


CLAUDES = {
    "MEMORY.md": "# Memory index\n\n- [Build](build.md) — how\n- [Site](https://x.y/z.md)\n",
    "build.md": "---\nname: build\ndescription: how\ntype: project\n---\n\nmake all\n",
}


def test_a_memory_folder_of_claude_code_is_imported_as_index_and_notes(
    harness: Harness, notes: Workspace, tmp_path: Path
) -> None:
    project = tmp_path / ".claude/projects/-home-ann-shop"
    fill(project / "memory", CLAUDES)
    fill(project, {"4711.jsonl": "{}"})
    for place in (project / "memory", project):
        assert recognised(place) == "claude-memory"
        brought(harness, plan_import(place, notes), notes)
    memory = notes.read("MEMORY.md").text
    assert "- [Build](notes/build.md) — how\n- [Site](https://x.y/z.md)\n" in memory
    assert notes.read("notes/build.md").text == CLAUDES["build.md"]
    assert not [path for path in notes.files() if path.endswith(".jsonl")]
    with pytest.raises(Refused, match="holds the memories of 1 projects") as refused:
        plan_import(tmp_path / ".claude", notes)
    assert f"harness import {project}/memory" in (refused.value.remedy or "")


def test_an_obsidian_vault_is_imported_as_notes(
    harness: Harness, notes: Workspace, source: Path, tmp_path: Path
) -> None:
    fill(
        source,
        {
            ".obsidian/workspace.json": "{}",
            ".trash/old.md": "x",
            "Ideas/Garden.md": "see [[Tea]]\n",
            "Tea.md": "green\n",
            "img/leaf.png": b"\x89PNG",
            "CLAUDE.md": "kept as a note of the vault\n",
        },
    )
    archive = shutil.make_archive(str(tmp_path / "vault"), "zip", tmp_path, "source")
    plan = plan_import(source, notes)
    assert plan.kind == "obsidian"
    assert fates(plan)["Ideas/Garden.md"] == ("new", "notes/Ideas/Garden.md")
    assert fates(plan_import(Path(archive), notes)) == fates(plan)
    assert reasons(plan)[".obsidian/"] == "was not searched"
    brought(harness, plan, notes)
    assert notes.read("notes/img/leaf.png").data == b"\x89PNG"


def test_a_single_file_is_imported_as_a_note(
    harness: Harness, notes: Workspace, source: Path
) -> None:
    fill(source, {"garden.md": "g\n", "MEMORY.md": "# Memory\n\n- new\n"})
    assert plan_import(source / "garden.md", notes).items[0].path == "notes/garden.md"
    assert plan_import(source / "MEMORY.md", notes).items[0].path == "MEMORY.md"


def test_importing_a_missing_path_is_not_found(notes: Workspace, source: Path) -> None:
    with pytest.raises(NotFound):
        plan_import(source / "nothing", notes)
    assert plan_import(source, notes).items == ()
