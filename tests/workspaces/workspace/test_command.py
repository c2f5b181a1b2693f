"""A command holds the writer lock: who is the author of changes before, during and after a command."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.workspaces.actors import commands, one_command, opened_at, shell, start
from tests.workspaces.conftest import AGENT, CALLER
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import WorkspaceBusy
from workspaces.home.layout import Home
from workspaces.problem import Problem
from workspaces.tree.scan import Tree
from workspaces.workspace.workspace import Command, Workspace

COMMANDS = 15


@pytest.fixture
def workspace(home: Home) -> Workspace:
    """One that other processes find on the disk."""
    return opened_at(home.root)


def test_the_changes_of_a_command_are_a_single_revision_of_its_turn(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("gone.md", "x", by=CALLER)
    with workspace.command(AGENT) as command:
        (root / "notes").mkdir()
        (root / "notes/a.md").write_text("one\n")
        (root / "b.md").write_text("two\n")
        (root / "gone.md").unlink()
    newest = workspace.log()[0]
    assert command.revision == newest.id
    assert newest.author == "helper"
    assert newest.trailers["Conversation"] == "conv_1 c1"
    assert set(newest.paths) == {"notes/a.md", "b.md", "gone.md"}


def test_a_command_that_changes_nothing_makes_no_revision(workspace: Workspace, root: Path) -> None:
    workspace.write("a.md", "x", by=CALLER)
    with workspace.command(AGENT) as command:
        (root / "temporary").write_text("x")
        (root / "temporary").unlink()
    assert command.revision is None
    assert len(workspace.log()) == 1


def test_manual_edits_between_two_commands_belong_to_the_person(
    workspace: Workspace, root: Path
) -> None:
    shell(workspace, "echo by the agent > a.md", AGENT)
    (root / "a.md").write_text("by the agent\nby hand\n")
    (root / "b.md").write_text("new, by hand\n")
    shell(workspace, "echo by the agent again >> a.md", AGENT)
    newest, edit, oldest = workspace.log()
    assert [newest.author, edit.author, oldest.author] == ["helper", "owner", "helper"]
    assert set(edit.paths) == {"a.md", "b.md"}
    assert newest.paths == ("a.md",)


def test_a_failed_command_is_the_author_of_its_own_changes_only(
    workspace: Workspace, root: Path
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        shell(workspace, "echo half > a.md; exit 1", AGENT)
    assert workspace.log()[0].author == "helper"
    (root / "a.md").write_text("by hand\n")
    workspace.edits.commit()
    assert workspace.log()[0].author == "owner"


def test_a_writer_blocked_by_a_command_gets_an_error_that_names_the_lock_holder(
    workspace: Workspace, home: Home
) -> None:
    lock = WriterLock(home.lock(workspace.namespace))
    with workspace.command(AGENT), pytest.raises(WorkspaceBusy) as caught:  # noqa: SIM117
        with lock.hold("other", wait_s=0.01):
            pass
    assert "helper" in caught.value.holder


def test_two_turns_never_commit_half_written_files_of_each_other(
    workspace: Workspace, home: Home
) -> None:
    """Each writes its files in two halves, while the other one and an API caller are at work."""
    script = "echo {0} {1} > {0}-{1}.md; sleep 0.002; echo done >> {0}-{1}.md"
    turns = [start(commands, str(home.root), name, COMMANDS, script) for name in ("one", "two")]
    for number in range(20):
        workspace.write("n.md", f"{number}\n", by=CALLER)
    assert [turn.wait(timeout=60) for turn in turns] == [0, 0]
    revisions = workspace.log(limit=1000)
    assert len(revisions) == 20 + 2 * COMMANDS
    for revision in revisions:
        (path,) = revision.paths
        if revision.author == "caller":
            assert path == "n.md"
        else:
            assert path.startswith(f"{revision.author}-")
            assert workspace.read(path, view=revision.id).text.endswith("\ndone\n")


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("printf 'two, half wri' >> a.md", {"a.md"}),
        ("echo two >> a.md; mkdir n; echo x > n/b.md", {"a.md", "n/b.md"}),
        ("rm a.md; echo x > c.md", {"a.md", "c.md"}),
        ("ln -s /etc e; mkfifo f; mv a.md A.md", {"a.md", "A.md"}),
    ],
    ids=["half a line", "two files", "a delete", "links and a new case"],
)
def test_the_changes_of_a_killed_command_belong_to_its_turn(
    workspace: Workspace, root: Path, home: Home, script: str, left: set[str]
) -> None:
    workspace.write("a.md", "one\n", by=CALLER)
    (root / "by-hand.md").write_text("before the command\n")
    kill_in_command(home, f"{script}; echo ready; exec sleep 60")
    workspace.write("other.md", "x", by=CALLER)
    last, killed, edit, first = workspace.log()
    assert [last.author, killed.author] == ["caller", "helper"]
    assert killed.trailers["Turn"] == "turn_1"
    assert set(killed.paths) == left
    assert (edit.author, edit.paths) == ("owner", ("by-hand.md",))
    assert first.author == "caller"
    assert workspace.edits.commit() == last.id


def test_the_intent_of_a_killed_command_survives_a_killed_successor(
    workspace: Workspace, root: Path, home: Home
) -> None:
    kill_in_command(home, "echo one > a.md; echo ready; exec sleep 60")
    lock = WriterLock(home.lock(workspace.namespace))
    with pytest.raises(KeyboardInterrupt), lock.hold("a successor"):
        raise KeyboardInterrupt  # before it came to anything
    workspace.edits.commit()
    assert [revision.author for revision in workspace.log()] == ["helper"]


class Counted(Problem):
    """A problem that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return isinstance(other, Counted) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


def test_new_problems_after_a_command_are_found_in_linear_time() -> None:
    count = 2000
    before = [Counted(f"{n}", "bad_name", "is bad") for n in range(count)]
    after = [Counted(f"{n}", "bad_name", "is bad") for n in range(1, count + 1)]
    left = Command(before=Tree(problems=[*before]), after=Tree(problems=[*after])).problems
    assert left == [after[-1]]
    assert Counted.comparisons < 10 * count


def kill_in_command(home: Home, script: str) -> None:
    """Let it say `ready`, and kill it with all that it started."""
    with start(one_command, str(home.root), script, out=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGKILL)
