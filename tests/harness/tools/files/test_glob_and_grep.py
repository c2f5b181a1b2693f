"""The tools glob and grep, with the sandbox and without, on writable and read-only mounts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.agents.mounts import Mount
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.messages.message import ToolCall
from harness.messages.progress import silent
from harness.runtime.async_bridge import LoopThread
from harness.sandboxes.none import NoSandbox
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from tests.ordinary import reachable_directory
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.tree.conflict_copy import conflict_path
from workspaces.workspace.workspace import Workspace

AGENT = Author("helper", "agent_1", "turn")
PERSON = Author("ann", "usr_1", "api")

Call = Callable[..., str]

FILES = {
    "MEMORY.md": "# Memory\n\n- tea is green\n",
    "notes/a.md": "tea\ncoffee\nTEA\n",
    "notes/deep/b.txt": "green tea\n",
    "notes/[x]{y}!.md": "tea in brackets\n",
    ".hidden.md": "hidden tea\n",
}


@pytest.fixture(scope="module", params=["in a sandbox", "without a sandbox"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    sandbox = None if request.param == "in a sandbox" else NoSandbox("not in this test")
    with reachable_directory() as place, Harness.open(place / "home", sandbox=sandbox) as opened:
        found = opened.confinement()
        if sandbox is None and not found.works:
            pytest.skip(f"no sandbox on this machine: {found.detail}")
        yield opened


@pytest.fixture(scope="module")
def workspace(harness: Harness) -> Workspace:
    made = harness.workspaces.create("search", template="default")
    for path, text in FILES.items():
        made.write(path, text, by=PERSON)
    made.delete("notes/README.md", by=PERSON)
    for number, path in enumerate(FILES):
        os.utime(made.root / path, (1_700_000_000 + number,) * 2)
    os.utime(made.root / "TASKS.md", (1_600_000_000,) * 2)
    made.edits.commit()
    return made


@pytest.fixture(scope="module")
def desk(harness: Harness, workspace: Workspace) -> ToolContext:
    record = harness.rooms.sandboxes.get("default")
    bare = harness.workspaces.create("bare")
    bare.write("tea.md", "tea\n", by=PERSON)
    workshop = harness.house.programs()
    mounts = [
        Mount("search", workspace, is_writable=False, sandbox=record),
        Mount("bare", bare, is_writable=False),
    ]
    return ToolContext(mounts, lambda call_id: AGENT, programs=workshop)


@pytest.fixture(scope="module")
def call(desk: ToolContext) -> Iterator[Call]:
    toolset, loop = Toolset(TOOLS, desk), LoopThread()

    def made(name: str, **arguments: Any) -> str:
        result = loop.run(toolset.run(ToolCall("t1", name, arguments), silent))
        return ("error: " if result.is_error else "") + result.text

    yield made
    loop.close()


def test_glob_lists_the_newest_file_first(call: Call) -> None:
    assert call("glob", pattern="**").splitlines() == [*reversed(FILES), "TASKS.md"]
    assert call("glob", pattern="**/*.txt") == "notes/deep/b.txt"
    assert call("glob", pattern="*.md").splitlines() == [".hidden.md", "MEMORY.md", "TASKS.md"]


@pytest.mark.parametrize("path", ["notes", "/notes", "notes/", "/notes/"])
def test_glob_matches_relative_to_the_given_directory(call: Call, path: str) -> None:
    assert call("glob", pattern="*.md", path=path).splitlines() == [
        "notes/[x]{y}!.md",
        "notes/a.md",
    ]


def test_glob_reports_that_no_file_matches(call: Call) -> None:
    assert call("glob", pattern="*.py", path="notes") == "No file matches '*.py' in notes."


@pytest.mark.parametrize("path", ["..", "/../x", "a/../../b", "\0"])
@pytest.mark.parametrize("tool", ["glob", "grep"])
def test_search_tools_refuse_a_path_outside_the_mount(call: Call, tool: str, path: str) -> None:
    assert call(tool, pattern="tea", path=path).startswith("error: ")


def test_grep_shows_file_line_number_and_text(call: Call) -> None:
    assert call("grep", pattern="tea").splitlines() == [
        ".hidden.md:1:hidden tea",
        "MEMORY.md:3:- tea is green",
        "notes/[x]{y}!.md:1:tea in brackets",
        "notes/a.md:1:tea",
        "notes/deep/b.txt:1:green tea",
    ]
    assert call("grep", pattern="(?i)^tea$", path="notes") == "notes/a.md:1:tea\nnotes/a.md:3:TEA"


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("notes", ["notes/[x]{y}!.md", "notes/a.md", "notes/deep/b.txt"]),
        ("notes/a.md", ["notes/a.md"]),
        ("/notes/deep", ["notes/deep/b.txt"]),
        ("notes/[x]{y}!.md", ["notes/[x]{y}!.md"]),
        ("/", [".hidden.md", "MEMORY.md", "notes/[x]{y}!.md", "notes/a.md", "notes/deep/b.txt"]),
    ],
)
def test_grep_searches_only_the_given_path(call: Call, path: str, files: list[str]) -> None:
    assert call("grep", pattern="tea", path=path, mode="files").splitlines() == files


def test_grep_counts_the_matching_lines(call: Call) -> None:
    assert call("grep", pattern="(?i)tea", path="notes/a.md", mode="count") == "notes/a.md:2"


def test_grep_reports_no_match_or_a_missing_path(call: Call) -> None:
    assert call("grep", pattern="nowhere") == "Nothing matches 'nowhere'."
    assert call("grep", pattern="nowhere", path="notes") == "Nothing matches 'nowhere' in notes."
    assert "no file or directory 'nots'" in call("grep", pattern="tea", path="nots")


def test_an_invalid_grep_pattern_is_refused_with_the_reason(call: Call) -> None:
    told = call("grep", pattern="(unclosed")
    assert told.startswith("error: ")
    assert "unclosed group" in told
    assert call("grep", pattern="a\0b").startswith("error: ")
    assert call("grep", pattern="\ud800").startswith("error: ")


@pytest.mark.parametrize("pattern", ["--files", "-v", "-f/etc/passwd", "--pre=cat"])
def test_a_grep_pattern_is_never_taken_as_an_option(call: Call, pattern: str) -> None:
    assert call("grep", pattern=pattern) == f"Nothing matches {pattern!r}."


def test_grep_ignores_configuration_and_ignore_files(
    call: Call, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rc").write_text("--files\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    workspace.write(".ignore", "*\n", by=PERSON)
    assert call("grep", pattern="coffee") == "notes/a.md:2:coffee"
    workspace.delete(".ignore", by=PERSON)


def test_search_tools_do_not_follow_symlinks(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("tea of the host\n")
    (workspace.root / "link.md").symlink_to(tmp_path / "secret.md")
    (workspace.root / "links").symlink_to(tmp_path)
    for path in (None, "link.md", "links", "links/secret.md"):
        assert "of the host" not in call("grep", pattern="tea", path=path)
        told = call("glob", pattern="**", path=path)
        assert path is None or told.startswith("No file matches")
        assert path is not None or "link" not in told
    (workspace.root / "link.md").unlink()
    (workspace.root / "links").unlink()


def test_search_tools_leave_out_conflict_copies(call: Call, workspace: Workspace) -> None:
    second = conflict_path(WorkspacePath("MEMORY.md"), version_of(b"x"))
    workspace.write(second, "second tea\n", by=PERSON)
    assert "second" not in call("grep", pattern="tea")
    assert second not in call("glob", pattern="**")
    workspace.delete(second, by=PERSON)


def test_a_grep_result_is_bounded(call: Call, workspace: Workspace) -> None:
    workspace.write("flood.md", "flood of matches\n" * 20_000, by=PERSON)
    told = call("grep", pattern="flood")
    assert len(told) < 70_000
    assert told.endswith("(more than is shown here: make the pattern narrower, or name a `path`)")
    workspace.write("flood.md", "x" * 100_000 + "wide\n", by=PERSON)
    assert len(call("grep", pattern="wide")) < 1000
    workspace.delete("flood.md", by=PERSON)


def test_a_mount_without_a_sandbox_offers_only_read_glob_and_recall(
    call: Call, desk: ToolContext
) -> None:
    assert call("glob", pattern="*.md", workspace="bare").splitlines()[0] == "tea.md"
    assert "tea" in call("read", path="tea.md", workspace="bare")
    assert "no sandbox" in call("grep", pattern="tea", workspace="bare")
    schemas = {spec.name: spec.schema["properties"] for spec in Toolset(TOOLS, desk).specs()}
    assert schemas["grep"]["workspace"]["enum"] == ["search"]
    assert schemas["glob"]["workspace"]["enum"] == ["search", "bare"]
    assert {"write", "edit"} & set(schemas) == set()
    alone = Toolset(
        TOOLS, ToolContext(desk.mounts[1:], desk.author, programs=desk.programs)
    ).specs()
    assert [spec.name for spec in alone] == ["read", "glob", "recall"]
