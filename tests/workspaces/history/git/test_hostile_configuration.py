"""Git configuration and hooks in the tree or in the environment start no program.

Each attack leaves a marker if it runs. All are planted at once; then everything that reads or writes
a history is done, and there is no marker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.errors import Failure, Refused
from workspaces.workspace.workspace import Workspace

FILE = "MEMORY.md"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def program(tmp_path: Path, marker: Path) -> Path:
    """Leaves its name's mark, and behaves like a filter."""
    program = tmp_path / "attack"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat 2>/dev/null\nexit 0\n')
    program.chmod(0o755)
    return program


def configuration(program: Path) -> dict[str, str]:
    return {
        "core.fsmonitor": str(program),
        "core.hooksPath": str(program.parent / "hooks"),
        "core.pager": str(program),
        "core.editor": str(program),
        "core.sshCommand": str(program),
        "core.askPass": str(program),
        "pager.log": str(program),
        "pager.diff": str(program),
        "diff.external": str(program),
        "diff.evil.textconv": str(program),
        "diff.evil.command": str(program),
        "filter.evil.clean": str(program),
        "filter.evil.smudge": str(program),
        "filter.evil.process": str(program),
        "gpg.program": str(program),
        "commit.gpgSign": "true",
        "log.showSignature": "true",
        "interactive.diffFilter": str(program),
        "alias.log": f"!{program}",
        "credential.helper": str(program),
        "uploadpack.packObjectsHook": str(program),
        "include.path": str(program.parent / "included"),
    }


def plant_in_tree(root: Path, program: Path) -> None:
    """As an agent's bash could: a repository, hooks, attributes, a submodule, links."""
    (root / ".gitattributes").write_text(
        "* filter=evil diff=evil merge=evil working-tree-encoding=UTF-16\n"
    )
    (root / ".gitmodules").write_text(
        f'[submodule "s"]\n\tpath = s\n\turl = ext::{program}\n\tupdate = !{program}\n'
    )
    for place in (root / ".git", root / "bare.git", root / "notes" / ".git"):
        place.parent.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", "--bare", str(place)], check=True)
        configure(place / "config", program)
        (place / "hooks").mkdir(exist_ok=True)
        plant_hooks(place / "hooks", program)
    (root / "s").mkdir()
    (root / "s" / ".git").write_text(f"gitdir: {root / 'bare.git'}\n")
    for name in ("HEAD", "config"):  # the root itself as a bare repository
        shutil.copy(root / "bare.git" / name, root / name)
    (root / "objects").mkdir()
    (root / "refs").mkdir()
    (root / "link.md").symlink_to("/etc/passwd")


def configure(file: Path, program: Path) -> None:
    for key, value in configuration(program).items():
        subprocess.run(["git", "config", "-f", str(file), "--add", key, value], check=True)


def plant_hooks(directory: Path, program: Path) -> None:
    directory.mkdir(exist_ok=True)
    for hook in (
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "fsmonitor-watchman",
        "post-index-change",
        "pre-auto-gc",
        "post-checkout",
        "update",
    ):
        (directory / hook).symlink_to(program)


@pytest.fixture
def hostile_environment(
    tmp_path: Path, program: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    global_file = tmp_path / "gitconfig"
    configure(global_file, program)
    configure(tmp_path / "included", program)
    plant_hooks(tmp_path / "hooks", program)
    (tmp_path / ".gitconfig").write_text(global_file.read_text())
    values = {
        "GIT_DIR": str(root / ".git"),
        "GIT_WORK_TREE": str(root),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_EXTERNAL_DIFF": str(program),
        "GIT_PAGER": str(program),
        "PAGER": str(program),
        "GIT_EDITOR": str(program),
        "GIT_SSH_COMMAND": str(program),
        "GIT_ASKPASS": str(program),
        "GIT_CONFIG_GLOBAL": str(global_file),
        "GIT_CONFIG_SYSTEM": str(global_file),
        "GIT_TEMPLATE_DIR": str(tmp_path),
        "GIT_ATTR_SOURCE": "HEAD",
        "GIT_TRACE2_EVENT": str(tmp_path / "trace"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    for number, (key, value) in enumerate(configuration(program).items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(configuration(program))))
    monkeypatch.chdir(root)
    yield


def everything(workspace: Workspace) -> None:
    """Every operation that reads or writes a history."""
    first = workspace.write(FILE, "one\ntwo\n", by=AGENT).revision
    (workspace.root / "by-hand.md").write_text("by hand\n")
    assert workspace.edits.commit()
    second = workspace.write(FILE, "one\n2\n", by=AGENT).revision
    assert first
    assert second
    history = workspace.history
    path = next(name for name in workspace.files() if name == FILE)
    assert history.log(path=path)
    assert history.changes(path=path)
    assert history.show(second).files
    assert history.diff(first, second).files
    assert len(history.blame(path)) == 2
    assert workspace.origins.origins(path)[0] == first
    assert workspace.origins.times(path)
    for arguments in (
        ["log", "-p"], ["show", second], ["diff", first, second], ["blame", second, "--", FILE],
        ["shortlog"], ["ls-tree", "-r", second], ["rev-list", second],
        ["cat-file", "-p", f"{second}:{FILE}"], ["log", "--format=%G? %GS"],
    ):  # fmt: skip
        history.ask(arguments)
    workspace.read(FILE, view=first)
    workspace.files(view=first)
    workspace.restore(FILE, first, by=CALLER)
    workspace.revert(second, by=CALLER)
    workspace.tidy()
    workspace.delete("by-hand.md", by=CALLER)
    assert history.log()


@pytest.mark.usefixtures("hostile_environment")
def test_no_program_named_in_the_environment_is_executed(
    workspace: Workspace, marker: Path
) -> None:
    everything(workspace)
    assert not marker.exists(), marker.read_text()


def test_no_program_planted_in_the_tree_is_executed(
    workspace: Workspace, root: Path, program: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_in_tree(root, program)
    monkeypatch.chdir(root)
    everything(workspace)
    assert not marker.exists(), marker.read_text()


def test_no_program_of_a_hostile_environment_and_tree_together_is_executed(
    workspace: Workspace, root: Path, program: Path, marker: Path, request: pytest.FixtureRequest
) -> None:
    plant_in_tree(root, program)
    request.getfixturevalue("hostile_environment")
    everything(workspace)
    assert not marker.exists(), marker.read_text()


def test_the_planted_attacks_execute_with_plain_git(
    root: Path, program: Path, marker: Path
) -> None:
    """The same tree, asked by git as people run it: it does execute. (In a tree of their own: as root's
    it belongs to the user that runs commands, where git would not look without being told to.)"""
    (root / "a.md").write_text("x\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    configure(root / ".git" / "config", program)
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    status = ["git", "-c", "safe.directory=*", "status"]
    subprocess.run(status, cwd=root, env=plain, check=False, capture_output=True, timeout=60)
    assert marker.exists()


def test_a_linked_memory_file_is_neither_read_nor_written_nor_committed(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    (root / FILE).symlink_to(secret)
    workspace.edits.commit()
    assert workspace.history.tip() is None
    with pytest.raises(Refused):
        workspace.write(FILE, "x", by=CALLER)
    (root / FILE).unlink()
    first = workspace.write(FILE, "mine\n", by=CALLER).revision
    workspace.write(FILE, "newer\n", by=CALLER)
    (root / FILE).unlink()
    (root / FILE).symlink_to(secret)
    assert first is not None
    with pytest.raises(Failure):
        workspace.restore(FILE, first, by=CALLER)
    assert secret.read_text() == "secret\n"
    assert all("secret" not in file.patch for c in workspace.history.changes() for file in c.files)


def test_an_encoding_attribute_in_the_tree_changes_no_byte(
    workspace: Workspace, root: Path
) -> None:
    (root / ".gitattributes").write_text("* working-tree-encoding=UTF-16 eol=crlf text\n")
    data = "grüße\n".encode()
    revision = workspace.write("a.md", data, by=CALLER).revision
    assert revision is not None
    assert workspace.read("a.md", view=revision).data == data
    assert workspace.history.ask(["cat-file", "-p", "main:a.md"]) == data
