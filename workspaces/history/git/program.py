"""The git program, in an environment built from nothing.

No configuration but ours; no hooks, filters, pagers, prompts or remotes. Of the environment of this process
git gets PATH and no more: an inherited GIT_DIR would lead it elsewhere. What strangers wrote never becomes
an option: revisions follow `--end-of-options`, paths follow `--`, and pathspecs are literal.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, BinaryIO, NamedTuple, cast

from workspaces.errors import Unavailable

GIT_SECONDS_MAX = 60
"""No reading of a workspace within its quota takes longer; a git that hangs is ended."""

MEMORY_KIB_MAX = 1024 * 1024
"""What git may take to look at bytes of strangers: a few of the largest files at once. Where the system
knows no such limit it is not kept, and the time is."""

PIPE_BYTES = 1024 * 1024
"""Of what git is told, or prints, at once."""

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS": "/bin/false",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_EDITOR": "/bin/false",
    "GIT_PAGER": "cat",
    "GIT_LITERAL_PATHSPECS": "1",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}
_CONFIGURATION = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.quotePath=false",
    "core.commitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "safe.directory=*",
    "log.showSignature=false",
    "gpg.program=/bin/false",
    "gpg.ssh.program=/bin/false",
    "gpg.x509.program=/bin/false",
)


def run_git(*arguments: str, told: bytes = b"", is_limited: bool = False) -> bytes:
    """Return what the program prints. `told` is what it reads. `is_limited` bounds its memory, because
    strangers wrote what it looks at.

    Raises: Unavailable when git fails, is missing, or hangs.
    """
    # a file, not a pipe: of a file, index-pack sees whether it goes on behind the pack
    with TemporaryFile() as stdin:
        stdin.write(told)
        stdin.seek(0)
        process = _start(arguments, is_limited=is_limited, stdin=stdin, stderr=subprocess.PIPE)
    with process:
        try:
            printed, said = process.communicate(timeout=GIT_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise _failed(arguments, None, b"took longer than %g s" % GIT_SECONDS_MAX) from error
        except BaseException:  # a Ctrl-C: nobody reads on
            _kill(process)
            raise
    if process.returncode != 0:
        raise _failed(arguments, process.returncode, said)
    return printed


class GitSession(NamedTuple):
    """With a program that is told something while it runs, and read while it prints."""

    told: BinaryIO
    out: BinaryIO


@contextmanager
def open_git_session(*arguments: str, is_limited: bool = False) -> Generator[GitSession]:
    """What the program prints is read while it is at it: printing and reading take a processor each. What it
    is told is to be closed, and all that it prints is to be read. Unavailable as with `run_git`, when the
    block ends, and then too when that was left because the program would not hear any more."""
    with TemporaryFile() as errors:
        process = _start(arguments, is_limited=is_limited, stdin=subprocess.PIPE, stderr=errors)
        talk = GitSession(cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout))
        _widen(*talk)
        watchdog = Timer(GIT_SECONDS_MAX, _kill, [process])
        watchdog.start()
        is_deaf = False
        try:
            with suppress(BrokenPipeError), process:
                try:
                    yield talk
                except BrokenPipeError:
                    is_deaf = True
                except BaseException:
                    _kill(process)
                    raise
        finally:
            watchdog.cancel()
        if is_deaf or process.returncode != 0:
            errors.seek(0)
            raise _failed(arguments, process.returncode, errors.read())


_WITHIN_LIMITS = f'ulimit -v {MEMORY_KIB_MAX} 2>/dev/null; exec "$@"'


def _start(
    arguments: Sequence[str], *, is_limited: bool, stdin: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start git in a process group of its own: it is ended with the programs that it has started."""
    try:
        return subprocess.Popen(
            _command(arguments, is_limited=is_limited),
            PIPE_BYTES,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,
        )
    except FileNotFoundError as error:
        raise _missing() from error
    except OSError as error:
        raise Unavailable("git", error.strerror or str(error)) from error


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End git and what it has started, unless it has ended: then its number may be another's."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _command(arguments: Sequence[str], *, is_limited: bool) -> list[str]:
    settings = [part for setting in _CONFIGURATION for part in ("-c", setting)]
    within = ["sh", "-c", _WITHIN_LIMITS, "sh"] if is_limited else []
    return [*within, "git", *settings, *arguments]


def _widen(*pipes: BinaryIO) -> None:
    """So that whoever writes waits for whoever reads less often; where the system can, and lets us."""
    for pipe in pipes:
        with suppress(AttributeError, OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _failed(arguments: Sequence[str], status: int | None, said: bytes) -> Unavailable:
    if status == 127:
        return _missing()
    command_name = next(word for word in arguments if not word.startswith("-"))
    return Unavailable(
        f"git {command_name}", said.decode(errors="replace").strip() or f"ended with {status}"
    )


def _missing() -> Unavailable:
    return Unavailable("git", "the program is not installed", remedy="install git 2.30 or newer")
