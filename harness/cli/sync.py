"""`harness sync`: the files here and in S3 become one."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.face import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    out,
    print_json,
    show_failure,
    visible,
)

if TYPE_CHECKING:
    from workspaces.reconcile import Action, Plan
    from workspaces.sync.report import Report
    from workspaces.sync.sync import Sync

PROGRESS_AFTER_S = 1.0
"""What is done sooner needs no bar."""


def register(app: typer.Typer) -> None:
    app.command()(sync)


def sync(
    workspaces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names or ids; without any, all that are kept in S3.", metavar="[W]..."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    accept_deletions: Annotated[
        bool,
        typer.Option(
            "--accept-deletions", help="Also when most of the files are gone from one side."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Look whether all of the history is in S3, and mend it."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make the files here and in S3 the same.

    What changed on one side goes to the other; what changed on both is merged, and what cannot be
    merged is kept as two files. Nothing that anyone wrote is lost. An emptied side never empties the
    other: sync stops and asks.
    """
    from workspaces.errors import Failure

    documents: dict[str, Any] = {}
    failures: list[Failure] = []
    with opened(home, as_json=as_json) as harness:
        found = harness.workspaces
        names = workspaces or [one.name for one in found.list(private=True) if one.is_shared]
        for name in names:
            try:
                syncing = found.sync(name)
                if dry_run:
                    documents[name] = _planned(name, syncing.plan(), as_json=as_json)
                else:
                    documents[name] = _synced(
                        name,
                        syncing,
                        as_json=as_json,
                        check=check,
                        accept_deletions=accept_deletions,
                    )
            except Failure as failure:
                failures.append(failure)
                documents[name] = {"error": {"code": failure.code, "message": str(failure)}}
    if len(failures) == 1 and len(names) == 1:
        raise failures[0]
    for failure in failures:
        show_failure(failure, is_one_of_many=True)
    if as_json:
        print_json(documents)
    elif not names:
        notes().print("No workspace is kept in S3: `harness workspace create --storage s3`.")
    return 1 if failures else 0


def _synced(
    name: str, syncing: Sync, *, as_json: bool, check: bool, accept_deletions: bool
) -> dict[str, Any]:
    with _progress(name) as tell:
        report = syncing.run(accept_deletions=accept_deletions, check=check, tell=tell)
    if not as_json:
        _print_report(name, report)
    return {
        "pushed": report.pushed,
        "pulled": report.pulled,
        "merged": report.merged,
        "conflicts": report.conflicts,
        "refused": [{"path": one.path, "reason": one.detail} for one in report.refused],
        "pending": report.pending,
        "requests": report.requests,
        "mended": report.mended,
        "unfollowed": None if report.unfollowed is None else str(report.unfollowed),
        "durable": report.durable.as_json(),
    }


def _print_report(name: str, report: Report) -> None:
    console = out()
    counts = {
        "pushed": len(report.pushed),
        "pulled": len(report.pulled),
        "merged": len(report.merged),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    console.print(f"[bold]{visible(name)}[/]  {told or 'nothing to do'}")
    for path in report.merged:
        console.print(f"  merged: {visible(path)}", markup=False)
    for path in report.conflicts:
        console.print(f"  both kept: {visible(path)} beside what is in S3", markup=False)
    for problem in report.refused:
        console.print(f"  left alone: {visible(problem.path)} {problem.detail}", markup=False)
    if report.mended:
        console.print(f"  history: {len(report.mended)} damaged packs in S3 were made anew")
    if report.unfollowed is not None:
        console.print(f"  history: {visible(str(report.unfollowed))}", markup=False)
        if report.unfollowed.remedy is not None:
            console.print(f"    {visible(report.unfollowed.remedy)}", markup=False)
    for path in report.pending:
        console.print(f"  changes too fast, sync again: {visible(path)}", markup=False)


def _planned(name: str, plan: Plan, *, as_json: bool) -> dict[str, Any]:
    rows = [(_name(action), action.path) for action in plan.actions]
    alarm = plan.alarm.reason if plan.alarm else None
    if not as_json:
        console = out()
        console.print(f"[bold]{visible(name)}[/]  {len(rows) or 'nothing'} to do")
        for what, path in rows:
            console.print(f"  {what:<14} {visible(path)}", markup=False)
        for problem in plan.refused:
            console.print(f"  {'leave alone':<14} {visible(problem.path)} {problem.detail}")
        if alarm is not None:
            console.print(f"  would stop and ask: {alarm}", markup=False)
    return {
        "plan": [{"action": what, "path": path} for what, path in rows],
        "refused": [{"path": one.path, "reason": one.detail} for one in plan.refused],
        "alarm": alarm,
    }


def _name(action: Action) -> str:
    from workspaces.reconcile import Forget, Meet, Pull, PullDeletion, Push, PushDeletion

    match action:
        case Push():
            return "push"
        case PushDeletion():
            return "delete there"
        case Pull():
            return "pull"
        case PullDeletion():
            return "delete here"
        case Meet():
            return "compare, merge"
        case Forget():
            return "forget"


@contextmanager
def _progress(name: str) -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error, once it has taken a while."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = notes()
    begun = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(visible(name), total=None)
    is_shown = False

    def tell(done: int, of: int) -> None:
        nonlocal is_shown
        if not is_shown and console.is_terminal and time.monotonic() - begun > PROGRESS_AFTER_S:
            is_shown = True
            bar.start()
        bar.update(task, completed=done, total=of)

    try:
        yield tell
    finally:
        if is_shown:
            bar.stop()
