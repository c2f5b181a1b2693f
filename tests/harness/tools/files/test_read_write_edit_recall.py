"""The tools read, write, edit and recall as a model calls them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from harness import Harness
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.messages.message import ToolCall, ToolResult
from harness.messages.progress import silent
from harness.runtime.async_bridge import LoopThread
from harness.tools.files.read import CHARACTERS_MAX
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

AGENT = Author("helper", "agent_1", "turn")
PERSON = Author("ann", "usr_1", "api")

Call = Callable[..., ToolResult]


@pytest.fixture
def notes(harness: Harness) -> Workspace:
    return harness.workspaces.get("notes")


@pytest.fixture
def desk(harness: Harness) -> ToolContext:
    """What one turn of the default agent, with a second mount that is read-only, works on."""
    docs = harness.workspaces.create("docs")
    agent = harness.agents.get("assistant")
    mounted = [
        *agent.as_json()["config"]["workspaces"],
        {"name": "docs", "workspaceId": docs.record.id, "sandbox": None},
    ]
    agent = harness.agents.patch(agent.id, {"config": {"workspaces": mounted}})
    return ToolContext(harness.agents.bindings(agent), lambda call_id: AGENT)


@pytest.fixture
def call(desk: ToolContext) -> Call:
    toolset = Toolset(TOOLS, desk)
    loop = LoopThread()

    def made(name: str, **arguments: Any) -> ToolResult:
        return loop.run(toolset.run(ToolCall("t1", name, arguments), silent))

    return made


def test_read_numbers_lines_and_states_the_next_offset(call: Call, notes: Workspace) -> None:
    notes.write("long.md", "".join(f"line {n}\n" for n in range(1, 2501)), by=PERSON)
    text = call("read", path="long.md").text
    assert text.startswith("     1\tline 1\n     2\tline 2\n")
    assert text.endswith("  2000\tline 2000\n(500 more lines: read on with offset 2001)")
    assert call("read", path="long.md", offset=2499).text == "  2499\tline 2499\n  2500\tline 2500"
    assert call("read", path="long.md", offset=3, limit=1).text.startswith("     3\tline 3\n(2497")
    assert "2500 lines" in call("read", path="long.md", offset=2501).text


def test_read_of_very_long_lines_is_bounded(call: Call, notes: Workspace) -> None:
    notes.write("wide.md", ("x" * 50_000 + "\n") * 5, by=PERSON)
    text = call("read", path="wide.md").text
    assert len(text) < 70_000
    assert "4 more lines" in text


def test_read_states_how_much_of_a_long_line_is_left_out(call: Call, notes: Workspace) -> None:
    notes.write("wide.md", "x" * (CHARACTERS_MAX + 1_234) + "\nsecond\nthird\n", by=PERSON)
    assert call("read", path="wide.md").text.endswith(
        "x\n(1,234 more characters of line 1: grep finds what is in them)\n"
        "(2 more lines: read on with offset 2)"
    )
    assert call("read", path="wide.md", offset=2).text == "     2\tsecond\n     3\tthird"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("memory.md", "Did you mean 'MEMORY.md'?"),
        ("notes/MEMORY.md", "Did you mean 'MEMORY.md'?"),
        ("/workspaces/notes/notes/README.md", "Did you mean 'notes/README.md'?"),
        ("notes/READMEE.md", "Did you mean 'notes/README.md'?"),
        ("plans/zzz.md", "See with glob what there is."),
    ],
)
def test_a_missing_file_is_reported_with_the_most_similar_path(
    call: Call, path: str, meant: str
) -> None:
    for name, more in (("read", {}), ("edit", {"old": "a", "new": "b"})):
        told = f"Not done: there is no file {path.removeprefix('/')!r}. {meant}"
        assert call(name, path=path, **more).text == told


def test_a_leading_slash_is_the_root_of_the_mount(call: Call) -> None:
    assert "# Memory" in call("read", path="/MEMORY.md").text


@pytest.mark.parametrize(
    "path", ["../x", "/../x", "notes/../../x", "//etc/passwd", "/proc/self/environ\0"]
)
def test_file_tools_refuse_a_path_outside_the_mount(call: Call, path: str) -> None:
    for name, more in (
        ("read", {}),
        ("write", {"content": "x"}),
        ("edit", {"old": "a", "new": "b"}),
    ):
        result = call(name, path=path, **more)
        assert result.is_error
        assert "path" in result.text


def test_write_makes_a_file_and_a_revision_of_the_agent(
    call: Call, notes: Workspace, desk: ToolContext
) -> None:
    assert (
        call("write", path="notes/a.md", content="one\ntwo\n").text
        == "Written: notes/a.md, 2 lines."
    )
    assert notes.read("notes/a.md").text == "one\ntwo\n"
    assert notes.log()[0].author == "helper"
    assert [change.revision for change in desk.changes] == [notes.history.tip()]


def test_write_over_an_unread_file_is_refused(call: Call, notes: Workspace) -> None:
    before = notes.read("MEMORY.md").data
    result = call("write", path="MEMORY.md", content="mine")
    assert result.is_error
    assert "was not read" in result.text
    assert notes.read("MEMORY.md").data == before
    call("read", path="MEMORY.md")
    assert not call("write", path="MEMORY.md", content="mine").is_error
    assert not call("write", path="MEMORY.md", content="mine again").is_error


def test_write_over_a_conflicting_change_is_refused_and_shows_the_change(
    call: Call, notes: Workspace
) -> None:
    notes.write("a.md", "one\ntwo\n", by=PERSON)
    call("read", path="a.md")
    notes.write("a.md", "one\ntwo by a person\n", by=PERSON)
    result = call("write", path="a.md", content="one\ntwo by the agent\n")
    assert result.is_error
    assert "+ two by a person" in result.text
    assert notes.read("a.md").text == "one\ntwo by a person\n"


def test_write_beside_another_authors_change_is_merged_and_reported(
    call: Call, notes: Workspace
) -> None:
    notes.write("a.md", "one\ntwo\nthree\n", by=PERSON)
    call("read", path="a.md")
    notes.write("a.md", "one by a person\ntwo\nthree\n", by=PERSON)
    result = call("write", path="a.md", content="one\ntwo\nthree\nfour\n")
    assert not result.is_error
    assert "merged" in result.text
    assert notes.read("a.md").text == "one by a person\ntwo\nthree\nfour\n"
    assert [revision.author for revision in notes.log("a.md")] == ["helper", "ann", "ann"]


def test_write_to_a_file_deleted_since_reading_is_refused(call: Call, notes: Workspace) -> None:
    notes.write("a.md", "one\n", by=PERSON)
    call("read", path="a.md")
    notes.delete("a.md", by=PERSON)
    assert call("write", path="a.md", content="two\n").is_error


def test_edit_keeps_another_authors_changes_elsewhere_in_the_file(
    call: Call, notes: Workspace
) -> None:
    notes.write("a.md", "one\ntwo\n", by=PERSON)
    call("read", path="a.md")
    notes.write("a.md", "one\ntwo\nthree\n", by=PERSON)
    assert not call("edit", path="a.md", old="one", new="ONE").is_error
    assert notes.read("a.md").text == "ONE\ntwo\nthree\n"


def test_edit_requires_the_old_text_exactly_once(call: Call, notes: Workspace) -> None:
    notes.write("a.md", "x\nx\n", by=PERSON)
    assert "2 times" in call("edit", path="a.md", old="x", new="y").text
    assert "is not in the file as it is now" in call("edit", path="a.md", old="z", new="y").text
    assert call("edit", path="a.md", old="x", new="y", all=True).text == "Edited: a.md, 2 places."
    assert notes.read("a.md").text == "y\ny\n"


def test_edit_of_a_file_that_is_not_text_is_refused(call: Call, notes: Workspace) -> None:
    notes.write("a.bin", b"\xff\xfe", by=PERSON)
    assert "not a text file" in call("edit", path="a.bin", old="a", new="b").text


def test_write_on_a_read_only_mount_is_refused_with_the_reason(call: Call) -> None:
    result = call("write", path="x.md", content="x", workspace="docs")
    assert result.is_error
    assert "read-only" in result.text
    assert "Writable: notes." in result.text
    assert "# Memory" in call("read", path="MEMORY.md", workspace="docs").text


def test_only_writable_mounts_are_offered_for_writing(harness: Harness, desk: ToolContext) -> None:
    specs = {spec.name: spec.schema for spec in Toolset(TOOLS, desk).specs()}
    choices = {name: spec["properties"]["workspace"]["enum"] for name, spec in specs.items()}
    assert choices["read"] == choices["recall"] == ["notes", "docs"]
    assert choices["write"] == choices["edit"] == ["notes"]
    assert "workspace" not in specs["write"]["required"]


def test_a_workspace_must_be_named_where_the_default_cannot_be_written(
    harness: Harness, desk: ToolContext
) -> None:
    notes, docs = desk.mounts
    for mounts, required in (((docs, notes), True), ((notes, docs), False)):
        context = ToolContext(mounts, lambda call_id: AGENT)
        specs = {spec.name: spec.schema for spec in Toolset(TOOLS, context).specs()}
        assert specs["write"]["properties"]["workspace"]["enum"] == ["notes"]
        assert ("workspace" in specs["write"]["required"]) is required
        assert "workspace" not in specs["read"]["required"]
    alone = ToolContext((docs,), lambda call_id: AGENT)
    assert not {"write", "edit"} & {spec.name for spec in Toolset(TOOLS, alone).specs()}


def test_recall_searches_every_mount_and_names_file_and_line(
    call: Call, notes: Workspace, harness: Harness
) -> None:
    notes.write("notes/tea.md", "# Drinks\n- green tea at nine\n", by=PERSON)
    harness.workspaces.get("docs").write("a.md", "- the tea shop is closed\n", by=AGENT)
    text = call("recall", query="when is tea?").text
    assert re.search(
        r"^notes: notes/tea\.md:2 \(note, \d{4}-\d\d-\d\d, today\)\n- green tea at nine$",
        text,
        re.MULTILINE,
    )
    assert "docs: a.md:1" in text
    assert "docs" not in call("recall", query="tea", workspace="notes").text
    assert "docs" not in call("recall", query="tea", kinds=["note"]).text
    assert "notes/tea" not in call("recall", query="tea", by="helper").text
    assert call("recall", query="zzz").text.startswith("Nothing was found")
    assert call("recall", query="tea", since="soon").is_error
    assert call("recall", query="tea", limit=101).is_error
    assert call("recall", query="tea", kinds=["thought"]).is_error


def test_recall_results_are_bounded(call: Call, notes: Workspace) -> None:
    notes.write("a.md", "".join(f"- tea {'x' * 5000} {n}\n" for n in range(100)), by=PERSON)
    text = call("recall", query="tea", limit=100).text
    assert len(text) < 34_000
    assert "more lines: ask for less" in text


def test_an_unknown_workspace_is_refused_with_the_known_names(call: Call) -> None:
    for name in ("dosc", "zzz"):
        told = f"Not done: workspace: {name!r} is unknown. There are: notes, docs."
        assert call("read", path="MEMORY.md", workspace=name).text == told


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 7},
        {"path": "a", "offset": 0},
        {"path": "a", "offset": "1"},
        {"path": "a", "x": 1},
    ],
)
def test_invalid_tool_input_is_an_error_result(call: Call, arguments: dict[str, Any]) -> None:
    assert call("read", **arguments).is_error


def test_the_workspace_argument_is_offered_only_with_several_mounts(desk: ToolContext) -> None:
    both = {spec.name: spec.schema for spec in Toolset(TOOLS, desk).specs()}
    assert both["read"]["properties"]["workspace"]["enum"] == ["notes", "docs"]
    one = Toolset(TOOLS, ToolContext(desk.mounts[:1], desk.author)).specs()
    assert all("workspace" not in spec.schema["properties"] for spec in one)


def test_writing_tools_are_offered_only_with_a_writable_mount(desk: ToolContext) -> None:
    read_only = Toolset(TOOLS, ToolContext(desk.mounts[1:], desk.author)).specs()
    assert [spec.name for spec in read_only] == ["read", "glob", "recall"]
    assert Toolset(TOOLS, ToolContext([], desk.author)).specs() == ()
