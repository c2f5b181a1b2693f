"""A machine to break out into: a home with the trees of two accounts, a host with secrets and services,
and the two kinds of users that a harness runs as."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.sandboxes import bundled_programs
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.port import Bind, CommandLimits, CommandResult, SandboxCommand
from tests.ordinary import ORDINARY_UID, as_ordinary_user, reachable_directory
from workspaces.home.layout import COMMAND_UID, Home

Role = Literal["root", "user"]
ROLES: tuple[Role, ...] = ("root", "user")

AT_ONCE = 8
BYTES_MAX = 20_000_000
BOUNDS = CommandLimits(seconds=20, memory_bytes=2**28, processes=32)
MARK = "secret-of-"


@dataclass(frozen=True)
class Try:
    """A script to be run in a sandbox, as plain data that crosses to another process."""

    script: str
    writable: bool = True
    seconds: float = 300
    memory_bytes: int = 2**28
    processes: int = 32


@dataclass(frozen=True)
class Told:
    cause: str
    code: int
    text: str
    size: int


@dataclass(frozen=True)
class World:
    role: Role
    uid: int
    """Of whoever runs commands."""
    home: Path
    own: Path
    ref: Path
    foreign: Path
    host: Path
    port: int
    abstract: str
    pid: int

    def variables(self, *, writable: bool) -> str:
        """The beginning of a script: where things are, outside and inside."""
        inside = "/workspaces/w"
        values = {
            "HOST": self.host,
            "HOME_ROOT": self.home,
            "FOREIGN": self.foreign,
            "PORT": self.port,
            "ABSTRACT": self.abstract,
            "PID": self.pid,
            "HOST_NET": Path("/proc/self/ns/net").readlink(),
            "OWN": inside,
            "REF": "/workspaces/ref" if writable else inside,
            "SCRATCH": inside if writable else "/tmp",
        }
        return "".join(f"export {name}={shlex.quote(str(v))}; " for name, v in values.items())

    def run(self, tries: Sequence[Try]) -> list[Told]:
        """Each in a sandbox of its own, several at once, by a server of this world's role."""
        if self.role == "root" or os.geteuid() != 0:
            return asyncio.run(run_all(self.home, self.own, self.ref, tries))
        given = {
            "home": str(self.home),
            "own": str(self.own),
            "ref": str(self.ref),
            "program": str(bundled_programs.bubblewraps(_RootsHome(self.home))[0].path),
            "tries": [asdict(one) for one in tries],
        }
        file = self.home.parent / f"tries-{secrets.token_hex(4)}"
        file.write_text(json.dumps(given))
        file.chmod(0o644)
        told = as_ordinary_user(
            f"""
            from tests.harness.sandboxes.world import rehearsed, ran
            rehearse = rehearsed
            def work(place):
                return ran({str(file)!r})
            """,
            environment={"HARNESS_PROBE": f"{MARK}the-environment"},
        )
        return [Told(**one) for one in told]


class _RootsHome(Home):
    """Where root puts the copy of a program that the ordinary user's interpreter may not reach."""


def rehearsed(place: str) -> None:
    Path(place).chmod(0o711)
    home = Home(Path(place) / "home")
    home.prepare()
    asyncio.run(Bubblewrap(home).check())


def ran(file: str) -> list[dict[str, Any]]:
    given = json.loads(Path(file).read_text())
    bundled_programs.bubblewraps = lambda home: [
        bundled_programs.Candidate(Path(given["program"]), ())
    ]
    tries = [Try(**one) for one in given["tries"]]
    told = asyncio.run(run_all(*(Path(given[name]) for name in ("home", "own", "ref")), tries))
    return [asdict(one) for one in told]


async def run_all(home: Path, own: Path, ref: Path, tries: Sequence[Try]) -> list[Told]:
    sandbox = Bubblewrap(Home(home))
    await sandbox.check()
    free = asyncio.Semaphore(AT_ONCE)

    async def one(trial: Try) -> Told:
        async with free:
            return told(await sandbox.run(order(own, ref, trial)))

    return list(await asyncio.gather(*map(one, tries)))


def order(own: Path, ref: Path, trial: Try) -> SandboxCommand:
    binds = (
        Bind("w", own, trial.writable, BYTES_MAX, 1000),
        Bind("ref", ref, False, BYTES_MAX, 1000),
    )
    bounds = CommandLimits(trial.seconds, trial.memory_bytes, trial.processes)
    return SandboxCommand(("bash", "-c", trial.script), binds, "w", bounds)


def told(ended: CommandResult) -> Told:
    output = ended.output
    text = (output.head + output.tail).decode(errors="replace")
    return Told(ended.cause, ended.code, text, output.size)


@contextmanager
def world(role: Role) -> Iterator[World]:
    """Skips, saying why, where this role cannot be played or no sandbox is to be had."""
    if role == "root" and os.geteuid() != 0:
        pytest.skip("the suite does not run as root")
    uid = COMMAND_UID if role == "root" else ORDINARY_UID
    owner = None if role == "root" else uid
    with ExitStack() as stack:
        place = stack.enter_context(reachable_directory(owner))
        host = _host(stack.enter_context(reachable_directory()))
        home = _home(place / "home", owner)
        _require_sandbox(home)
        trees = [_tree(home, name, uid) for name in ("own", "ref", "foreign")]
        (trees[2] / "MEMORY.md").write_text(f"{MARK}another-account\n")
        os.chown(trees[2] / "MEMORY.md", uid, uid)
        abstract = f"harness-{secrets.token_hex(4)}"
        port = stack.enter_context(_services(host, abstract))
        sleeper = stack.enter_context(_sleeper(uid))
        yield World(role, uid, home, *trees, host, port, abstract, sleeper)


def _home(root: Path, owner: int | None) -> Path:
    Home(root).prepare()
    if owner is not None and os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, owner, owner)
            path.chmod(0o700)
    return root


def _tree(home: Path, name: str, uid: int) -> Path:
    tree = home / "workspaces" / f"fs-{name}"
    tree.mkdir(mode=0o700)
    (tree / "a.md").write_text("one\ntwo\n")
    (tree / "a.md").chmod(0o600)
    for path in (tree, tree / "a.md"):
        os.chown(path, uid, uid)
    return tree


def _host(directory: Path) -> Path:
    directory.chmod(0o755)
    (directory / "secret").write_text(f"{MARK}the-host\n")
    (directory / "secret").chmod(0o644)
    (directory / "door").mkdir()
    (directory / "door").chmod(0o777)
    return directory


def _require_sandbox(home: Path) -> None:
    """Skip where namespaces are forbidden; where they are not, the tests run."""
    found = asyncio.run(Bubblewrap(Home(home)).check())
    if not found.works:
        pytest.skip(f"no sandbox on this machine: {found.detail}")


@contextmanager
def _sleeper(uid: int) -> Iterator[int]:
    """Another process of the same user, with something to hide."""
    with subprocess.Popen(
        ["sleep", "600"],
        env={"PATH": "/usr/bin:/bin", "HIDDEN": f"{MARK}another-process"},
        **({"user": uid} if os.geteuid() == 0 else {}),
    ) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def _services(host: Path, abstract: str) -> Iterator[int]:
    """Who connects is told a secret."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(family))
            for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        ]
        sockets[0].bind(("127.0.0.1", 0))
        sockets[1].bind(f"\0{abstract}")
        sockets[2].bind(str(host / "socket"))
        (host / "socket").chmod(0o777)
        for one in sockets:
            one.listen()
            thread = threading.Thread(target=_serve, args=(one,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(_close, one)
        yield sockets[0].getsockname()[1]


def _serve(listening: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(f"{MARK}a-service".encode())


def _close(listening: socket.socket) -> None:
    with suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
    listening.close()
