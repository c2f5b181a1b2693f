from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from harness.agents.mounts import Mount
from harness.agents.record import AgentConfig
from harness.context.part import PromptPart
from harness.prompts.prompt_sources import PromptSources
from tests.workspaces.conftest import CALLER
from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.storage.in_memory import MemoryRecords
from workspaces.workspace.workspace import Workspace

DAY = date(2026, 11, 18)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_workspaces(tmp_path: Path, clock: ManualClock) -> Callable[[], Workspaces]:
    """A second call is a second process: nothing shared but the disk and the records."""
    home, records = Home(tmp_path / "home"), MemoryRecords(clock)
    home.prepare()
    owner = default_owner(records, clock)
    return lambda: Workspaces(owner, home, records, clock, template=lambda _: {})


@pytest.fixture
def workspace(open_workspaces: Callable[[], Workspaces]) -> Workspace:
    return open_workspaces().create("notes")


@pytest.fixture
def root(workspace: Workspace) -> Path:
    return workspace.root


def briefing(*workspaces: Workspace, maximum: int = 40_000, **more: object) -> PromptSources:
    config = AgentConfig.model_validate({"session": {"memory": {"maxLength": maximum}}})
    mounts = [Mount(one.record.name, one, True) for one in workspaces]
    return PromptSources(config, mounts, model="m", **more)  # type: ignore[arg-type]


def memory(of: Workspace, **more: object) -> PromptPart | None:
    parts = briefing(of, **more).parts(DAY)  # type: ignore[arg-type]
    return next((part for part in parts if part.is_memory), None)


def text(of: Workspace, **more: object) -> str:
    part = memory(of, **more)
    assert part is not None
    return part.text


def test_a_workspace_without_a_memory_file_has_no_part(workspace: Workspace) -> None:
    assert memory(workspace) is None
    workspace.write("notes/a.md", "# A\n", by=CALLER)
    workspace.write("sub/MEMORY.md", "- deep\n", by=CALLER)
    assert memory(workspace) is None


@pytest.mark.parametrize("name", ["memory.md", "Memory.md", "MEMORY.MD", "MEMORY.md.txt"])
def test_a_memory_file_name_in_another_spelling_is_no_memory(
    workspace: Workspace, name: str
) -> None:
    workspace.write(name, "- x\n", by=CALLER)
    assert memory(workspace) is None


def test_an_empty_memory_file_is_shown_as_empty(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "", by=CALLER)
    assert "\n(empty)\n" in text(workspace)


def test_a_manual_edit_to_memory_is_shown_and_committed(workspace: Workspace, root: Path) -> None:
    root.joinpath("MEMORY.md").write_text("- by hand\n")
    part = memory(workspace)
    assert part is not None
    assert "- by hand" in part.text
    assert part.revision == workspace.history.tip()
    assert workspace.log("MEMORY.md")[0].trailers["Source"] == "edit"


def test_an_unreadable_history_makes_only_its_own_memory_unavailable(
    open_workspaces: Callable[[], Workspaces], tmp_path: Path
) -> None:
    home = open_workspaces()
    good, bad = home.create("good"), home.create("bad")
    for one in (good, bad):
        one.write("MEMORY.md", "- x\n", by=CALLER)
    history = next(tmp_path.rglob(f"{bad.namespace}.git"))
    for file in (history / "objects").rglob("*"):
        if file.is_file():
            file.unlink()
    parts = {part.source: part for part in briefing(good, bad).parts(DAY)}
    assert "- x" in parts["memory/good"].text
    assert "(unavailable right now: " in parts["memory/bad"].text
    assert parts["memory/bad"].unavailable is not None
    assert not any(bad.namespace in part.text for part in parts.values())


def test_a_memory_file_that_is_a_problem_is_unavailable_and_not_missing(
    workspace: Workspace, root: Path
) -> None:
    root.joinpath("real").write_text("- x\n")
    root.joinpath("MEMORY.md").symlink_to("real")
    part = memory(workspace)
    assert part is not None
    assert part.unavailable is not None


def test_invalid_utf8_in_memory_is_shown_with_replacement_characters(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", b"- caf\xe9\n", by=CALLER)
    assert "- caf\ufffd" in text(workspace)


def test_a_workspace_whose_writer_lock_is_held_is_shown_at_its_newest_revision(
    workspace: Workspace, open_workspaces: Callable[[], Workspaces], root: Path
) -> None:
    workspace.write("MEMORY.md", "- kept\n", by=CALLER)
    other = open_workspaces().get("notes")
    with other.command(CALLER):
        root.joinpath("MEMORY.md").write_text("- half done\n")
        looked = briefing(workspace)
        seen = "\n".join(part.text for part in looked.parts(DAY))
    assert "- kept" in seen
    assert "- half done" in "\n".join(part.text for part in looked.parts(DAY))


def test_notes_are_listed_by_path_and_first_heading(workspace: Workspace) -> None:
    notes = {
        "notes/a.md": "intro\n\n## First ##\n# Second\n",
        "notes/b.md": "no heading\n",
        "notes/sub/c.md": "# C\n",
        "notes/d.txt": "# no markdown\n",
        "notes/e.conflict-0123456789ab.md": "# a problem\n",
        "other/f.md": "# elsewhere\n",
    }
    workspace.plant({"MEMORY.md": b"- x\n", **{n: t.encode() for n, t in notes.items()}}, by=CALLER)
    index = text(workspace).partition('<notes workspace="notes">\n')[2]
    assert index == "- `notes/a.md` — First\n- `notes/b.md`\n- `notes/sub/c.md` — C\n</notes>"


@pytest.mark.parametrize("count", [40, 41])
def test_of_more_than_forty_notes_the_newest_are_listed(workspace: Workspace, count: int) -> None:
    files = {f"notes/{number:02}.md": b"# N\n" for number in range(count)}
    workspace.plant({"MEMORY.md": b"- x\n", **files}, by=CALLER)
    workspace.write("notes/00.md", "# newest\n", by=CALLER)  # first by name, and the newest
    shown = text(workspace)
    assert shown.count("- `notes/") == 40
    assert "- `notes/00.md` — newest" in shown
    assert ("(1 older note not listed" in shown) == (count == 41)


def test_memory_over_the_budget_keeps_its_newest_lines_wherever_they_stand(
    workspace: Workspace, clock: ManualClock
) -> None:
    lines = [f"- {number:06}" for number in range(100)]
    workspace.write("MEMORY.md", "\n".join(lines), by=CALLER)
    for at in (10, 50):
        clock.advance(60)
        lines[at] = f"- new {at}"
        workspace.write("MEMORY.md", "\n".join(lines), by=CALLER)
    shown = text(workspace, maximum=30)
    assert shown.split("\n")[1:-2] == ["- new 10", "- new 50", "- 000099"]
    assert "(97 older entries left out: read `MEMORY.md` of `notes`" in shown


def test_a_prompt_never_runs_git_blame(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def listening(run: Callable[..., bytes]) -> Callable[..., bytes]:
        def run_git(*arguments: str) -> bytes:
            asked.append(arguments)
            return run(*arguments)

        return run_git

    from workspaces.history import history

    monkeypatch.setattr(history, "run_git", listening(history.run_git))
    for number in range(5):
        lines = "\n".join(f"- {n}" for n in range(number * 10))
        workspace.write("MEMORY.md", lines, by=CALLER)
    text(workspace, maximum=30)
    assert asked
    assert not any("blame" in arguments for arguments in asked)


def test_the_memory_limit_of_a_workspace_applies_to_its_part(
    open_workspaces: Callable[[], Workspaces],
) -> None:
    workspaces = open_workspaces()
    one = workspaces.create("one")
    workspaces.patch("one", {"config": {"memory": {"maxLength": 8}}})
    one = workspaces.get("one")
    one.write("MEMORY.md", "- a\n- b\n- c", by=CALLER)
    assert text(one).split("\n")[1:3] == ["- b", "- c"]


def test_a_view_of_a_revision_shows_memory_of_that_revision(
    workspace: Workspace, clock: ManualClock
) -> None:
    workspace.write("MEMORY.md", "- kept\n", by=CALLER)
    clock.advance(60)
    workspace.write("MEMORY.md", "- old\n- kept\n", by=CALLER)
    then = workspace.history.tip()
    assert then is not None
    clock.advance(60)
    workspace.write("MEMORY.md", "- kept\n- new\n", by=CALLER)
    workspace.write("notes/a.md", "# A\n", by=CALLER)
    part = memory(workspace, view_of=lambda _: then)
    assert part is not None
    assert part.revision == then
    assert part.text.split("\n")[1:-1] == ["- old", "- kept"]
    cut = text(workspace, view_of=lambda _: then, maximum=6)
    assert cut.split("\n")[1] == "- old"


def test_a_view_of_an_unknown_revision_is_unavailable(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "- x\n", by=CALLER)
    part = memory(workspace, view_of=lambda _: "0" * 40)
    assert part is not None
    assert part.unavailable is not None


def test_prompt_sources_see_a_new_revision_and_cache_unchanged_parts(workspace: Workspace) -> None:
    looked = briefing(workspace)
    assert [part.source for part in looked.parts(DAY)] == ["guidance", "date"]
    workspace.write("MEMORY.md", "- x\n", by=CALLER)
    first = looked.parts(DAY)
    assert "memory/notes" in [part.source for part in first]
    assert looked.parts(DAY) is first
    workspace.write("TASKS.md", "- y\n", by=CALLER)
    assert [part.text for part in looked.parts(DAY)] == [part.text for part in first]
    assert looked.parts(date(2026, 11, 19))[-1].text == "Today is Thursday, 2026-11-19 (UTC)."


def test_memory_is_shown_although_line_ages_are_unavailable(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write("MEMORY.md", "- a\n- b\n- c", by=CALLER)
    search = next(tmp_path.rglob("search"))
    shutil.rmtree(search)
    search.write_text("in the way")
    assert text(workspace, maximum=3).split("\n")[1] == "- c"
