"""Sandboxes by bubblewrap: Linux namespaces that an unprivileged user may make.

Inside there is an empty root in memory, the machine's system directories read-only, a `/tmp` of limited
size, and the directories of the order; no network, no other process, no capability, no variable of the
host, a filter on system calls, limits on everything the kernel can limit. The root is sealed once all
is mounted, and no mount point lies below a directory that somebody inside can write.

Process 1 inside is a bash of ours: it sets the limits (the number of processes is counted per user
*namespace*, so it must be set in there), says that it has come so far, and runs the program as its
child, for which signals then work as everywhere. When it ends, however it ends, the kernel ends
everything else in there before bubblewrap, its parent, can notice. So whoever waits for bubblewrap
knows that nobody is left to write into a tree. [With bubblewrap's own process 1, which goes on for what
was left in the background, bubblewrap ends first, and the rest an instant later.] To end a sandbox its
process 1 is killed, not bubblewrap: killing that one would work too, but again nobody could wait.

As root all this is done as another user: bubblewrap run by root makes root's files writable by whoever
is root inside, kernel settings among them. Without root it is the user himself.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.runtime.async_bridge import run_in_thread
from harness.sandboxes import bundled_programs
from harness.sandboxes.host_check import SYSTEM_DIRECTORIES, explained, shortcoming
from harness.sandboxes.port import Bind, CommandLimits, CommandResult, Confinement, SandboxCommand
from harness.sandboxes.process_tree import kill_child
from harness.sandboxes.seccomp import filter_program
from harness.sandboxes.supervisor import Process, Spawn, supervise
from workspaces.errors import Failure, Unavailable
from workspaces.home.layout import Home, User

UID = 1000
"""Inside. Outside it is whoever runs commands."""

TEMPORARY_BYTES_MAX = 64 * 2**20
SHARED_MEMORY_BYTES_MAX = 2**20
ROOT_BYTES_MAX = 2**20
OPEN_FILES_MAX = 256
SETUP_S_MAX = 10.0
"""Bubblewrap has made its child after milliseconds; one that has not by then never will."""

SELF_TEST_S = 20.0

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the one inside
    "LANG": "C.UTF-8",
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
}
_ETC = ("ld.so.cache", "alternatives", "localtime")
_ETC_WITH_NETWORK = ("ssl", "resolv.conf", "hosts", "nsswitch.conf", "ca-certificates")
_PASSWD = (
    b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/tmp:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n"
)
_GROUP = b"root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"


class Bubblewrap:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._program = Path()
        self._confinement: Confinement | None = None

    async def check(self) -> Confinement:
        """A failure is looked into again the next time: what caused it may have been put right."""
        if self._confinement is None or not self._confinement.works:
            self._confinement = await self._examined()
        return self._confinement

    async def run(self, order: SandboxCommand) -> CommandResult:
        await self._required()
        return await self._run(self._program, order)

    async def attach(self, order: SandboxCommand) -> int:
        await self._required()
        return (await self._run(self._program, order, is_attached=True)).code

    async def _required(self) -> None:
        found = await self.check()
        if not found.works:
            raise Unavailable("the sandbox", found.detail, remedy=found.remedy)

    async def _examined(self) -> Confinement:
        """Try the candidates in their order and take the first that has no fault. Else take the first
        that confines: its fault lies where no order of ours leads."""
        try:
            candidates = await run_in_thread(bundled_programs.bubblewraps, self._home)
        except Failure as failure:
            return Confinement(False, str(failure), failure.remedy)
        lacking = shortcoming(self._home, candidates[0].path if candidates else None)
        if lacking is not None:
            return lacking
        tested: list[tuple[bundled_programs.Candidate, Confinement]] = []
        for candidate in candidates:
            tested.append((candidate, await self._tested(candidate)))
            if tested[-1][1].is_faultless:
                break
        chosen, found = max(tested, key=lambda one: (one[1].is_faultless, one[1].works))
        self._program = chosen.path
        others = [f"{one.path}: {told.detail}" for one, told in tested if one is not chosen]
        return replace(found, detail="; not used: ".join([found.detail, *others]))

    async def _tested(self, candidate: bundled_programs.Candidate) -> Confinement:
        try:
            with _trial(self._home) as (place, binds):
                bounds = CommandLimits(SELF_TEST_S, 2**28, 16)
                test = ("bash", "-c", _SELF_TEST, "self-test", str(self._home.root))
                ended = await self._run(candidate.path, SandboxCommand(test, binds, "rw", bounds))
                follows = await self._follows_links(candidate.path, place, binds, bounds)
        except Failure as failure:
            return explained(getattr(failure, "reason", str(failure)), self._home)
        told = ended.output.head.decode(errors="replace").splitlines()
        if ended.code != 0 or told[-1:] != ["confined"]:
            found = "; ".join(told) or f"the self-test ended by {ended.cause} ({ended.code})"
            return Confinement(False, f"bubblewrap does not confine here: {found}")
        version = ".".join(map(str, candidate.version))
        user = self._home.command_user
        detail = f"bubblewrap {version}".rstrip() + (f", as user {user.uid}" if user else "")
        if follows:
            return Confinement(True, f"{detail}; {_FOLLOWS_LINKS}", _FOLLOWS_LINKS_REMEDY)
        return Confinement(True, detail)

    async def _follows_links(
        self, path: Path, place: Path, binds: tuple[Bind, ...], bounds: CommandLimits
    ) -> bool:
        """Whether it makes a mount point where a link in a writable mount leads, on the host. No order
        of ours has a mount point there: this one does."""
        below = Bind(f"rw/{_WAY}/made", place / "ro", False, 0, 0)
        with suppress(Failure):  # one that does not follow the link finds no place for the mount
            await self._run(path, SandboxCommand(("true",), (*binds, below), "rw", bounds))
        return any((place / "outside").iterdir())

    async def _run(
        self, path: Path, order: SandboxCommand, *, is_attached: bool = False
    ) -> CommandResult:
        with _prepared(path, order, is_attached=is_attached) as prepared:
            before, changing = _as_user(self._home.command_user)
            options: dict[str, Any] = {"pass_fds": prepared.passed, "env": {}, **changing}
            spawn = Spawn([*before, *prepared.argv], _killer(), options, is_attached)
            ended = await supervise(
                spawn, order.bounds, [bind for bind in order.binds if bind.is_writable]
            )
            if not prepared.has_begun() and ended.cause == "exit":
                raise Unavailable("the sandbox", ended.output.head.decode(errors="replace").strip())
        return ended


@dataclass(frozen=True, slots=True)
class _Prepared:
    argv: Sequence[str]
    passed: tuple[int, ...]
    begun: int
    """Becomes readable when process 1 inside has set the limits."""

    def has_begun(self) -> bool:
        with suppress(BlockingIOError):
            return os.read(self.begun, 1) != b""
        return False


@contextmanager
def _prepared(
    bundled_programs: Path, order: SandboxCommand, *, is_attached: bool
) -> Generator[_Prepared]:
    """The command line, and the open files that it names by number."""
    with ExitStack() as stack:

        def memory(data: bytes) -> int:
            fd = os.memfd_create("harness")
            stack.callback(os.close, fd)
            os.write(fd, data)
            os.lseek(fd, 0, os.SEEK_SET)
            return fd

        begun, begins = os.pipe()
        stack.callback(os.close, begun)
        stack.callback(os.close, begins)
        os.set_blocking(begun, False)
        seccomp = memory(filter_program(platform.machine()))
        passwd, group = memory(_PASSWD), memory(_GROUP)
        argv = [
            str(bundled_programs),
            *_namespaces(order, is_attached=is_attached),
            *_system(order.network),
            *_programs(order),
            *("--file", str(passwd), "/etc/passwd", "--file", str(group), "/etc/group"),
            *_devices(),
            *_binds(order),
            *("--remount-ro", "/", "--chdir", f"/workspaces/{order.directory}"),
            *("--seccomp", str(seccomp), "--"),
            *_process_1(order, begins),
        ]
        yield _Prepared(argv, (begins, seccomp, passwd, group), begun)


def _namespaces(order: SandboxCommand, *, is_attached: bool) -> list[str]:
    variables = {**_ENVIRONMENT, "TERM": "xterm-256color" if is_attached else "dumb"}
    return [
        *("--unshare-user", "--unshare-all", "--disable-userns", "--assert-userns-disabled"),
        *(("--share-net",) if order.network == "host" else ()),
        *("--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"),
        *(() if is_attached else ("--new-session",)),  # else there is no job control
        *("--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox", "--clearenv"),
        *(word for name, value in variables.items() for word in ("--setenv", name, value)),
    ]


@cache
def _system(network: str) -> list[str]:
    words = ["--size", str(ROOT_BYTES_MAX), "--tmpfs", "/"]
    for name in SYSTEM_DIRECTORIES:
        place = Path("/", name)
        if place.is_symlink():
            words += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            words += ["--ro-bind", str(place), str(place)]
    words += ["--dir", "/etc"]
    for name in (*_ETC, *(_ETC_WITH_NETWORK if network == "host" else ())):
        place = Path("/etc", name)
        if place.exists():
            words += ["--ro-bind", str(place), str(place)]
    return words


def _programs(order: SandboxCommand) -> list[str]:
    places = ((str(place), f"/programs/{place.name}") for place in order.programs)
    return [word for source, target in places for word in ("--ro-bind", source, target)]


def _devices() -> list[str]:
    return [
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", "--perms", "1777", "--size", str(SHARED_MEMORY_BYTES_MAX)),
        *("--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108 - the one inside
        *("--perms", "1777", "--size", str(TEMPORARY_BYTES_MAX), "--tmpfs", "/tmp"),  # noqa: S108
    ]


def _binds(order: SandboxCommand) -> list[str]:
    words: list[str] = []
    for bind in order.binds:
        how = "--bind" if bind.is_writable else "--ro-bind"
        words += [how, str(bind.root), f"/workspaces/{bind.name}"]
    return [*words, "--symlink", f"workspaces/{order.binds[0].name}", "/workspace"]


def _process_1(order: SandboxCommand, begins: int) -> list[str]:
    """Limits that are lower already stay: the shell's complaint about that goes nowhere."""
    bounds = order.bounds
    writable = [bind for bind in order.binds if bind.is_writable]
    file_bytes = max((TEMPORARY_BYTES_MAX, *(bind.bytes_max for bind in writable)))
    if any(bind.is_full for bind in writable):  # no file grows: each command would add to it anew
        file_bytes = 0
    limits = {
        "c": 0,
        "n": OPEN_FILES_MAX,
        "u": bounds.processes,
        "d": bounds.memory_bytes // 1024,
        "f": file_bytes // 1024,
    }
    set_limits = "; ".join(f"ulimit -{letter} {value}" for letter, value in limits.items())
    script = (
        f"umask 077; exec {{told}}>&2 2>/dev/null; {set_limits}; printf . >&{begins}; "
        f'"$@" 2>&$told {{told}}>&- {begins}>&-'
    )
    return ["/bin/bash", "--norc", "--noprofile", "-c", script, "sandbox", *order.argv]


def _as_user(user: User | None) -> tuple[Sequence[str], dict[str, Any]]:
    """How to become the user that runs commands: by a program that does it, where there is one. Python
    can too, but must copy the whole server for it. [Of 85 MB in 7 ms, against 0.3 for a program.]"""
    if user is None:
        return (), {}
    bundled_programs = _setpriv()
    if bundled_programs is None:
        return (), {"user": user.uid, "group": user.gid, "extra_groups": []}
    return (
        bundled_programs,
        f"--reuid={user.uid}",
        f"--regid={user.gid}",
        "--clear-groups",
        "--",
    ), {}


@cache
def _setpriv() -> str | None:
    return shutil.which("setpriv", path=_ENVIRONMENT["PATH"])


def _killer() -> Callable[[Process], None]:
    """Kills process 1 inside: bubblewrap, its parent, then ends, and all are dead."""
    begun = time.monotonic()

    def kill(process: Process) -> None:
        if not kill_child(process.pid) and time.monotonic() - begun > SETUP_S_MAX:
            process.kill()

    return kill


@contextmanager
def _trial(home: Home) -> Generator[tuple[Path, tuple[Bind, ...]]]:
    """Make two directories where workspaces lie, as workspaces lie there, and beside them a third that is
    not mounted. Links in the first lead to that: by its path, and by its path while mounts are made."""
    place = home.root.resolve() / "workspaces" / f".self-test-{secrets.token_hex(8)}"
    user = home.command_user
    try:
        place.mkdir(mode=0o711 if user else 0o700)
        for name in ("rw", "ro", "outside"):
            (place / name).mkdir(mode=0o700)
        for name in ("rw", "ro"):
            (place / name / "file").touch(mode=0o600)
        (place / "rw" / "out").symlink_to(place / "outside")
        (place / "rw" / _WAY).symlink_to(f"/oldroot{place}/outside")
        if user is not None:
            for path in place.rglob("*"):
                os.chown(path, user.uid, user.gid, follow_symlinks=False)
        binds = (Bind(name, place / name, name == "rw", 2**20, 100) for name in ("rw", "ro"))
        yield place, tuple(binds)
    except OSError as error:
        raise Unavailable(str(place), error.strerror or str(error)) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


_WAY = "way"
_FOLLOWS_LINKS = (
    "it makes mount points through links that lead out of the sandbox (CVE-2026-87766), "
    "where no order of the harness has one"
)
_FOLLOWS_LINKS_REMEDY = "install bubblewrap 0.12 or newer, or a mended one of your distribution"

_SELF_TEST = r"""
fail() { echo "$1"; failed=1; }
while read -r key value; do
    case $key in
        CapEff:|CapPrm:|CapBnd:|CapInh:|CapAmb:)
            [ "$value" = 0000000000000000 ] || fail "capabilities ($key $value)";;
        NoNewPrivs:) [ "$value" = 1 ] || fail "privileges can be gained";;
        Seccomp:) [ "$value" = 2 ] || fail "no filter on system calls";;
    esac
done < /proc/self/status
[ $EUID = 1000 ] || fail "user $EUID"
read -r inside _ count < /proc/self/uid_map
[ "$inside $count" = "1000 1" ] || fail "other users exist (uid_map $inside $count)"
{ read -r _ _ _ _ _ session _ < /proc/self/stat; } 2>/dev/null
[ "${session:-0}" != 0 ] || fail "the session is the caller's"
for open in /proc/self/fd/*; do
    case $open in */0|*/1|*/2|*/255) continue;; esac
    [ -e "$open" ] && fail "an open file was passed on (${open##*/})"
done
processes=0
for process in /proc/[0-9]*; do processes=$((processes + 1)); done
[ $processes -le 3 ] || fail "other processes can be seen"
unshare --user true 2>/dev/null && fail "a namespace can be made"
[ -e "/workspaces/rw/out" ] && fail "a link leads out of a mount"
[ -e "$1" ] && fail "the home can be seen"
[ "$(ulimit -u)" != unlimited ] || fail "no limit on processes"
interfaces=0
while read -r name _; do case $name in *:) interfaces=$((interfaces + 1));; esac; done < /proc/self/net/dev
[ $interfaces = 1 ] || fail "$interfaces network interfaces"
for place in / /etc /usr /bin /dev /proc/sys/kernel /workspaces; do
    { : > "$place/written"; } 2>/dev/null && fail "$place can be written"
done
{ : > /workspaces/ro/written; } 2>/dev/null && fail "a read-only mount can be written"
{ : > /workspaces/ro/file; } 2>/dev/null && fail "a file of a read-only mount can be written"
{ : > /workspaces/rw/written; } 2>/dev/null || fail "a writable mount cannot be written"
[ -e /workspace/written ] || fail "/workspace does not lead to the first mount"
{ : > /tmp/written; } 2>/dev/null || fail "/tmp cannot be written"
[ -n "$failed" ] || echo confined
"""
