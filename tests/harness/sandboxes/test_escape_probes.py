"""Escape probes: none gets out of a sandbox, whether the server runs as root or as an ordinary user."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.sandboxes.probes import PROBES, Probe
from tests.harness.sandboxes.world import MARK, ROLES, Told, Try, World, world
from workspaces.localfs.permissions import mend

PROBES_MIN = 60


@pytest.fixture(scope="module", params=ROLES)
def found(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def ordinary() -> Iterator[World]:
    """To whose user everything in reach belongs."""
    with world("user") as made:
        yield made


def is_unsafe(text: str) -> bool:
    return "UNSAFE" in text or MARK in text


def chosen() -> list[Probe]:
    machine = platform.machine()
    return [probe for probe in PROBES if probe.machine in {None, machine}]


def state(*trees: Path) -> list[tuple[str, int, int, bytes]]:
    """Names, modes, owners and contents of all that lies in some trees."""
    return [
        (str(path), status.st_mode, status.st_uid, content(path, status))
        for tree in trees
        for path in [tree, *sorted(tree.rglob("*"))]
        if (status := path.lstat()) or True
    ]


def content(path: Path, status: os.stat_result) -> bytes:
    return path.read_bytes() if stat.S_ISREG(status.st_mode) else b""


@pytest.mark.parametrize("writable", [True, False], ids=["rw", "ro"])
def test_no_probe_escapes_the_sandbox(
    found: World, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_PROBE", f"{MARK}the-environment")
    probes = chosen()
    assert len(probes) >= PROBES_MIN
    untouched = (found.ref, found.foreign, found.host, *(() if writable else (found.own,)))
    before = state(*untouched)
    begin = found.variables(writable=writable)
    told = found.run([Try(begin + probe.script, writable) for probe in probes])
    unsafe = {
        probe.name: one for probe, one in zip(probes, told, strict=True) if is_unsafe(one.text)
    }
    assert not unsafe
    assert [one for one in told if one.cause != "exit"] == []
    assert state(*untouched) == before
    os.kill(found.pid, 0)
    assert shutil.which("env")


@pytest.mark.parametrize(
    "probe", [probe for probe in PROBES if probe.works_outside], ids=lambda probe: probe.name
)
def test_every_probe_succeeds_without_a_sandbox(ordinary: World, probe: Probe) -> None:
    """Else it would find nothing in a sandbox either, whatever the sandbox."""
    scratch = ordinary.own / f"outside-{abs(hash(probe.name))}"
    scratch.mkdir(mode=0o777)
    scratch.chmod(0o777)
    variables = ordinary.variables(writable=True)
    moved = f"{variables} OWN={ordinary.own}; SCRATCH={scratch}; cd {scratch}; "
    ended = subprocess.run(
        ["bash", "-c", moved + probe.script],
        env={"PATH": "/usr/bin:/bin", "HARNESS_PROBE": f"{MARK}the-environment"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        **(
            {"user": ordinary.uid, "group": ordinary.uid, "extra_groups": []}
            if os.geteuid() == 0
            else {}
        ),
    )
    assert is_unsafe(ended.stdout.decode(errors="replace"))


def test_a_command_cannot_redirect_the_mount_of_the_next_command(found: World) -> None:
    """Neither by links where the next one will be mounted, nor by what the next one will open."""
    planting = Try(
        f"cd /workspaces/w; mv a.md b.md; ln -s {found.foreign}/MEMORY.md a.md; "
        f"ln -s {found.foreign} dir; ln -s /proc/1/root root; chmod 000 .; "
        f"mv ../w ../x; rmdir ../ref; ln -sfn {found.foreign} ../ref; ln -sfn / /workspace"
    )
    reading = Try("cat /workspaces/w/* /workspaces/w/*/* /workspaces/ref/*; ls /workspaces")
    found.run([planting])
    mend(found.own)
    (told,) = found.run([reading])
    assert not is_unsafe(told.text)
    assert "one\ntwo\n" in told.text
    for name in ("a.md", "dir", "root"):
        (found.own / name).unlink()
    (found.own / "b.md").rename(found.own / "a.md")


def test_a_writable_mount_can_be_written_and_a_read_only_mount_only_read(found: World) -> None:
    told = found.run([Try("echo three >> a.md && cat a.md ../ref/a.md; readlink /workspace; pwd")])
    assert told == [
        Told(
            "exit", 0, text := "one\ntwo\nthree\none\ntwo\nworkspaces/w\n/workspaces/w\n", len(text)
        )
    ]
    assert (found.own / "a.md").read_text() == "one\ntwo\nthree\n"
    assert (found.own / "a.md").stat().st_uid == found.uid
    (found.own / "a.md").write_text("one\ntwo\n")
