"""`harness sync`: the files here and in S3 become one."""

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
    """Synchronise the files on this machine with S3.

    A change on one side is copied to the other. Changes on both sides are merged; a file that cannot be
    merged is kept in both versions. No change is lost. If most files vanished on one side, sync stops and
    asks before deleting on the other.
    """
    from workspaces.errors import Failure

    documents: dict[str, Any] = {}
    failures: list[Failure] = []
    with opened(home, as_json=as_json) as harness:
        found = harness.workspaces
        followed, unreached = _followed(harness, dry_run)
        documents.update(_documents(followed, workspaces))
        names = (
            [one for one in workspaces if one not in documents]
            if workspaces
            else [one.name for one in found.list(private=True) if one.is_shared]
        )
        if unreached is not None and not names:
            raise unreached
        for name in names:
            try:
                if dry_run:
                    documents[name] = _planned(name, found, as_json=as_json)
                else:
                    documents[name] = _synced(
                        name,
                        found,
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
        notes().print(
            "No workspace is kept in S3: `harness workspace create --storage s3` makes one, "
            "`harness workspace attach` lists those of other machines."
        )
    return 1 if failures else 0


def bring(name: str, workspaces: Workspaces) -> None:
    """What others have of a workspace, with a word where not all of it came."""
    report, refused = _run(name, workspaces, accept_deletions=False, check=False)
    if refused or report.unfollowed is not None or report.pending:
        _print_report(notes(), name, report, refused)


def _synced(
    name: str, workspaces: Workspaces, *, accept_deletions: bool, check: bool, as_json: bool
) -> dict[str, Any]:
    """With a word on what it did unless that is for a program."""
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
    """With a bar where it takes a while."""
    syncing = workspaces.sync(name)
    with _progress(name) as tell:
        report = syncing.run(accept_deletions=accept_deletions, check=check, tell=tell)
    return report, [*_kept_back(workspaces, name), *report.refused]


def _kept_back(workspaces: Workspaces, name: str) -> list[Problem]:
    """What is here and can be on no other machine."""
    return [one for one in workspaces.get(name).scan().problems if one.kind != "conflict"]


def _each_once(paths: Sequence[str]) -> list[str]:
    """What others changed again in the middle of it went more than one way."""
    return list(dict.fromkeys(paths))


def _followed(harness: Harness, dry_run: bool) -> tuple[SyncResult, Failure | None]:
    """The records first: whose files are synced, under which name. A place that does not answer is told by
    the first workspace that needs it; where there is none, by what is returned."""
    from harness.sync.registry_sync import SyncResult
    from workspaces.errors import Unavailable

    if harness.following is None or dry_run:
        return SyncResult(), None
    try:
        followed = harness.following.sync()
    except Unavailable as failure:
        return SyncResult(), failure
    print_followed(followed)
    return followed, None


def print_followed(followed: SyncResult) -> None:
    """What became of records, on standard error: data is printed by whoever asked for it."""
    console = notes()
    for name in followed.applied:
        console.print(visible(f"{name}: as another machine has it"), markup=False)
    for name in followed.clashes:
        told = f"{name} was changed on two machines: the later change counts"
        console.print(visible(told), markup=False)
    for name in followed.deleted:
        console.print(visible(f"{name}: deleted on another machine"), markup=False)
    for buried in followed.trashed:
        console.print(
            visible(f"  what was here of {buried.name} lies in {buried.place}"), markup=False
        )
        if buried.unpushed:
            told = f"  never pushed: {', '.join(buried.unpushed)}"
            console.print(visible(told), markup=False)
    for trouble in followed.troubles:
        console.print(visible(f"left alone: {trouble.name}: {trouble.reason}"), markup=False)
        if trouble.remedy:
            console.print(f"  → {trouble.remedy}", markup=False)


def _documents(followed: SyncResult, asked: list[str] | None) -> dict[str, Any]:
    """Of workspaces that were met as deleted, under the name by which they were asked for."""
    told: dict[str, Any] = {}
    for buried in followed.trashed:
        called = next((one for one in asked or () if one in (buried.id, buried.name)), buried.name)
        told[called] = {
            "deleted": True,
            "trash": str(buried.place),
            "unpushed": list(buried.unpushed),
        }
    return told


def _print_report(
    console: Console, name: str, report: SyncReport, refused: Sequence[Problem]
) -> None:
    counts = {
        "pushed": len(_each_once(report.pushed)),
        "pulled": len(_each_once(report.pulled)),
        "merged": len(_each_once(report.merged)),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    console.print(f"[bold]{escaped(name)}[/]  {told or 'nothing to do'}")
    for path in _each_once(report.merged):
        console.print(f"  merged: {visible(path)}", markup=False)
    for path in _each_once(report.conflicts):
        console.print(f"  both kept: {visible(path)} beside what is in S3", markup=False)
    for problem in refused:
        console.print(f"  left alone: {problem.path!r} {problem.detail}", markup=False)
    if report.mended:
        console.print(f"  history: {len(report.mended)} damaged packs in S3 were made anew")
    if report.unfollowed is not None:
        console.print(f"  history: {visible(str(report.unfollowed))}", markup=False)
        if report.unfollowed.remedy is not None:
            console.print(f"    {visible(report.unfollowed.remedy)}", markup=False)
    for path in report.pending:
        console.print(f"  changes too fast, sync again: {visible(path)}", markup=False)


def _planned(name: str, workspaces: Workspaces, *, as_json: bool) -> dict[str, Any]:
    plan = workspaces.sync(name).plan()
    refused = [*_kept_back(workspaces, name), *plan.refused]
    rows = [(_name(action), action.path) for action in plan.actions]
    alarm = plan.alarm.reason if plan.alarm else None
    if not as_json:
        console = out()
        console.print(f"[bold]{escaped(name)}[/]  {len(rows) or 'nothing'} to do")
        for what, path in rows:
            console.print(f"  {what:<14} {visible(path)}", markup=False)
        for problem in refused:
            console.print(f"  {'leave alone':<14} {problem.path!r} {problem.detail}", markup=False)
        if alarm is not None:
            console.print(f"  would stop and ask: {alarm}", markup=False)
    return {
        "plan": [{"action": what, "path": path} for what, path in rows],
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
