"""Run the git program in a clean environment.

Git gets only the configuration below: no hooks, filters, pagers, prompts or remotes. It inherits nothing of
this process's environment but PATH; an inherited GIT_DIR would lead it elsewhere. Untrusted text never
becomes an option: revisions follow `--end-of-options`, paths follow `--`, and pathspecs are literal.
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
"""Seconds after which git is killed as hanging. No read of a workspace within its quota takes longer."""

MEMORY_KIB_MAX = 1024 * 1024
"""Memory that git may use for untrusted bytes: a few of the largest files at once. On a system without such
a limit only the time is limited."""

PIPE_BYTES = 1024 * 1024
"""Buffer size of the pipes to and from git."""

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


def run_git(
    *arguments: str,
    stdin: bytes = b"",
    is_limited: bool = False,
    seconds_max: float | None = None,
) -> bytes:
    """Run git with `stdin` as its input and return its output. `is_limited` bounds its memory, for input from
    untrusted writers. `seconds_max` replaces GIT_SECONDS_MAX.

    Raises: Unavailable when git fails, is missing, or hangs.
    """
    seconds_max = seconds_max or GIT_SECONDS_MAX
    # a file, not a pipe: only in a file does index-pack see whether bytes follow the pack
    with TemporaryFile() as stdin_file:
        stdin_file.write(stdin)
        stdin_file.seek(0)
        process = _start(arguments, is_limited=is_limited, stdin=stdin_file, stderr=subprocess.PIPE)
    with process:
        try:
            stdout, stderr = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise _failed(arguments, None, b"took longer than %g s" % seconds_max) from error
        except BaseException:  # such as Ctrl-C: the caller no longer reads
            _kill(process)
            raise
    if process.returncode != 0:
        raise _failed(arguments, process.returncode, stderr)
    return stdout


class GitSession(NamedTuple):
    """The pipes of a running git: the caller writes to it while it runs, and reads while it prints."""

    stdin: BinaryIO
    stdout: BinaryIO


@contextmanager
def open_git_session(
    *arguments: str, is_limited: bool = False, seconds_max: float | None = None
) -> Generator[GitSession]:
    """Run git and yield its pipes, so that the caller reads while git prints: each uses its own processor.
    The caller must close `stdin` and read all of `stdout`.

    Raises: Unavailable as `run_git` does, when the block ends. Also when a BrokenPipeError ended the
    block, because git stopped reading."""
    with TemporaryFile() as errors:
        process = _start(arguments, is_limited=is_limited, stdin=subprocess.PIPE, stderr=errors)
        session = GitSession(cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout))
        _enlarge(*session)
        watchdog = Timer(seconds_max or GIT_SECONDS_MAX, _kill, [process])
        watchdog.start()
        has_stopped_reading = False
        try:
            with suppress(BrokenPipeError), process:
                try:
                    yield session
                except BrokenPipeError:
                    has_stopped_reading = True
                except BaseException:
                    _kill(process)
                    raise
        finally:
            watchdog.cancel()
        if has_stopped_reading or process.returncode != 0:
            errors.seek(0)
            raise _failed(arguments, process.returncode, errors.read())


_WITHIN_LIMITS = f'ulimit -v {MEMORY_KIB_MAX} 2>/dev/null; exec "$@"'


def _start(
    arguments: Sequence[str], *, is_limited: bool, stdin: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start git in its own process group, so that `_kill` also ends the programs that git starts."""
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
    """Kill git and the programs that it started. A git that has ended is left alone: another process may have
    its id by now."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _command(arguments: Sequence[str], *, is_limited: bool) -> list[str]:
    settings = [part for setting in _CONFIGURATION for part in ("-c", setting)]
    limits = ["sh", "-c", _WITHIN_LIMITS, "sh"] if is_limited else []
    return [*limits, "git", *settings, *arguments]


def _enlarge(*pipes: BinaryIO) -> None:
    """Enlarge the pipe buffers, so that a writer waits for its reader less often. A system that cannot or may
    not do that leaves them as they are."""
    for pipe in pipes:
        with suppress(AttributeError, OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _failed(arguments: Sequence[str], status: int | None, stderr: bytes) -> Unavailable:
    if status == 127:
        return _missing()
    command_name = next(word for word in arguments if not word.startswith("-"))
    return Unavailable(
        f"git {command_name}", stderr.decode(errors="replace").strip() or f"exited with {status}"
    )


def _missing() -> Unavailable:
    return Unavailable("git", "the program is not installed", remedy="install git 2.30 or newer")
