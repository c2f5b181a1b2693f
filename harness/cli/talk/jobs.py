"""`harness jobs`: what is due later, and what went wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    Shown,
    notes,
    opened,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from harness.jobs.job import Job

app = typer.Typer(
    help="Jobs: things due later, each done once. Without a command: those that are not done.",
    invoke_without_command=True,
)

JobId = Annotated[str, typer.Argument(help="As the list shows it.", metavar="JOB")]


LIST_MAX = 100


@app.callback()
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Jobs: things due later, each done once. Without a command: those that are not done."""
    if context.invoked_subcommand is not None:
        Shown.home = home or Shown.home
        return
    with opened(home, as_json=as_json) as harness:
        found = harness.jobs.list()
    listed = found[:limit]
    if as_json:
        print_json({"jobs": [one.as_json() for one in listed]})
        return
    rows = (
        (
            one.job.id,
            one.job.due.strftime("%Y-%m-%d %H:%M:%S"),
            "set aside" if one.is_aside else "running" if one.process else "waiting",
            str(one.attempts),
            one.error or "",
        )
        for one in listed
    )
    print_table(("job", "due (UTC)", "state", "tries", "error"), rows)
    if len(found) > limit:
        notes().print(f"… and {len(found) - limit} that are due later; `--limit` shows more")


@app.command()
def run(home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Run everything that is due now, then end. Exit code 1 when something failed."""

    def told(job: Job, error: str | None) -> None:
        mark = "[green]✓[/]" if error is None else "[red]✗[/]"
        notes().print(f"{mark} {job.id}", end="")
        notes().print(f"  {error or ''}", markup=False)

    with opened(home, as_json=as_json) as harness:
        drained = harness.run_jobs(told)
    if as_json:
        print_json({"done": drained.done, "failed": drained.failed})
    return 1 if drained.failed else 0


@app.command()
def retry(job: JobId, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Make a job due now, as if it had never been tried."""
    with opened(home, as_json=as_json) as harness:
        harness.jobs.retry(job)
    if as_json:
        print_json({"id": job, "due": True})
    else:
        say(f"due now: {job}; `harness jobs run` runs it")


@app.command()
def rm(job: JobId, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Give a job up."""
    with opened(home, as_json=as_json) as harness:
        harness.jobs.remove(job)
    if as_json:
        print_json({"deleted": True, "id": job})
    else:
        say(f"deleted: {job}")
