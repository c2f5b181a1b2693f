"""The command `harness sync`: synchronise workspaces with S3."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    notes,
    opened,
    out,
    print_json,
    show_failure,
    visible,
)

if TYPE_CHECKING:
    from rich.console import Console

    from harness import Harness
    from harness.sync.registry_sync import SyncResult
    from workspaces.errors import Failure
    from workspaces.home.workspaces import Workspaces
    from workspaces.problem import Problem
    from workspaces.sync.reconcile import SyncAction
    from workspaces.sync.report import SyncReport

PROGRESS_AFTER_S = 1.0
"""Seconds after which a sync shows a progress bar."""


def register(app: typer.Typer) -> None:
    app.command()(sync)


def sync(
    workspaces: Annotated[
        list[str] | None,
        typer.Argument(help="Names or ids; default: all shared workspaces.", metavar="[W]..."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and change nothing.")
    ] = False,
    accept_deletions: Annotated[
        bool,
        typer.Option("--accept-deletions", help="Delete although most files vanished on one side."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check that S3 has the whole history, and repair it."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Synchronise the files on this machine with S3.

    A change on one side is copied to the other. Changes on both sides are merged; a file that cannot be
    merged is kept in both versions. No change is lost. If most files vanished on one side, sync stops and
    asks before deleting on the other.
    """
    from workspaces.errors import Failure

    documents: dict[str, Any] = {}
    failures: list[Failure] = []
    with opened(home, as_json=as_json) as harness:
        mine = harness.workspaces
        result, unreachable = _sync_records(harness, dry_run)
        documents.update(_deletion_documents(result, workspaces))
        names = (
            [one for one in workspaces if one not in documents]
            if workspaces
            else [one.name for one in mine.list(private=True) if one.is_shared]
        )
        # no workspace will report that S3 is unreachable: report it here
        if unreachable is not None and not names:
            raise unreachable
        for name in names:
            try:
                if dry_run:
                    documents[name] = _planned(name, mine, as_json=as_json)
                else:
                    documents[name] = _synced(
                        name,
                        mine,
                        as_json=as_json,
                        check=check,
                        accept_deletions=accept_deletions,
                    )
            except Failure as failure:
                failures.append(failure)
                documents[name] = {"error": {"code": failure.code, "message": str(failure)}}
        if not dry_run:
            harness.rooms.forgettings.run_pending()  # what other machines have forgotten
    if len(failures) == 1 and len(names) == 1:
        raise failures[0]
    for failure in failures:
        show_failure(failure, is_one_of_many=True)
    if as_json:
        print_json(documents)
    elif not names:
        notes().print(
            "No workspace is shared in S3: `harness workspace create --storage s3` creates one, "
            "`harness workspace attach` lists those of other machines."
        )
    return 1 if failures else 0


def download(name: str, workspaces: Workspaces) -> None:
    """Download a workspace from S3. Print a report if some of it could not be downloaded."""
    report, refused = _run(name, workspaces, accept_deletions=False, check=False)
    if refused or report.unfollowed is not None or report.pending:
        _print_report(notes(), name, report, refused)


def _synced(
    name: str, workspaces: Workspaces, *, accept_deletions: bool, check: bool, as_json: bool
) -> dict[str, Any]:
    """Sync a workspace and return the report as JSON. Print the report unless `as_json`."""
    report, refused = _run(name, workspaces, accept_deletions=accept_deletions, check=check)
    if not as_json:
        _print_report(out(), name, report, refused)
    return {
        "pushed": _each_once(report.pushed),
        "pulled": _each_once(report.pulled),
        "merged": _each_once(report.merged),
        "conflicts": _each_once(report.conflicts),
        "refused": [{"path": one.path, "reason": one.detail} for one in refused],
        "pending": report.pending,
        "requests": report.requests,
        "mended": report.mended,
        "unfollowed": None if report.unfollowed is None else str(report.unfollowed),
        "durable": report.durable.as_json(),
    }


def _run(
    name: str, workspaces: Workspaces, *, accept_deletions: bool, check: bool
) -> tuple[SyncReport, list[Problem]]:
    """Sync a workspace, with a progress bar if it takes a while. Return the report and the skipped files."""
    syncing = workspaces.sync(name)
    with _progress(name) as on_progress:
        report = syncing.run(
            accept_deletions=accept_deletions, check=check, on_progress=on_progress
        )
    return report, [*_unsyncable(workspaces, name), *report.refused]


def _unsyncable(workspaces: Workspaces, name: str) -> list[Problem]:
    """Return the local files that cannot be synced to other machines."""
    return [one for one in workspaces.get(name).tree.scan().problems if one.kind != "conflict"]


def _each_once(paths: Sequence[str]) -> list[str]:
    """Return the paths without repetitions. A file that changed during the sync appears more than once."""
    return list(dict.fromkeys(paths))


def _sync_records(harness: Harness, dry_run: bool) -> tuple[SyncResult, Failure | None]:
    """Sync the records before the files: they say which workspaces to sync, and their names.

    Return the failure if S3 does not answer. The first workspace that needs S3 reports it; the caller must
    report it if there is no such workspace.
    """
    from harness.sync.registry_sync import SyncResult
    from workspaces.errors import Unavailable

    if harness.following is None or dry_run:
        return SyncResult(), None
    try:
        result = harness.following.sync()
    except Unavailable as failure:
        return SyncResult(), failure
    print_sync_result(result)
    return result, None


def print_sync_result(result: SyncResult) -> None:
    """Print the changes of records on standard error. Standard output is for the command's data."""
    console = notes()
    for name in result.applied:
        console.print(visible(f"{name}: updated from another machine"), markup=False)
    for name in result.clashes:
        message = f"{name} was changed on two machines: the later change was kept"
        console.print(visible(message), markup=False)
    for name in result.deleted:
        console.print(visible(f"{name}: deleted on another machine"), markup=False)
    for trashed in result.trashed:
        message = f"  the local files of {trashed.name} were moved to {trashed.place}"
        console.print(visible(message), markup=False)
        if trashed.unpushed:
            message = f"  never pushed: {', '.join(trashed.unpushed)}"
            console.print(visible(message), markup=False)
    for trouble in result.troubles:
        console.print(visible(f"skipped: {trouble.name}: {trouble.reason}"), markup=False)
        if trouble.remedy:
            console.print(f"  → {trouble.remedy}", markup=False)


def _deletion_documents(result: SyncResult, references: list[str] | None) -> dict[str, Any]:
    """Return the workspaces that another machine deleted, as JSON.

    The key is the name or id that the command line has for the workspace, otherwise its name.
    """
    documents: dict[str, Any] = {}
    for trashed in result.trashed:
        known_by = (one for one in references or () if one in (trashed.id, trashed.name))
        documents[next(known_by, trashed.name)] = {
            "deleted": True,
            "trash": str(trashed.place),
            "unpushed": list(trashed.unpushed),
        }
    return documents


def _print_report(
    console: Console, name: str, report: SyncReport, refused: Sequence[Problem]
) -> None:
    counts = {
        "pushed": len(_each_once(report.pushed)),
        "pulled": len(_each_once(report.pulled)),
        "merged": len(_each_once(report.merged)),
    }
    summary = ", ".join(f"{count} {verb}" for verb, count in counts.items() if count)
    console.print(f"[bold]{escaped(name)}[/]  {summary or 'nothing to do'}")
    for path in _each_once(report.merged):
        console.print(f"  merged: {visible(path)}", markup=False)
    for path in _each_once(report.conflicts):
        console.print(
            f"  conflict: both versions are kept; {visible(path)} is the local one", markup=False
        )
    for problem in refused:
        console.print(f"  skipped: {problem.path!r} {problem.detail}", markup=False)
    if report.mended:
        console.print(f"  history: {len(report.mended)} damaged packs in S3 were repaired")
    if report.unfollowed is not None:
        console.print(f"  history: {visible(str(report.unfollowed))}", markup=False)
        if report.unfollowed.remedy is not None:
            console.print(f"    {visible(report.unfollowed.remedy)}", markup=False)
    for path in report.pending:
        console.print(f"  changed during the sync, run it again: {visible(path)}", markup=False)


def _planned(name: str, workspaces: Workspaces, *, as_json: bool) -> dict[str, Any]:
    plan = workspaces.sync(name).plan()
    refused = [*_unsyncable(workspaces, name), *plan.refused]
    rows = [(_name(action), action.path) for action in plan.actions]
    alarm = plan.alarm.reason if plan.alarm else None
    if not as_json:
        console = out()
        console.print(f"[bold]{escaped(name)}[/]  {len(rows) or 'nothing'} to do")
        for action, path in rows:
            console.print(f"  {action:<14} {visible(path)}", markup=False)
        for problem in refused:
            console.print(f"  {'skip':<14} {problem.path!r} {problem.detail}", markup=False)
        if alarm is not None:
            console.print(f"  would stop and ask: {alarm}", markup=False)
    return {
        "plan": [{"action": action, "path": path} for action, path in rows],
        "refused": [{"path": one.path, "reason": one.detail} for one in refused],
        "alarm": alarm,
    }


def _name(action: SyncAction) -> str:
    from workspaces.sync.reconcile import (
        Compare,
        DropBaseline,
        Pull,
        PullDeletion,
        Push,
        PushDeletion,
    )

    match action:
        case Push():
            return "push"
        case PushDeletion():
            return "delete there"
        case Pull():
            return "pull"
        case PullDeletion():
            return "delete here"
        case Compare():
            return "compare, merge"
        case DropBaseline():
            return "forget"


@contextmanager
def _progress(name: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if it is a terminal and the sync takes a while."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = notes()
    start = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(visible(name), total=None)
    is_shown = False

    def on_progress(done: int, of: int) -> None:
        nonlocal is_shown
        if not is_shown and console.is_terminal and time.monotonic() - start > PROGRESS_AFTER_S:
            is_shown = True
            bar.start()
        bar.update(task, completed=done, total=of)

    try:
        yield on_progress
    finally:
        if is_shown:
            bar.stop()
