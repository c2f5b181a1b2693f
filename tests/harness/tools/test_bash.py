"""The tool `bash` as a model gets it, and the demo model that uses it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.agents.mounts import Mount
from harness.agents.record import AgentRecord
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.messages.message import ToolCall, ToolResult
from harness.messages.progress import ToolEnded, ToolStarted, silent
from harness.models.port import Model
from harness.models.scripted import ScriptedModel
from harness.runtime.async_bridge import LoopThread
from harness.tools.port import Toolset
from harness.tools.stored_results import StoredResults
from harness.tools.tool_context import ToolContext
from tests.ordinary import reachable_directory
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import WorkspaceBusy
from workspaces.ids import ConversationId
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.workspace.workspace import Workspace

AGENT = Author("helper", "agent_1", "turn", {"Turn": "turn_1"})
PERSON = Author("ann", "usr_1", "api")

Call = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with reachable_directory() as place, Harness.open(place / "home") as opened:
        found = opened.confinement()
        if not found.works:
            pytest.skip(f"no sandbox on this machine: {found.detail}")
        yield opened


@pytest.fixture
def workspace(harness: Harness, request: pytest.FixtureRequest) -> Workspace:
    return harness.workspaces.create(request.node.name[:90], template="default")


@pytest.fixture
def desk(harness: Harness, workspace: Workspace) -> ToolContext:
    return desk_of(harness, [mount(harness, "w", workspace)])


def mount(harness: Harness, name: str, workspace: Workspace, sandbox: str = "default") -> Mount:
    record = harness.rooms.sandboxes.get(sandbox)
    return Mount(name, workspace, record.config.mode == "rw", sandbox=record)


def desk_of(harness: Harness, mounts: list[Mount]) -> ToolContext:
    workshop = harness.house.programs()
    results = StoredResults(ConversationId("conv_1"), MemoryBlobs(), lambda call_id: None)
    return ToolContext(mounts, lambda call_id: AGENT, programs=workshop, results=results)


@pytest.fixture
def call(desk: ToolContext) -> Iterator[Call]:
    loop = LoopThread()
    yield lambda name, **arguments: called(loop, desk, name, arguments)
    loop.close()


def called(loop: LoopThread, desk: ToolContext, name: str, arguments: dict[str, Any]) -> ToolResult:
    return loop.run(Toolset(TOOLS, desk).run(ToolCall("t1", name, arguments), silent))


def test_bash_changes_files_and_makes_a_revision(
    call: Call, workspace: Workspace, desk: ToolContext
) -> None:
    told = call("bash", command="pwd; mkdir -p notes; echo hello > notes/a.md; cat notes/a.md")
    assert told == ToolResult("t1", "/workspaces/w\nhello")
    assert workspace.read("notes/a.md").text == "hello\n"
    revision = workspace.log()[0]
    assert (revision.author, revision.paths) == ("helper", ("notes/a.md",))
    assert [change.revision for change in desk.changes] == [revision.id]


def test_bash_keeps_only_files_between_commands(call: Call) -> None:
    call("bash", command="cd /tmp; x=1; echo x > /tmp/f; sleep 600 &")
    told = call("bash", command='pwd; echo "[$x]"; ls /tmp; jobs').text
    assert told == "/workspaces/w\n[]"


def test_bash_states_the_exit_code_and_the_reason_a_command_ended(
    call: Call, workspace: Workspace
) -> None:
    assert call("bash", command="true").text == "(no output)"
    assert call("bash", command="echo x >&2; exit 3").text == "x\n(exit code 3)"
    for seconds in (1, 10, 100):  # on a busy machine it may not have begun
        timed = call("bash", command="echo part; echo > begun; sleep 600", timeout=seconds)
        if (workspace.root / "begun").exists():
            break
    assert not timed.is_error
    assert timed.text.startswith(f"part\n(ended after {seconds} s, with all that it had started")
    assert call("bash", command="printf 'a\\033[31mb\\r\\nc\\a'").text == "ab\nc"


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": "true", "timeout": 0},
        {"command": "true", "timeout": 601},
        {"command": "a\0b"},
        {"command": "echo \ud800"},
        {"command": "#" * 100_001},
    ],
)
def test_bash_refuses_an_invalid_command(call: Call, arguments: dict[str, Any]) -> None:
    assert call("bash", **arguments).is_error


def test_bash_shows_head_and_tail_of_a_long_output_and_stores_the_whole(call: Call) -> None:
    told = call("bash", command="seq 1 100000").text
    assert len(told) < 66_000
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("99999\n100000")
    assert 'bytes are left out here; read_result with id "t1" shows the whole …)' in told
    read, offset = "", 0
    while True:
        part = call("read_result", id="t1", offset=offset).text
        body, more, _ = part.partition("\n(")
        read += body
        offset += len(body)
        if not more:
            break
    assert read == "".join(f"{n}\n" for n in range(1, 100_001))
    assert call("read_result", id="t2").is_error
    assert "there is none" in call("read_result", id="t1", offset=10**9).text


def test_bash_ends_a_command_that_prints_too_much(call: Call) -> None:
    told = call("bash", command="yes").text
    assert "printed more than 64 MiB" in told
    assert len(told) < 66_000


def test_bash_lists_the_files_that_cannot_be_kept(call: Call, workspace: Workspace) -> None:
    told = call("bash", command="echo x > 'a:b'; ln -s / l; echo y > good.md").text
    assert "(not kept: 'a:b' contains ':'" in told
    assert "(not kept: 'l' is not a regular file)" in told
    assert workspace.log()[0].paths == ("good.md",)
    assert call("bash", command="true").text == "(no output)"


def test_bash_ends_a_command_that_exceeds_twice_the_quota(
    harness: Harness, workspace: Workspace
) -> None:
    harness.workspaces.patch(workspace.record.id, {"config": {"quota": {"bytes": 1_000_000}}})
    small = harness.workspaces.get(workspace.record.id)
    desk, loop = desk_of(harness, [mount(harness, "w", small)]), LoopThread()
    write = "n=0; while :; do n=$((n + 1)); head -c 100000 /dev/zero > f$n; done"
    told = called(loop, desk, "bash", {"command": write}).text
    loop.close()
    assert "took more than 2 times the quota" in told
    assert "beyond the quota of 1,000,000 bytes" in told


def test_bash_can_clean_up_a_workspace_over_twice_its_quota_without_letting_the_workspace_grow(
    harness: Harness, workspace: Workspace
) -> None:
    harness.workspaces.patch(workspace.record.id, {"config": {"quota": {"bytes": 1_000_000}}})
    small = harness.workspaces.get(workspace.record.id)
    for n in range(30):
        (small.root / f"f{n}").write_bytes(b"x" * 100_000)
    desk, loop = desk_of(harness, [mount(harness, "w", small)]), LoopThread()
    grown = called(loop, desk, "bash", {"command": "head -c 100000 /dev/zero > more"}).text
    assert "no file can grow" in grown
    assert not (small.root / "more").stat().st_size
    told = called(loop, desk, "bash", {"command": "rm more f1*; sleep 0.3; rm f*; echo ok"}).text
    assert told.startswith("ok\n(w took more than 2 times its quota")
    assert called(loop, desk, "bash", {"command": "echo y > b.md; cat b.md"}).text == "y"
    loop.close()


def test_bash_commits_a_manual_edit_under_its_owner_before_the_command(
    call: Call, workspace: Workspace
) -> None:
    (workspace.root / "by-hand.md").write_text("by hand\n")
    call("bash", command="echo by the agent > other.md; cat by-hand.md")
    newest, edit = workspace.log()[:2]
    assert (newest.author, newest.paths) == ("helper", ("other.md",))
    assert (edit.author, edit.paths) == ("owner", ("by-hand.md",))


def test_a_file_written_by_bash_counts_as_read_and_a_file_changed_by_another_author_does_not(
    call: Call, workspace: Workspace
) -> None:
    call("bash", command="echo one > mine.md")
    assert not call("write", path="mine.md", content="two\n").is_error
    workspace.write("theirs.md", "one\n", by=PERSON)
    call("bash", command="echo two >> theirs.md")
    assert "was not read" in call("write", path="theirs.md", content="three\n").text
    call("read", path="theirs.md")
    call("bash", command="echo three >> theirs.md")
    assert not call("write", path="theirs.md", content="four\n").is_error


def test_bash_mounts_together_the_workspaces_that_share_a_sandbox_record(harness: Harness) -> None:
    names = ("first", "second", "third", "fourth")
    made = [harness.workspaces.create(f"together {name}") for name in names]
    for sandbox, config in (("read", {"mode": "ro"}), ("another", {})):
        harness.rooms.sandboxes.add({"name": sandbox, "config": config})
    mounts = [
        mount(harness, "first", made[0]),
        mount(harness, "second", made[1]),
        mount(harness, "third", made[2], "another"),
        Mount("fourth", made[3], is_writable=False),
    ]
    desk, loop = desk_of(harness, mounts), LoopThread()

    def bash(command: str, workspace: str) -> ToolResult:
        return called(loop, desk, "bash", {"command": command, "workspace": workspace})

    told = bash(
        "pwd; readlink /workspace; ls /workspaces; echo x > a; echo y > ../first/b", "second"
    )
    assert told.text == "/workspaces/second\nworkspaces/first\nfirst\nsecond"
    assert made[0].read("b").text == "y\n"
    assert made[1].read("a").text == "x\n"
    assert [change.workspace for change in desk.changes] == ["first", "second"]
    assert bash("ls /workspaces", "third").text == "third"
    assert "no sandbox" in bash("true", "fourth").text
    read_only = desk_of(harness, [mount(harness, "first", made[0], "read")])
    told = called(loop, read_only, "bash", {"command": "cat b; echo z > c"})
    assert told.text.startswith("y\n")
    assert "Read-only file system" in told.text
    assert made[0].log()[0].paths == ("b",)
    loop.close()


def test_a_running_writable_command_holds_the_writer_lock(
    harness: Harness, desk: ToolContext, workspace: Workspace
) -> None:
    loop, began = LoopThread(), workspace.root / "began"
    ran: list[ToolResult] = []
    command = "echo > began; until [ -e /workspace/go ]; do sleep 0.02; done; rm began go"
    thread = threading.Thread(
        target=lambda: ran.append(called(loop, desk, "bash", {"command": command}))
    )
    thread.start()
    while not began.exists():
        assert thread.is_alive()
    lock = WriterLock(harness.settings.home.lock(workspace.namespace))
    with pytest.raises(WorkspaceBusy, match="helper"), lock.hold("other", wait_s=0):
        pass
    (workspace.root / "go").touch()
    thread.join()
    assert ran == [ToolResult("t1", "(no output)")]
    with lock.hold("other", wait_s=0):
        pass
    loop.close()


def test_a_read_only_command_does_not_need_the_writer_lock(
    harness: Harness, workspace: Workspace
) -> None:
    record = harness.rooms.sandboxes.add({"name": "reader", "config": {"mode": "ro"}})
    desk, loop = desk_of(harness, [mount(harness, "w", workspace, record.id)]), LoopThread()
    with WriterLock(harness.settings.home.lock(workspace.namespace)).hold("other", wait_s=0):
        assert "# Memory" in called(loop, desk, "bash", {"command": "cat MEMORY.md"}).text
    loop.close()


def test_a_cancelled_command_is_ended_and_its_changes_become_a_revision(
    desk: ToolContext, workspace: Workspace
) -> None:
    async def cancelled() -> None:
        toolset = Toolset(TOOLS, desk)
        call = ToolCall("t1", "bash", {"command": "echo done > a.md; sleep 600"})
        running = asyncio.create_task(toolset.run(call, silent))
        while not (workspace.root / "a.md").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert (workspace.log()[0].author, workspace.log()[0].paths) == ("helper", ("a.md",))
    workspace.write("b.md", "the lock is free", by=PERSON)


def test_bash_uses_the_limits_of_the_sandbox_record(harness: Harness, workspace: Workspace) -> None:
    limits = {"processes": 8, "outputBytes": 1024, "memoryBytes": 64 * 2**20}
    short = harness.rooms.sandboxes.add({"name": "short", "config": {"limits": {"seconds": 1}}})
    small = harness.rooms.sandboxes.add({"name": "small", "config": {"limits": limits}})
    loop = LoopThread()
    desk = desk_of(harness, [mount(harness, "w", workspace, short.id)])
    assert "ended after 1 s" in called(loop, desk, "bash", {"command": "sleep 600"}).text
    desk = desk_of(harness, [mount(harness, "w", workspace, small.id)])
    assert len(called(loop, desk, "bash", {"command": "seq 1 10000"}).text) < 1300
    told = called(loop, desk, "bash", {"command": "ulimit -u; ulimit -d"}).text
    assert told == f"8\n{64 * 1024}"
    loop.close()


def test_a_fact_s_pin_that_a_tool_set_is_put_back_and_the_model_is_told(
    call: Call, workspace: Workspace
) -> None:
    workspace.write("facts/tea.md", b"---\nkey: tea\npinned: true\n---\nLikes tea.\n", by=PERSON)
    note = "Put back in facts/tea.md: pinned."
    changed = call("bash", command="sed -i s/pinned:.true/importance:\\ 9/ facts/tea.md")
    assert "Put back in facts/tea.md: pinned, importance." in changed.text
    call("read", path="facts/tea.md")
    edited = call("edit", path="facts/tea.md", old="pinned: true\n", new="tags: [hot]\n")
    assert note in edited.text
    new = call("write", path="facts/new.md", content="---\npinned: true\n---\nNew.\n")
    assert "Put back in facts/new.md: pinned." in new.text
    files = {path: workspace.read(path).text for path in ("facts/tea.md", "facts/new.md")}
    assert "pinned: true" in files["facts/tea.md"]
    assert "tags: [hot]" in files["facts/tea.md"]
    assert files["facts/new.md"] == "New.\n"


@pytest.fixture
def agent(harness: Harness, workspace: Workspace) -> AgentRecord:
    return harness.agents.create(workspace.record.name, workspaces=[workspace], model="demo")


def test_the_demo_model_writes_memory_with_bash(
    harness: Harness, agent: AgentRecord, workspace: Workspace
) -> None:
    progress: list[object] = []
    told = harness.run("Remember that it's Ada's `tea` $HOME.", agent=agent, emit=progress.append)
    assert told.reply == "I have written to MEMORY.md: it's Ada's `tea` $HOME."
    assert [p.call.name for p in progress if isinstance(p, ToolStarted)] == ["bash"]
    assert workspace.read("MEMORY.md").text.endswith("\n- it's Ada's `tea` $HOME\n")
    again = harness.run("Remember that it's Ada's `tea` $HOME!", agent=agent)
    assert again.reply.startswith("I know that already")
    assert harness.run("What is Ada's?", agent=agent).reply.startswith("From my memory: it's Ada's")


def test_the_demo_model_with_bash_creates_a_memory_and_completes_an_unfinished_line(
    harness: Harness, agent: AgentRecord, workspace: Workspace
) -> None:
    workspace.delete("MEMORY.md", by=PERSON)
    harness.run("Remember that tea is green.", agent=agent)
    assert workspace.read("MEMORY.md").text == "# Memory\n\n- tea is green\n"
    workspace.write("MEMORY.md", "- unfinished", by=PERSON)
    harness.run("Remember that tea is hot.", agent=agent)
    assert workspace.read("MEMORY.md").text == "- unfinished\n- tea is hot\n"


def test_the_revision_of_a_bash_command_names_its_tool_call(
    harness: Harness, agent: AgentRecord, workspace: Workspace
) -> None:
    model: Model = ScriptedModel(
        [ToolCall("toolu_1", "bash", {"command": "echo hi | tee a.md"})], "done"
    )
    ended: list[str] = []
    with Harness.open(harness.settings.home.root, model=model) as other:
        outcome = other.run(
            "go",
            agent=agent.id,
            emit=lambda p: ended.append(p.result.text) if isinstance(p, ToolEnded) else None,
        )
    assert outcome.status == "done"
    assert ended == ["hi"]
    revision = workspace.log()[0]
    assert revision.trailers["Call"] == "toolu_1"
    assert [change.revision for change in outcome.changes] == [revision.id]


def test_stored_results_of_another_conversation_cannot_be_read(
    harness: Harness, desk: ToolContext
) -> None:
    blobs = MemoryBlobs()
    one, two = (
        StoredResults(ConversationId(name), blobs, lambda call_id: None)
        for name in ("conv_1", "conv_2")
    )
    one.keep("../conv_2/x", "secret")
    assert one.read("../conv_2/x") == "secret"
    other = ToolContext(desk.mounts, desk.author, results=two)
    loop = LoopThread()
    for call_id in ("../conv_2/x", "x", "../conv_1/x"):
        assert called(loop, other, "read_result", {"id": call_id}).is_error
    loop.close()


def test_bash_can_change_a_manually_created_file_with_mode_600(
    workspace: Workspace, call: Call
) -> None:
    """Files that somebody else made by hand, whatever their modes, can be changed by a command."""
    (workspace.root / "by-hand.md").write_text("x\n")
    Path(workspace.root / "by-hand.md").chmod(0o600)
    assert call("bash", command="echo y >> by-hand.md; cat by-hand.md").text == "x\ny"
