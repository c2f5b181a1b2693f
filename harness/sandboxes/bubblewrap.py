"""Sandboxes by bubblewrap: Linux namespaces that an unprivileged user may create.

Inside there is an empty root in memory, the machine's system directories read-only, a `/tmp` of limited size,
and the directories of the command. There is no network, no other process, no capability and no variable of
the host. There are a filter on system calls, and limits on everything that the kernel can limit. The root is
sealed after everything is mounted, and no mount point lies below a directory that a process inside can write.

Process 1 inside is a bash of ours. It sets the limits (the number of processes is counted per user
*namespace*, so it must be set inside), reports that it has begun, and runs the program as its child, for
which signals then work as usual. However process 1 ends, the kernel ends everything else inside before
bubblewrap, its parent, can notice. So a caller that waits for bubblewrap knows that no process is left that
could write into a tree. [With bubblewrap's own process 1, which continues for processes left in the
background, bubblewrap ends first, and the rest an instant later.] To end a sandbox its process 1 is killed,
not bubblewrap. Killing bubblewrap would work too, but then no caller could wait for the others' end.

If the harness runs as root, all this is done as another user: bubblewrap run by root makes root's files
writable by root inside, kernel settings among them. Without root it is done as the same user.
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
from harness.sandboxes.host_check import SYSTEM_DIRECTORIES, explain_failure, missing_requirement
from harness.sandboxes.port import Bind, CommandLimits, CommandResult, Confinement, SandboxCommand
from harness.sandboxes.process_tree import kill_child
from harness.sandboxes.seccomp import filter_program
from harness.sandboxes.supervisor import Process, Spawn, supervise
from workspaces.errors import Failure, Unavailable
from workspaces.home.layout import Home, User

UID = 1000
"""The user id inside. Outside it is the user that runs commands."""

TEMPORARY_BYTES_MAX = 64 * 2**20
SHARED_MEMORY_BYTES_MAX = 2**20
ROOT_BYTES_MAX = 2**20
OPEN_FILES_MAX = 256
SETUP_S_MAX = 10.0
"""Seconds for bubblewrap to start its child. It takes milliseconds; a later child never comes."""

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
        """Return the result of the self-test. A failed test is repeated at the next call, because its cause
        may have been fixed."""
        if self._confinement is None or not self._confinement.works:
            self._confinement = await self._examine()
        return self._confinement

    async def run(self, command: SandboxCommand) -> CommandResult:
        await self._require_confinement()
        return await self._run(self._program, command)

    async def attach(self, command: SandboxCommand) -> int:
        await self._require_confinement()
        return (await self._run(self._program, command, is_attached=True)).code

    async def _require_confinement(self) -> None:
        confinement = await self.check()
        if not confinement.works:
            raise Unavailable("the sandbox", confinement.detail, remedy=confinement.remedy)

    async def _examine(self) -> Confinement:
        """Try the candidates in turn and take the first without a fault. Otherwise take the first that
        confines: its fault needs a mount that no command of ours has."""
        try:
            candidates = await run_in_thread(bundled_programs.bubblewraps, self._home)
        except Failure as failure:
            return Confinement(False, str(failure), failure.remedy)
        missing = missing_requirement(self._home, candidates[0].path if candidates else None)
        if missing is not None:
            return missing
        tested: list[tuple[bundled_programs.Candidate, Confinement]] = []
        for candidate in candidates:
            tested.append((candidate, await self._self_test(candidate)))
            if tested[-1][1].is_faultless:
                break
        chosen, confinement = max(tested, key=lambda one: (one[1].is_faultless, one[1].works))
        self._program = chosen.path
        others = [f"{one.path}: {finding.detail}" for one, finding in tested if one is not chosen]
        return replace(confinement, detail="; not used: ".join([confinement.detail, *others]))

    async def _self_test(self, candidate: bundled_programs.Candidate) -> Confinement:
        try:
            with _trial(self._home) as (place, binds):
                limits = CommandLimits(SELF_TEST_S, 2**28, 16)
                test = ("bash", "-c", _SELF_TEST, "self-test", str(self._home.root))
                result = await self._run(candidate.path, SandboxCommand(test, binds, "rw", limits))
                follows = await self._follows_links(candidate.path, place, binds, limits)
        except Failure as failure:
            return explain_failure(getattr(failure, "reason", str(failure)), self._home)
        lines = result.output.head.decode(errors="replace").splitlines()
        if result.code != 0 or lines[-1:] != ["confined"]:
            problem = "; ".join(lines) or f"the self-test ended by {result.cause} ({result.code})"
            return Confinement(False, f"bubblewrap does not confine here: {problem}")
        version = ".".join(map(str, candidate.version))
        user = self._home.command_user
        detail = f"bubblewrap {version}".rstrip() + (f", as user {user.uid}" if user else "")
        if follows:
            return Confinement(True, f"{detail}; {_FOLLOWS_LINKS}", _FOLLOWS_LINKS_REMEDY)
        return Confinement(True, detail)

    async def _follows_links(
        self, path: Path, place: Path, binds: tuple[Bind, ...], limits: CommandLimits
    ) -> bool:
        """Return True if this bubblewrap creates a mount point on the host, where a link in a writable mount
        leads. No command of ours has a mount point there; this test has one."""
        below = Bind(f"rw/{_WAY}/made", place / "ro", False, 0, 0)
        with suppress(
            Failure
        ):  # a bubblewrap that does not follow the link cannot create the mount
            await self._run(path, SandboxCommand(("true",), (*binds, below), "rw", limits))
        return any((place / "outside").iterdir())

    async def _run(
        self, path: Path, command: SandboxCommand, *, is_attached: bool = False
    ) -> CommandResult:
        with _prepared(path, command, is_attached=is_attached) as prepared:
            before, changing = _as_user(self._home.command_user)
            options: dict[str, Any] = {"pass_fds": prepared.passed, "env": {}, **changing}
            spawn = Spawn([*before, *prepared.argv], _killer(), options, is_attached)
            result = await supervise(
                spawn, command.limits, [bind for bind in command.binds if bind.is_writable]
            )
            if not prepared.has_begun() and result.cause == "exit":
                raise Unavailable(
                    "the sandbox", result.output.head.decode(errors="replace").strip()
                )
        return result


@dataclass(frozen=True, slots=True)
class _Prepared:
    argv: Sequence[str]
    passed: tuple[int, ...]
    begun: int
    """A file descriptor that becomes readable when process 1 inside has set the limits."""

    def has_begun(self) -> bool:
        with suppress(BlockingIOError):
            return os.read(self.begun, 1) != b""
        return False


@contextmanager
def _prepared(program: Path, command: SandboxCommand, *, is_attached: bool) -> Generator[_Prepared]:
    """Yield the command line and the open files that it names by number."""
    with ExitStack() as stack:

        def memory(data: bytes) -> int:
            fd = os.memfd_create("harness")
            stack.callback(os.close, fd)
            os.write(fd, data)
            os.lseek(fd, 0, os.SEEK_SET)
            return fd

        begun, begun_writer = os.pipe()
        stack.callback(os.close, begun)
        stack.callback(os.close, begun_writer)
        os.set_blocking(begun, False)
        seccomp = memory(filter_program(platform.machine()))
        passwd, group = memory(_PASSWD), memory(_GROUP)
        argv = [
            str(program),
            *_namespaces(command, is_attached=is_attached),
            *_system(command.network),
            *_programs(command),
            *("--file", str(passwd), "/etc/passwd", "--file", str(group), "/etc/group"),
            *_devices(),
            *_binds(command),
            *("--remount-ro", "/", "--chdir", f"/workspaces/{command.directory}"),
            *("--seccomp", str(seccomp), "--"),
            *_process_1(command, begun_writer),
        ]
        yield _Prepared(argv, (begun_writer, seccomp, passwd, group), begun)


def _namespaces(command: SandboxCommand, *, is_attached: bool) -> list[str]:
    variables = {**_ENVIRONMENT, "TERM": "xterm-256color" if is_attached else "dumb"}
    return [
        *("--unshare-user", "--unshare-all", "--disable-userns", "--assert-userns-disabled"),
        *(("--share-net",) if command.network == "host" else ()),
        *("--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"),
        *(() if is_attached else ("--new-session",)),  # a new session would have no job control
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


def _programs(command: SandboxCommand) -> list[str]:
    places = ((str(place), f"/programs/{place.name}") for place in command.programs)
    return [word for source, target in places for word in ("--ro-bind", source, target)]


def _devices() -> list[str]:
    return [
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", "--perms", "1777", "--size", str(SHARED_MEMORY_BYTES_MAX)),
        *("--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108 - the one inside
        *("--perms", "1777", "--size", str(TEMPORARY_BYTES_MAX), "--tmpfs", "/tmp"),  # noqa: S108
    ]


def _binds(command: SandboxCommand) -> list[str]:
    words: list[str] = []
    for bind in command.binds:
        how = "--bind" if bind.is_writable else "--ro-bind"
        words += [how, str(bind.root), f"/workspaces/{bind.name}"]
    return [*words, "--symlink", f"workspaces/{command.binds[0].name}", "/workspace"]


def _process_1(command: SandboxCommand, begins: int) -> list[str]:
    """Return the command line of process 1. Limits that are lower already stay; the shell's complaint about
    that is discarded."""
    limits = command.limits
    writable = [bind for bind in command.binds if bind.is_writable]
    file_bytes = max((TEMPORARY_BYTES_MAX, *(bind.bytes_max for bind in writable)))
    if any(
        bind.is_full for bind in writable
    ):  # over the limit already: no file may grow, or each command would add more
        file_bytes = 0
    ulimits = {
        "c": 0,
        "n": OPEN_FILES_MAX,
        "u": limits.processes,
        "d": limits.memory_bytes // 1024,
        "f": file_bytes // 1024,
    }
    set_limits = "; ".join(f"ulimit -{letter} {value}" for letter, value in ulimits.items())
    script = (
        f"umask 077; exec {{report}}>&2 2>/dev/null; {set_limits}; printf . >&{begins}; "
        f'"$@" 2>&$report {{report}}>&- {begins}>&-'
    )
    return ["/bin/bash", "--norc", "--noprofile", "-c", script, "sandbox", *command.argv]


def _as_user(user: User | None) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the command prefix, or the options of Popen, that switch to the user that runs commands. A
    program does it if there is one. Python can too, but must copy the whole server for it. [85 MB in 7 ms,
    against 0.3 ms for a program.]"""
    if user is None:
        return (), {}
    setpriv = _setpriv()
    if setpriv is None:
        return (), {"user": user.uid, "group": user.gid, "extra_groups": []}
    return (
        setpriv,
        f"--reuid={user.uid}",
        f"--regid={user.gid}",
        "--clear-groups",
        "--",
    ), {}


@cache
def _setpriv() -> str | None:
    return shutil.which("setpriv", path=_ENVIRONMENT["PATH"])


def _killer() -> Callable[[Process], None]:
    """Return a function that kills process 1 inside. Then bubblewrap, its parent, ends, and all are dead."""
    begun = time.monotonic()

    def kill(process: Process) -> None:
        if not kill_child(process.pid) and time.monotonic() - begun > SETUP_S_MAX:
            process.kill()

    return kill


@contextmanager
def _trial(home: Home) -> Generator[tuple[Path, tuple[Bind, ...]]]:
    """Make two directories beside the workspaces, with their permissions, and a third that is not mounted.
    Links in the first lead to the third: by its path, and by its path while mounts are made."""
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
    "but no command of the harness has one there"
)
_FOLLOWS_LINKS_REMEDY = "install bubblewrap 0.12 or newer, or your distribution's fixed version"

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
