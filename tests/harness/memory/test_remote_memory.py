"""Remote memory: a mount without a sandbox is read in S3, on a machine without a local copy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness import Harness
from harness.agents.mounts import missing_mounts
from harness.agents.record import AgentRecord
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.messages.message import ToolCall, ToolResult
from harness.messages.progress import silent
from harness.models.scripted import ScriptedModel
from harness.runtime.async_bridge import LoopThread
from harness.sync.background_sync import BackgroundSync
from harness.sync.background_watch import BackgroundWatch, all_of
from harness.sync.local_copies import LocalCopies
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from tests.harness.homes import Open, opened, prefix
from tests.servers import BUCKET, S3Server
from tests.workspaces.replicas import MemoryPrefix
from workspaces.conditions import ANY
from workspaces.errors import NotFound, Refused
from workspaces.ids import Namespace, version_of
from workspaces.remote.remote_workspace import SMALL_FILE_BYTES_MAX, RemoteWorkspace
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

__all__ = ["opened", "prefix"]

PERSON = Author("ann", "usr_1", "api")
FILES = {
    "MEMORY.md": "- tea is green\n",
    "TASKS.md": "- [ ] drink tea\n",
    "notes/one.md": "# The first\n\nbody\n",
    "notes/deep/two.md": "no heading\n",
    "notes/ä b.md": "# Ümlaut\n",
    "data/x.csv": "1,2\n",
}


@pytest.fixture
def library(opened: Open) -> Workspace:
    """As the machine `writer` has it; the agent `reader` mounts it without a sandbox."""
    writer = opened("writer")
    workspace = writer.workspaces.create("library")
    for path, text in FILES.items():
        workspace.write(path, text, by=PERSON)
    writer.workspaces.sync("library").run()
    mount = {"name": "library", "workspaceId": workspace.record.id, "sandbox": None}
    writer.agents.add({"name": "reader", "config": {"private": "off", "workspaces": [mount]}})
    return workspace


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def elsewhere(opened: Open, library: Workspace, model: ScriptedModel) -> Harness:
    """Another machine, which never had the library."""
    return opened("elsewhere", model=model)


def bare(machine: Harness, library: Workspace) -> bool:
    """Whether nothing of the library lies on this machine but the card of its record."""
    home = machine.settings.home
    found = set(home.root.rglob(f"*{library.namespace}*"))
    return found <= {home.card(library.namespace)}


def desk_of(machine: Harness, *mounts: dict[str, Any]) -> ToolContext:
    agent = machine.agents.get("reader")
    if mounts:
        agent = machine.agents.patch(agent.id, {"config": {"workspaces": list(mounts)}})
    return ToolContext(machine.agents.bindings(agent), lambda _: PERSON)


def call(desk: ToolContext, name: str, **arguments: Any) -> ToolResult:
    loop = LoopThread()
    try:
        return loop.run(Toolset(TOOLS, desk).run(ToolCall("t1", name, arguments), silent))
    finally:
        loop.close()


def memory_of(machine: Harness) -> str:
    """What the next turn of `reader` would be shown of the library."""
    parts = machine.preview("reader").held.snapshot.parts
    return "\n".join(part.text for part in parts if part.is_memory)


def test_a_turn_shows_remote_memory_and_its_index_without_a_local_copy(
    elsewhere: Harness, library: Workspace, model: ScriptedModel
) -> None:
    model.script("green")
    outcome = elsewhere.run("what is tea?", agent="reader")
    assert outcome.reply == "green" and not outcome.unavailable
    (request,) = model.requests
    shown = "\n".join(request.system)
    assert "- tea is green" in shown
    assert "- `notes/one.md` — The first" in shown and "- `notes/ä b.md` — Ümlaut" in shown
    assert "- `notes/deep/two.md`\n" in shown
    assert "read-only" in shown
    assert {tool.name for tool in request.tools} == {"read", "glob", "read_result"}
    assert bare(elsewhere, library)


def test_a_receipt_names_remote_memory_by_the_version_of_its_file(
    elsewhere: Harness, model: ScriptedModel
) -> None:
    model.script("green")
    outcome = elsewhere.run("what is tea?", agent="reader", conversation="c")
    conversation = elsewhere.conversations.get(outcome.conversation_id)
    (receipt,) = elsewhere.conversations.prompt_log(conversation).receipts()
    shown = receipt.newest["memory/library"]
    assert shown.revision == version_of(FILES["MEMORY.md"].encode())
    (turn,) = elsewhere.explain(conversation).as_json()["turns"]
    assert [one["revision"] for one in turn["entered"]] == [shown.revision]


def test_a_change_pushed_by_another_machine_is_a_delta_in_the_next_turn(
    opened: Open, elsewhere: Harness, library: Workspace, model: ScriptedModel
) -> None:
    model.script("green", "black")
    elsewhere.run("what is tea?", agent="reader", conversation="c")
    writer = opened("writer")
    mine = writer.workspaces.get("library")
    mine.write("MEMORY.md", "- tea is green\n- tea is black too\n", by=PERSON)
    mine.write("notes/three.md", "# The third\n", by=PERSON)
    writer.workspaces.sync("library").run()
    elsewhere.run("and now?", agent="reader", conversation="c")
    told = model.requests[1].messages[-1].text
    assert "+ - tea is black too" in told
    assert "+ - `notes/three.md` — The third" in told
    assert bare(elsewhere, library)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*", None),
        ("**", None),
        ("**/*.md", None),
        ("notes/*.md", None),
        ("notes/deep/*", None),
        ("deep/*.md", "notes"),
        ("*.md", "/notes/"),
        ("{notes,data}/*", None),
        ("./notes/*", None),
        ("MEMORY.md", None),
        ("nowhere/*", None),
        ("*", "MEMORY.md"),
    ],
)
def test_glob_finds_the_same_paths_in_s3_as_in_a_local_copy(
    elsewhere: Harness, library: Workspace, pattern: str, path: str | None
) -> None:
    here = elsewhere.agents.create("copying", workspaces=["library"], private="off")
    copy = ToolContext(elsewhere.agents.bindings(here), lambda _: PERSON)
    elsewhere.workspaces.sync("library").run()
    answers = [
        sorted(call(desk, "glob", pattern=pattern, path=path).text.splitlines())
        for desk in (desk_of(elsewhere), copy)
    ]
    assert answers[0] == answers[1]


def test_read_works_on_a_remote_mount_and_reports_a_missing_file(elsewhere: Harness) -> None:
    desk = desk_of(elsewhere)
    assert call(desk, "read", path="/notes/one.md").text.startswith("     1\t# The first\n")
    missing = call(desk, "read", path="notes/none.md")
    assert missing.is_error and "notes/none.md" in missing.text
    assert call(desk, "read", path="../x").is_error


def test_a_remote_mount_offers_no_writing_recall_or_grep(
    elsewhere: Harness, library: Workspace
) -> None:
    notes = elsewhere.workspaces.record("notes")
    desk = desk_of(
        elsewhere,
        {
            "name": "notes",
            "workspaceId": notes.id,
            "sandbox": elsewhere.agents.get("assistant").config.sandbox,
        },
        {"name": "library", "workspaceId": library.record.id, "sandbox": None},
    )
    for tool, arguments in (
        ("write", {"path": "a.md", "content": "x"}),
        ("edit", {"path": "MEMORY.md", "old": "tea", "new": "x"}),
        ("grep", {"pattern": "tea"}),
        ("recall", {"query": "tea"}),
    ):
        answer = call(desk, tool, workspace="library", **arguments)
        assert answer.is_error, tool
    assert not call(desk, "recall", query="tea").is_error
    schemas = {spec.name: spec.schema for spec in Toolset(TOOLS, desk).specs()}
    assert schemas["read"]["properties"]["workspace"]["enum"] == ["notes", "library"]
    assert schemas["recall"]["properties"]["workspace"]["enum"] == ["notes"]
    assert bare(elsewhere, library)


def test_an_unreachable_s3_does_not_stop_a_turn(
    opened: Open, library: Workspace, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        cut_off = opened("elsewhere", model=model)
        model.script("no idea")
        outcome = cut_off.run("what is tea?", agent="reader", conversation="c")
        assert outcome.status == "done" and outcome.unavailable == ("memory/library",)
        shown = "\n".join(model.requests[0].system)
        assert "(unavailable right now: " in shown and "tea is green" not in shown
        assert library.namespace not in shown
        assert call(desk_of(cut_off), "read", path="MEMORY.md").is_error
    model.script("green")
    back = opened("elsewhere", model=model)
    outcome = back.run("and now?", agent="reader", conversation="c")
    assert not outcome.unavailable
    assert "- tea is green" in "\n".join(model.requests[1].system)


def test_a_home_without_an_s3_location_reports_remote_memory_as_unavailable(
    opened: Open, library: Workspace, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_S3")
    assert "this home has no S3 location" in memory_of(opened("lost", model=model))


def put(seaweedfs: S3Server, prefix: str, library: Workspace, name: str, data: bytes) -> None:
    client = seaweedfs.client()
    client.put_object(Bucket=BUCKET, Key=f"{prefix}/{library.namespace}/{name}", Body=data)
    client.close()


def test_invalid_paths_and_conflict_copies_in_s3_are_not_listed(
    elsewhere: Harness, library: Workspace, seaweedfs: S3Server, prefix: str
) -> None:
    put(seaweedfs, prefix, library, "notes/a:b.md", b"# bad name\n")
    put(seaweedfs, prefix, library, "notes/one.conflict-0123456789ab.md", b"# second file\n")
    found = call(desk_of(elsewhere), "glob", pattern="notes/*.md").text.splitlines()
    assert sorted(found) == ["notes/README.md", "notes/one.md", "notes/ä b.md"]
    shown = memory_of(elsewhere)
    assert "bad name" not in shown and "second file" not in shown


def test_a_remote_listing_over_the_quota_is_refused(elsewhere: Harness, library: Workspace) -> None:
    elsewhere.workspaces.patch(library.record.id, {"config": {"quota": {"files": 5}}})
    answer = call(desk_of(elsewhere), "glob", pattern="**")
    assert answer.is_error and "7 names is over the limit of 5" in answer.text
    assert not call(
        desk_of(elsewhere), "glob", pattern="notes/*"
    ).is_error  # lists no more than it must
    elsewhere.workspaces.patch(library.record.id, {"config": {"quota": {"files": 2}}})
    assert "(unavailable right now: names below notes/" in memory_of(elsewhere)


def test_a_remote_file_over_the_quota_is_not_read(elsewhere: Harness, library: Workspace) -> None:
    elsewhere.workspaces.patch(library.record.id, {"config": {"quota": {"fileBytes": 10}}})
    answer = call(desk_of(elsewhere), "read", path="MEMORY.md")
    assert answer.is_error and "over the limit of 10" in answer.text
    assert "(unavailable right now: " in memory_of(elsewhere)


def test_a_remote_workspace_without_a_memory_file_has_no_prompt_part(
    opened: Open, elsewhere: Harness, library: Workspace
) -> None:
    library.delete("MEMORY.md", by=PERSON)
    opened("writer").workspaces.sync("library").run()
    assert memory_of(elsewhere) == ""


def test_a_deleted_remote_workspace_is_left_out_of_the_mounts(
    elsewhere: Harness, library: Workspace
) -> None:
    elsewhere.deletion.workspace(library.record.id, force=True)
    agent: AgentRecord = elsewhere.agents.get("reader")
    assert missing_mounts(agent, elsewhere.agents.bindings(agent)) == ["library"]


def test_a_mount_without_its_own_sandbox_setting_is_read_from_a_local_copy(
    elsewhere: Harness, library: Workspace
) -> None:
    """Only the mount's own null says that there is to be none."""
    mount = {"name": "library", "workspaceId": library.record.id}
    config = {"private": "off", "workspaces": [mount]}
    agent = elsewhere.agents.add({"name": "copying", "config": config})
    (bound,) = elsewhere.agents.bindings(agent)
    assert not bound.is_distant and not bound.is_writable
    assert not bare(elsewhere, library)


def test_background_sync_does_not_copy_a_workspace_that_is_only_read_in_s3(
    opened: Open, elsewhere: Harness, library: Workspace
) -> None:
    """A whole pass lies between two changes of another workspace that arrive."""
    writer = opened("writer")
    team = writer.workspaces.create("team")
    house, rooms = elsewhere.house, elsewhere.rooms
    syncing = BackgroundSync(lambda: [LocalCopies(rooms.workspaces, rooms.agents)], every_s=0.02)
    watching = BackgroundWatch(
        elsewhere.settings.home.trees,
        lambda: all_of(LocalCopies(rooms.workspaces, rooms.agents)),
        house.clock,
        lambda news: None,
    )
    tree = elsewhere.settings.home.tree(team.namespace)

    def write(text: str) -> None:
        team.write("MEMORY.md", text, by=PERSON)
        writer.workspaces.sync("team").run()

    async def arrives(text: str) -> None:
        await asyncio.to_thread(write, text)
        place = tree / "MEMORY.md"
        async with asyncio.timeout(60):
            while not (place.exists() and place.read_text() == text):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def story() -> None:
        running = [asyncio.create_task(one.run()) for one in (syncing, watching)]
        await arrives("- one\n")
        await arrives("- two\n")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(story())
    assert bare(elsewhere, library)
    copying = elsewhere.agents.create("copying", workspaces=["library"], private="off")
    wanted = [record.name for record in LocalCopies(rooms.workspaces, rooms.agents).records()]
    assert "library" in wanted, "an agent needs a copy now"
    elsewhere.agents.patch(copying.id, {"config": {"workspaces": []}})
    elsewhere.workspaces.get("library")
    assert not bare(elsewhere, library)
    wanted = [record.name for record in LocalCopies(rooms.workspaces, rooms.agents).records()]
    assert "library" in wanted, "what lies here is kept up"


def test_unchanged_remote_notes_are_read_once(library: Workspace) -> None:
    prefix = MemoryPrefix()
    distant = RemoteWorkspace(library.record, Namespace("fs-1"), prefix)
    small, large = b"# small\n", b"# large\n" + b"x" * SMALL_FILE_BYTES_MAX
    prefix.write("notes/small.md", small, expect=ANY)
    prefix.write("notes/large.md", large, expect=ANY)

    def glances() -> dict[str, bytes | None]:
        found = distant.find("notes", lambda _: True)
        return {s.name: data for s, data in zip(found, distant.glance(found), strict=True)}

    assert glances() == {"notes/small.md": small, "notes/large.md": None}
    assert glances() == {"notes/small.md": small, "notes/large.md": None}
    assert prefix.asked.count("GET notes/small.md") == 1
    prefix.write("notes/small.md", b"# other\n", expect=ANY)
    assert glances()["notes/small.md"] == b"# other\n"
    assert "GET notes/large.md" not in prefix.asked


def test_a_remote_note_deleted_after_the_listing_has_no_heading(library: Workspace) -> None:
    prefix = MemoryPrefix()
    distant = RemoteWorkspace(library.record, Namespace("fs-1"), prefix)
    prefix.write("notes/a.md", b"# a\n", expect=ANY)
    found = distant.find("notes", lambda _: True)
    prefix.delete("notes/a.md", expect=ANY)
    assert distant.glance(found) == [None]
    with pytest.raises(NotFound):
        distant.read("notes/a.md")
    with pytest.raises(Refused):
        distant.read("../a.md")
