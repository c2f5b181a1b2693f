"""What confinement costs: a command in the sandbox beside the same one without; the tools that look for
files in a workspace of 10 000 beside the plain calls that find the same."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.ratio import compare, report
from harness import Harness
from harness.agents.mounts import Mount
from harness.bootstrap.services.builtin_tools import TOOLS
from harness.messages.message import ToolCall
from harness.messages.progress import silent
from harness.runtime.async_bridge import run_in_thread
from harness.sandboxes.bundled_programs import ripgrep
from harness.sandboxes.port import Bind, CommandLimits, SandboxCommand
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

ROUNDS = 100
FILES, PER_DIRECTORY = 10_000, 100
PAGE = "".join(f"- fact {n}: an agent keeps it about its user\n" for n in range(40))


def main() -> None:
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as name:  # a place that other users can pass through
        place = Path(name)
        place.chmod(0o711)
        with Harness.open(place / "home") as harness, asyncio.Runner() as runner:
            found = harness.confinement()
            if not found.works:
                print(f"no sandbox on this machine: {found.detail}")
                return
            workspace = harness.workspaces.create("bench")
            _commands(harness, workspace, runner)
            _fill(workspace)
            _searches(harness, workspace, runner)


def _commands(harness: Harness, workspace: Workspace, runner: asyncio.Runner) -> None:
    sandbox = harness.house.sandbox
    bind = Bind("w", workspace.root, True, 10**8, 10**5)
    order = SandboxCommand(("bash", "-c", "true"), (bind,), "w", CommandLimits(30, 2**30, 64))

    def ours() -> None:
        assert runner.run(sandbox.run(order)).code == 0

    def plain() -> None:
        subprocess.run(["bash", "-c", "true"], check=True)

    ours()
    report("`true` in the sandbox: `bash -c true`", *compare(ours, plain, rounds=ROUNDS), at_most=8)
    used = (_processor_s(ours), _processor_s(plain))
    report("… in processor time, which a busy machine does not stretch", *used, at_most=8)
    if shutil.which("srt") is None:
        print("@anthropic-ai/sandbox-runtime is not on the PATH: no comparison with it")
        return
    peer = compare(ours, lambda: subprocess.run(["srt", "true"], check=True), rounds=10)
    report("`true` in the sandbox: `srt true` (sandbox-runtime)", *peer, at_most=1 / 20)


def _processor_s(call: Callable[[], None]) -> float:
    """Of this process and of those it started, together, for some calls."""
    before = os.times()[:4]
    for _ in range(ROUNDS):
        call()
    return sum(os.times()[:4]) - sum(before)


def _fill(workspace: Workspace) -> None:
    """By hand: how the files came about is not what is measured."""
    owner = workspace.root.stat()
    for number in range(FILES):
        file = workspace.root / f"d{number // PER_DIRECTORY:03}" / f"n{number:05}.md"
        if number % PER_DIRECTORY == 0:
            file.parent.mkdir(mode=0o700)
            os.chown(file.parent, owner.st_uid, owner.st_gid)
        file.write_text(PAGE + (f"needle {number}\n" if number % 500 == 0 else ""))
        file.chmod(0o600)
        os.chown(file, owner.st_uid, owner.st_gid)


def _searches(harness: Harness, workspace: Workspace, runner: asyncio.Runner) -> None:
    record = harness.rooms.sandboxes.get("default")
    mount = Mount("w", workspace, is_writable=True, sandbox=record)
    workshop = harness.house.programs()
    desk = ToolContext([mount], lambda _: Author("bench", "agent_1", "turn"), programs=workshop)
    toolset = Toolset(TOOLS, desk)

    def tool(name: str, **arguments: str) -> Callable[[], str]:
        def call() -> str:
            told = runner.run(toolset.run(ToolCall("c", name, arguments), silent))
            assert not told.is_error, told.text
            return told.text

        return call

    def threaded(call: Callable[[Path], object], place: Path) -> Callable[[], object]:
        """From where the tools are called: a server reads no file in its event loop."""
        return lambda: runner.run(run_in_thread(call, place))

    rg = ripgrep(None)
    assert rg is not None
    plain = [str(rg), "--no-config", "--no-ignore", "--hidden", "--line-number", "needle"]

    def search() -> str:
        return subprocess.run(plain, cwd=workspace.root, capture_output=True, text=True).stdout

    assert sorted(search().splitlines()) == tool("grep", pattern="needle")().splitlines()
    page = workspace.root / "d050" / "n05001.md"
    pairs = (
        ("read", tool("read", path="d050/n05001.md"), threaded(_read, page), ROUNDS * 5),
        ("glob", tool("glob", pattern="**/n*1.md"), threaded(_glob, workspace.root), 20),
        ("grep", tool("grep", pattern="needle"), search, 20),
    )
    for name, ours, peer, rounds in pairs:
        label = {"read": "open, read and number", "glob": "glob.glob, newest first"}.get(name, "rg")
        figures = compare(ours, peer, rounds=rounds)
        report(f"{name} in a workspace of {FILES:,} files: {label}", *figures, at_most=2)


def _read(page: Path) -> str:
    lines = page.read_text().splitlines()
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, 1))


def _glob(root: Path) -> list[str]:
    found = glob.glob(f"{root}/**/n*1.md", recursive=True)  # noqa: PTH207 - the plain call
    return sorted(found, key=os.path.getmtime, reverse=True)


if __name__ == "__main__":
    main()
