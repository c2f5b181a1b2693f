"""Recall over a workspace: its current files, its revisions, and the author of each line."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import SystemClock
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.search.recall import Scope
from workspaces.timestamp import Stamp, stamp_of
from workspaces.workspace.workspace import Workspace


def found(workspace: Workspace, query: str, **more: object) -> list[tuple[str, int]]:
    lines = workspace.recall.find(query, **more)  # type: ignore[arg-type]
    return [(line.path, line.line_number) for line in lines]


def test_a_line_is_found_immediately_after_any_write(
    workspace: Workspace, root: Path, open_workspaces: Callable[[], Workspaces]
) -> None:
    workspace.write("notes/a.md", "# Tea\n\n- green tea at nine\n", by=AGENT)
    assert found(workspace, "green")[0] == ("notes/a.md", 3)
    (root / "by-hand.md").write_text("- red wine\n")
    assert found(workspace, "wine") == [("by-hand.md", 1)]
    open_workspaces().get("notes").write("other.md", "- blue milk\n", by=CALLER)
    assert found(workspace, "milk") == [("other.md", 1)]
    (root / "by-hand.md").unlink()
    assert found(workspace, "wine") == []


def test_a_write_of_the_same_size_and_timestamp_is_found(workspace: Workspace, root: Path) -> None:
    for n in range(100, 130):
        with (root / "a.md").open("w") as file:
            file.write(f"- number {n}\n")
        os.utime(root / "a.md", (0, 0))
        assert found(workspace, str(n)) == [("a.md", 1)]


def test_only_markdown_is_searched(workspace: Workspace, root: Path) -> None:
    for name in ("a.txt", "b.MD", "c.markdown", "bad:name.md"):
        (root / name).write_text("- tea\n")
    assert found(workspace, "tea") == [("b.MD", 1), ("c.markdown", 1)]


def test_links_and_pipes_are_not_searched(workspace: Workspace, root: Path) -> None:
    (root / "a.md").write_text("- tea\n")
    (root / "link.md").symlink_to("a.md")
    os.mkfifo(root / "pipe.md")
    (root / "binary.md").write_bytes(b"- tea \xff\xfe\n")
    assert found(workspace, "tea") == [("a.md", 1), ("binary.md", 1)]


def test_a_view_of_a_revision_searches_the_files_of_that_revision(workspace: Workspace) -> None:
    first = workspace.write("a.md", "- tea\n", by=AGENT).revision
    second = workspace.write("a.md", "- coffee\n", by=AGENT).revision
    assert first is not None
    assert second is not None
    for _ in range(2):  # back and forth
        assert found(workspace, "tea", view=first) == [("a.md", 1)]
        assert found(workspace, "coffee", view=first) == []
        assert found(workspace, "coffee", view=second) == [("a.md", 1)]
        assert found(workspace, "tea") == []
    (line,) = workspace.recall.find("tea", view=first[:12])
    assert line.revision == first
    with pytest.raises(NotFound):
        workspace.recall.find("tea", view="0" * 40)


def test_a_found_line_has_author_and_revision_unless_the_manual_edit_is_uncommitted(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("a.md", "- tea is green\n- milk is white\n", by=AGENT)
    workspace.write("a.md", "- tea is green\n- milk is white\n- wine is red\n", by=CALLER)
    (root / "a.md").write_text("# Drinks\n- tea is green\n- milk is sour\n- wine is red\n")
    by_line = {line.line_number: line for line in workspace.recall.find("tea milk wine")}
    revisions = {revision.id: revision for revision in workspace.log()}
    assert by_line[2].author == "helper"
    assert by_line[4].author == "caller"
    assert by_line[3].author is by_line[3].updated_at is by_line[3].revision is None
    for number in (2, 4):
        line = by_line[number]
        assert line.revision is not None
        assert line.updated_at == revisions[line.revision].at


def test_a_list_item_is_as_new_as_its_newest_line(workspace: Workspace) -> None:
    workspace.write("a.md", "- tea\n  green\n", by=AGENT)
    workspace.write("a.md", "- tea\n  black\n", by=CALLER)
    (line,) = workspace.recall.find("tea")
    assert (line.author, line.content) == ("caller", "- tea\n  black")


def test_a_fact_is_found_by_its_key_and_its_front_matter_is_no_hit(
    workspace: Workspace, root: Path
) -> None:
    for n in range(10):
        text = f"---\nkey: fact {n}\npinned: true\nimportance: 80\n---\nSays {n} things.\n"
        workspace.write(f"facts/f-{n}.md", text, by=CALLER)
    fact = "---\nkey: coffee machine\npinned: true\n---\nDescale it monthly,\nwith vinegar.\n"
    workspace.write("facts/coffee-1.md", fact, by=AGENT)
    (hit, *_) = workspace.recall.find("where is the coffee machine?")
    assert (hit.path, hit.line_number) == ("facts/coffee-1.md", 5)
    assert hit.content == "coffee machine: Descale it monthly,\nwith vinegar."
    assert hit.author == AGENT.name
    assert found(workspace, "pinned importance true 80") == []
    (root / "facts/coffee-1.md").write_text(fact.replace("coffee", "tea"))
    assert found(workspace, "tea machine") == [("facts/coffee-1.md", 5)]
    assert found(workspace, "things", limit=100)[0][1] == 6


def test_a_scope_limits_recall_by_path_and_kind(workspace: Workspace) -> None:
    paths = ["MEMORY.md", "notes/a.md", "notes/deep/b.md", "facts/c.md", "blocks/core.md", "x.md"]
    for path in paths:
        workspace.write(path, "- tea\n", by=AGENT)

    def places(**scope: object) -> set[str]:
        return {path for path, _ in found(workspace, "tea", scope=Scope(**scope))}  # type: ignore[arg-type]

    assert places() == set(paths)
    assert places(paths=("notes",)) == {"notes/a.md", "notes/deep/b.md"}
    assert places(paths=("/notes/a.md", "x.md")) == {"notes/a.md", "x.md"}
    assert places(paths=("*/?.md",)) == {"notes/a.md", "notes/deep/b.md", "facts/c.md"}
    assert places(kinds=("note", "memory")) == {"MEMORY.md", "notes/a.md", "notes/deep/b.md"}
    assert places(kinds=("block",), paths=("notes",)) == set()


def test_a_scope_limits_recall_by_author_and_time(workspace: Workspace, root: Path) -> None:
    workspace.write("a.md", "- tea one\n", by=AGENT)
    workspace.write("b.md", "- tea two\n", by=CALLER)
    (root / "c.md").write_text("- tea three\n")
    newer = workspace.recall.find("two")[0].updated_at
    assert newer is not None

    def places(**scope: object) -> set[str]:
        return {path for path, _ in found(workspace, "tea", scope=Scope(**scope))}  # type: ignore[arg-type]

    assert places(by="helper") == places(by="turn") == places(by="agent_1") == {"a.md"}
    assert places(by="Caller") == {"b.md"}
    assert places(since=newer) == {"b.md", "c.md"}
    assert places(since=Stamp("2001")) == {"a.md", "b.md", "c.md"}
    assert places(by="nobody") == set()


def test_an_invalid_limit_or_an_overlong_query_is_refused(workspace: Workspace) -> None:
    for limit in (0, 101):
        with pytest.raises(Refused, match="limit"):
            workspace.recall.find("tea", limit=limit)
    with pytest.raises(OverLimit):
        workspace.recall.find("x" * 10_001)


def test_a_deleted_workspace_leaves_no_index(
    open_workspaces: Callable[[], Workspaces], home: Home
) -> None:
    workspaces = open_workspaces()
    workspace = workspaces.create("gone")
    revision = workspace.write("a.md", "- tea\n", by=AGENT).revision
    assert revision is not None
    workspace.recall.find("tea")
    workspace.recall.find("tea", view=revision)
    workspaces.delete("gone")
    assert list((home.root / "search").iterdir()) == []


def test_a_write_succeeds_despite_a_broken_index(workspace: Workspace, home: Home) -> None:
    file = home.search(workspace.namespace)
    file.unlink(missing_ok=True)
    file.mkdir()
    assert workspace.write("a.md", "- tea\n", by=AGENT).revision is not None


def test_line_origins_and_the_recall_index_share_a_database_file(
    workspace: Workspace, home: Home
) -> None:
    workspace.write("a.md", "- tea\n", by=AGENT)
    assert workspace.recall.find("tea")[0].author == "helper"
    workspace.origins.empty()
    assert workspace.recall.find("tea")[0].author == "helper"
    assert [name.name for name in (home.root / "search").glob("*.db")] == [
        f"{workspace.namespace}.db"
    ]


_WRITER = """
import sys
from pathlib import Path
root = Path(sys.argv[1])
for n in range(40):
    (root / f"p{sys.argv[2]}-{n % 5}.md").write_text(f"- written {sys.argv[2]} {n}\\n" * (n % 7 + 1))
"""


def test_concurrent_writes_of_other_processes_are_found_in_the_end(
    workspace: Workspace, root: Path
) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(root), str(number)])
        for number in range(2)
    ]
    while any(writer.poll() is None for writer in writers):
        for line in workspace.recall.find(f"written {random.randrange(2)}", limit=20):
            assert line.content.startswith("- written")
    last = [found(workspace, f"written {number} 39")[0] for number in range(2)]
    assert last == [("p0-4.md", 1), ("p1-4.md", 1)]


def test_file_timestamps_in_the_future_do_not_hide_a_change(
    workspace: Workspace, root: Path
) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
    for text in ("- tea\n", "- wine\n"):
        (root / "a.md").write_text(text)
        os.utime(root / "a.md", (later, later))
        assert found(workspace, text) == [("a.md", 1)]
    assert stamp_of(SystemClock().now()) < "2100"
