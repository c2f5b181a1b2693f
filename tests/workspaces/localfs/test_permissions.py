"""Mending the modes and owners of files after a command, and measuring a tree."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.ordinary import ORDINARY_UID, as_ordinary_user
from tests.workspaces.conftest import AGENT, CALLER
from workspaces.home.layout import COMMAND_UID, Home
from workspaces.localfs.permissions import DEPTH_MAX, measure, mend
from workspaces.workspace.workspace import Workspace

as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0o644, 0o640),
        (0o4755, 0o750),
        (0o2600, 0o600),
        (0o000, 0o600),
        (0o400, 0o600),
        (0o666, 0o660),
    ],
)
def test_a_mended_file_is_inaccessible_to_other_users(
    tmp_path: Path, before: int, after: int
) -> None:
    file = tmp_path / "a.md"
    file.write_text("x")
    file.chmod(before)
    mend(tmp_path)
    assert mode(file) == after


@pytest.mark.parametrize("before", [0o000, 0o777, 0o1777, 0o300, 0o2755])
def test_a_mended_directory_can_be_opened_by_its_owner_alone(tmp_path: Path, before: int) -> None:
    below = tmp_path / "n" / "m"
    below.mkdir(parents=True)
    (below / "a.md").write_text("x")
    (tmp_path / "n").chmod(before)
    mend(tmp_path)
    assert mode(tmp_path / "n") & 0o7707 == 0o700
    assert (below / "a.md").read_text() == "x"


def test_mending_follows_no_link_and_leaves_hard_linked_files_readable(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_text("x")
    (outside / "file").chmod(0o644)
    (outside / "twin").write_text("x")
    (outside / "twin").chmod(0o4644)
    outside.chmod(0o755)
    (root / "link").symlink_to(outside / "file")
    (root / "links").symlink_to(outside)
    os.link(outside / "twin", root / "twin")
    mend(root)
    assert mode(outside) == 0o755
    assert mode(outside / "file") == 0o644
    assert mode(outside / "twin") == 0o644  # it runs as nobody else any more, and can still be read


def test_fifos_and_sockets_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o666)
    mend(tmp_path)
    assert measure(tmp_path).entries == 1


def test_the_measured_extent_is_the_disk_usage(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "full").write_bytes(b"x" * 100_000)
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(10**12)
    extent = measure(tmp_path)
    assert extent.entries == 3
    assert 100_000 <= extent.bytes < 200_000
    assert not extent.is_opaque


def test_a_tree_is_walked_down_to_the_depth_limit_only(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEPTH_MAX * 3):
        os.mkdir("n", dir_fd=here)
        below = os.open("n", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert measure(tmp_path).is_opaque
    assert mend(tmp_path).entries == DEPTH_MAX + 1


def test_files_made_unreadable_by_a_command_are_made_readable_and_committed(
    workspace: Workspace, root: Path
) -> None:
    with workspace.command(AGENT):
        (root / "n").mkdir()
        (root / "n" / "a.md").write_text("x")
        (root / "n" / "a.md").chmod(0o000)
        (root / "n").chmod(0o000)
        root.chmod(0o000)
    assert workspace.read("n/a.md").text == "x"
    assert workspace.log()[0].paths == ("n/a.md",)
    assert mode(root) == 0o700


def test_an_ordinary_user_can_read_files_made_unreadable_by_a_command() -> None:
    """The same, where permission is not given to root by the kernel."""
    told = as_ordinary_user(
        """
        import os
        from pathlib import Path
        from workspaces.accounts.account import default_owner
        from workspaces.clock import ManualClock
        from workspaces.revision import Author
        from workspaces.storage.in_memory import MemoryRecords
        from workspaces.home.workspaces import Workspaces
        from workspaces.home.layout import Home

        def work(place):
            home = Home(Path(place) / "home")
            home.prepare()
            clock = ManualClock()
            records = MemoryRecords(clock)
            opened = Workspaces(default_owner(records, clock), home, records, clock, lambda _: {})
            workspace = opened.create("notes")
            root = workspace.root
            with workspace.command(Author("helper", "agent_1", "turn")):
                (root / "n").mkdir()
                (root / "n" / "a.md").write_text("x")
                (root / "n").chmod(0)
                root.chmod(0)
            return [os.geteuid(), list(workspace.log()[0].paths), workspace.read("n/a.md").text]
        """
    )
    assert told == [ORDINARY_UID, ["n/a.md"], "x"]


@as_root_only
def test_files_written_as_root_belong_to_the_command_user(
    workspace: Workspace, root: Path, home: Home
) -> None:
    workspace.write("notes/deep/a.md", "x", by=CALLER)
    for path in (root, *root.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (COMMAND_UID, COMMAND_UID)
    assert home.history(workspace.namespace).stat().st_uid == 0
    assert home.staging(workspace.namespace).stat().st_uid == 0


@as_root_only
def test_files_created_by_root_are_given_to_the_command_user_before_a_command(
    workspace: Workspace, root: Path
) -> None:
    (root / "by-hand.md").write_text("x")
    with workspace.command(AGENT):
        assert (root / "by-hand.md").stat().st_uid == COMMAND_UID


@as_root_only
def test_the_command_user_is_the_owner_of_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    os.chown(home.root, 1234, 1234)
    user = home.command_user
    assert user is not None
    assert (user.uid, user.gid) == (1234, 1234)
