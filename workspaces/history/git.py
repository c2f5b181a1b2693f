"""The git program, in an environment built from nothing.

No configuration but ours; no hooks, filters, pagers, prompts or remotes. GitPython starts commands
from a copy of the process environment and cannot unset a variable, so that an inherited GIT_DIR would
lead it elsewhere: hence the explicit `env -i`. What strangers wrote never becomes an option: revisions
follow `--end-of-options`, paths follow `--`, and pathspecs are literal.
"""

from __future__ import annotations

import os
from tempfile import TemporaryFile

from workspaces.errors import Unavailable

GIT_SECONDS_MAX = 60
"""No reading of a workspace within its quota takes longer; a git that hangs is ended."""

MEMORY_KIB_MAX = 1024 * 1024
"""What git may take to look at bytes of strangers: a few of the largest files at once. Where the system
knows no such limit it is not kept, and the time is."""

_ENVIRONMENT = (
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_SYSTEM=/dev/null",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_ASKPASS=/bin/false",
    "SSH_ASKPASS=/bin/false",
    "GIT_NO_REPLACE_OBJECTS=1",
    "GIT_OPTIONAL_LOCKS=0",
    "GIT_ALLOW_PROTOCOL=none",
    "GIT_EDITOR=/bin/false",
    "GIT_PAGER=cat",
    "GIT_LITERAL_PATHSPECS=1",
    "HOME=/nonexistent",
    "XDG_CONFIG_HOME=/nonexistent",
    "LC_ALL=C.UTF-8",
    "TZ=UTC",
)
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
    """What the program prints. Unavailable when it fails, is missing, or hangs. `told`: what it reads;
    `is_limited`: strangers wrote it, and it may be made to take more memory than there is."""
    try:
        from git import Git
        from git.exc import GitCommandError, GitCommandNotFound
    except ImportError as error:  # GitPython looks for the program when it is imported
        raise _missing() from error
    settings = [part for setting in _CONFIGURATION for part in ("-c", setting)]
    environment = (f"PATH={os.environ.get('PATH', os.defpath)}", *_ENVIRONMENT)
    within = ["sh", "-c", _WITHIN_LIMITS, "sh"] if is_limited else []
    command = ["env", "-i", *environment, *within, "git", *settings, *arguments]
    try:
        with TemporaryFile() as stream:
            stream.write(told)
            stream.seek(0)
            return Git("/").execute(
                command,
                istream=stream if told else None,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                kill_after_timeout=GIT_SECONDS_MAX,
            )
    except GitCommandNotFound as error:
        raise _missing() from error
    except GitCommandError as error:
        if error.status == 127:
            raise _missing() from error
        reason = str(error.stderr).strip().strip("'").removeprefix("stderr: '").strip()
        command_name = next(word for word in arguments if not word.startswith("-"))
        raise Unavailable(f"git {command_name}", reason or f"ended with {error.status}") from error


_WITHIN_LIMITS = f'ulimit -v {MEMORY_KIB_MAX} 2>/dev/null; exec "$@"'


def _missing() -> Unavailable:
    return Unavailable("git", "the program is not installed", remedy="install git 2.30 or newer")
