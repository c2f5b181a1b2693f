"""Every way in which a path enters, with every hostile path: none leaves the workspace or ends in a bug.

An *entry* is a way by which a path comes in. One line in ENTRIES makes a new one join.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import Harness
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.cli.app import app
from harness.cli.console.console import Shown
from harness.messages.message import ToolCall
from harness.messages.progress import silent
from harness.runtime.async_bridge import LoopThread
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from tests.payloads import CANARY, PAYLOADS, spellings
from workspaces.clock import SystemClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Failure
from workspaces.history.history import History
from workspaces.home.layout import Home
from workspaces.localfs.safe_open import SafeRoot
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace

SECRET = "the canary sings"
BY = Author("attacker", "agent_1", "turn")
ARGUMENT_BYTES_MAX = 100_000
"""What the kernel takes as one argument of a program."""


@dataclass(frozen=True)
class Place:
    """A home with everything that can be asked for a path, and a canary beside it."""

    outside: Path
    home: Path
    harness: Harness
    workspace: Workspace
    blobs: FileBlobs
    walked: FileBlobs
    history: History
    toolset: Toolset
    loop: LoopThread

    def tool(self, name: str, path: str, **more: object) -> str:
        call = ToolCall("call_1", name, {"path": path, **more})
        return repr(self.loop.run(self.toolset.run(call, silent)))

    def cli(self, *arguments: str) -> str:
        """In this process. Whatever is neither success nor a Failure nor wrong usage is raised."""
        if any("\0" in one or len(one) > ARGUMENT_BYTES_MAX for one in arguments):
            return ""  # no program can be given such an argument
        ended = CliRunner().invoke(app, ["--home", str(self.home), *arguments], input="x\n")
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code in {0, 1, 2}, ended.output
        return ended.output

    def path_printed(self, path: str) -> str:
        """`harness path` prints a place on the disk: it must be one in the workspace."""
        printed = self.cli("path", "notes", "--", path)
        if printed.startswith("/"):
            shown = os.path.normpath(printed.removesuffix("\n"))
            assert Path(shown).is_relative_to(self.workspace.root), printed
        return printed


Entry = Callable[[Place, str], object]
"""What it returns is searched for the canary's song."""

ENTRIES: dict[str, Entry] = {
    "Workspace.read": lambda at, path: at.workspace.read(path),
    "Workspace.read at a revision": lambda at, path: at.workspace.read(
        path, view=at.workspace.history.tip() or ""
    ),
    "Workspace.read of a view": lambda at, path: at.workspace.read("MEMORY.md", view=path),
    "Workspace.write": lambda at, path: at.workspace.write(path, "x", by=BY),
    "Workspace.write of a new file": lambda at, path: at.workspace.write(
        path, "x", by=BY, expect=ABSENT
    ),
    "Workspace.delete": lambda at, path: at.workspace.delete(path, by=BY),
    "Workspace.files": lambda at, path: at.workspace.files(view=path),
    "Workspace.log": lambda at, path: at.workspace.log(path),
    "Workspace.plant": lambda at, path: at.workspace.plant({path: b"x"}, by=BY),
    "Workspaces.get": lambda at, path: at.harness.workspaces.get(path),
    "FileBlobs.read": lambda at, path: at.blobs.read(path),
    "FileBlobs.write": lambda at, path: at.blobs.write(path, b"x", expect=ANY),
    "FileBlobs.write of a new file": lambda at, path: at.blobs.write(path, b"x", expect=ABSENT),
    "FileBlobs.delete": lambda at, path: at.blobs.delete(path, expect=ANY),
    "FileBlobs.scan": lambda at, path: list(at.blobs.scan(path)),
    "FileBlobs.read, walked": lambda at, path: at.walked.read(path),
    "FileBlobs.write, walked": lambda at, path: at.walked.write(path, b"x", expect=ANY),
    "FileBlobs.delete, walked": lambda at, path: at.walked.delete(path, expect=ANY),
    "History.find": lambda at, path: at.history.find(at.history.tip(), WorkspacePath(path)),
    "History.record": lambda at, path: at.history.record({WorkspacePath(path): b"x"}, BY),
    "History.log": lambda at, path: at.history.log(path=WorkspacePath(path)),
    "History.resolve": lambda at, path: at.history.resolve(path),
    "tool read": lambda at, path: at.tool("read", path),
    "tool read of a workspace": lambda at, path: at.tool("read", "MEMORY.md", workspace=path),
    "tool write": lambda at, path: at.tool("write", path, content="x"),
    "tool write of content": lambda at, path: at.tool("write", "content.md", content=path),
    "tool edit": lambda at, path: at.tool("edit", path, old="x", new="y"),
    "harness cat": lambda at, path: at.cli("cat", "notes", "--", path),
    "harness cat of a workspace": lambda at, path: at.cli("cat", "--", path, "MEMORY.md"),
    "harness cat of a revision": lambda at, path: at.cli("cat", "notes", "x.md", f"-r{path}"),
    "harness write": lambda at, path: at.cli("write", "notes", "--", path),
    "harness path": lambda at, path: at.path_printed(path),
    "harness log": lambda at, path: at.cli("log", "notes", "--json", "--", path),
}
"""The CLI is asked with `--`, as a careful script does; without it see the options below."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HARNESS_HOME", "HARNESS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Shown, "home", None)
    monkeypatch.setattr(Shown, "as_json", False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    canary = tmp_path / CANARY
    canary.parent.mkdir()
    canary.write_text(SECRET)
    home = Home(tmp_path / "home")
    with Harness.open(home.root) as harness:
        workspace = harness.workspaces.get("notes")
        plant_links(workspace.root, canary)
        desk = ToolContext(harness.agents.bindings(harness.agents.get("assistant")), lambda _: BY)
        loop = LoopThread()
        yield Place(
            canary.parent,
            home.root,
            harness,
            workspace,
            FileBlobs(workspace.root, home.staging(workspace.namespace)),
            FileBlobs(
                workspace.root,
                home.staging(workspace.namespace),
                open_tree=lambda root: SafeRoot(root, openat2=False),
            ),
            History(home.history(workspace.namespace), SystemClock()),
            Toolset(TOOLS, desk),
            loop,
        )
        loop.close()


def plant_links(root: Path, canary: Path) -> None:
    """What the family `link` names."""
    (root / "link.md").symlink_to(canary)
    (root / "linked").symlink_to(canary.parent)
    (root / "dangling.md").symlink_to(canary.parent / "created.md")
    (root / "loop.md").symlink_to("loop.md")
    (root / "hard.md").hardlink_to(canary)
    (root / "here").symlink_to(root)
    (root / "process").symlink_to("/proc/self")
    os.mkfifo(root / "fifo.md")


def around(place: Place) -> dict[str, bytes | None]:
    """Everything beside the trees, the histories and the records: nothing there may change."""
    found: dict[str, bytes | None] = {}
    for base in (place.outside, place.outside.parent / "cwd"):
        for path in base.rglob("*"):
            found[str(path)] = path.read_bytes() if path.is_file() else None
    for base in (place.outside.parent, place.home, place.home / "workspaces", place.home / "locks"):
        found |= {
            str(path): None for path in base.iterdir() if not path.name.startswith("state.db")
        }
    found |= {str(path): None for path in (place.home / "staging").rglob("*")}
    return found


def sent(place: Place) -> Iterator[tuple[str, str]]:
    for name, payload in PAYLOADS.items():
        for text in sorted(spellings(payload.replace("OUTSIDE", str(place.outside)))):
            yield name, text


def test_at_least_190_hostile_paths_are_tried() -> None:
    assert len(PAYLOADS) >= 190


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_a_hostile_path_never_leaves_the_workspace_or_raises_a_bug(
    place: Place, entry: Entry
) -> None:
    before = around(place)
    found: list[str] = []
    for name, text in sent(place):
        try:
            answer = entry(place, text)
        except Failure as failure:
            answer = failure
        except Exception as error:
            found.append(f"{name} {text[:60]!a}: {type(error).__name__}: {error}")
            continue
        if SECRET in f"{answer} {answer!r}":
            found.append(f"{name} {text[:60]!a}: the canary was read")
        if around(place) != before:
            found.append(f"{name} {text[:60]!a}: something outside has changed")
            before = around(place)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("command", ["cat", "write", "path", "log"])
def test_a_path_argument_that_looks_like_an_option_reads_nothing_outside(
    place: Place, command: str
) -> None:
    """Without `--`: never a path outside, never a bug."""
    before = around(place)
    for name, text in sent(place):
        if text.startswith("-") and not text.startswith("--home"):
            try:
                answer = place.cli(command, "notes", text)
            except Failure:
                continue
            assert SECRET not in answer, name
    assert around(place) == before


SAMPLE = (
    "../../../outside/secret.md",
    "..%2f..%2f..%2foutside/secret.md",
    "OUTSIDE/secret.md",
    "link.md",
    "linked/secret.md",
    "hard.md",
    "fifo.md",
    "a\udcff",
    "\udcc0\udcae\udcc0\udcae/x",
    ".git/config",
    "x" * 100_000,
    "a\x1b[31m\nb",
)


@pytest.mark.parametrize(("command", "every"), [("cat", 1), ("write", 3), ("path", 3), ("log", 3)])
def test_the_command_refuses_a_hostile_path_with_an_error_message(
    place: Place, command: str, every: int
) -> None:
    """One process a path is slow: a sample, of the bytes that really arrive as arguments."""
    before = around(place)
    for text in SAMPLE[::every]:
        path = text.replace("OUTSIDE", str(place.outside))
        ended = subprocess.run(
            [sys.executable, "-m", "harness.cli.app", command, "notes", "--", path],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(Path(__file__).parents[1]),
                "HARNESS_HOME": str(place.home),
            },
            input=b"x",
            capture_output=True,
            timeout=60,
        )
        printed = ended.stdout + ended.stderr
        assert ended.returncode in {0, 1}, printed
        assert SECRET.encode() not in printed
        assert b"Traceback" not in printed
        assert b"\x1b[31m" not in printed
    assert around(place) == before
