"""The command `harness jobs`: tasks that are due later, and their errors."""

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
    help="Background jobs. Without a command, list the unfinished ones.",
    invoke_without_command=True,
)

JobId = Annotated[str, typer.Argument(help="Id of a job, as the list shows it.", metavar="JOB")]


LIST_MAX = 100


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="jobs")


@app.callback()
def list_(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of jobs.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Background jobs. Without a command, list the unfinished ones.

    A job is due at a time and is done once.
    """
    if context.invoked_subcommand is not None:
        Shown.home = home or Shown.home
        return
    with opened(home, as_json=as_json) as harness:
        jobs = harness.jobs.list()
    listed = jobs[:limit]
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
    if len(jobs) > limit:
        notes().print(f"… and {len(jobs) - limit} that are due later; `--limit` shows more")


@app.command()
def run(home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Run all jobs that are due now, then end. The exit code is 1 if a job failed."""

    def on_job(job: Job, error: str | None) -> None:
        mark = "[green]✓[/]" if error is None else "[red]✗[/]"
        notes().print(f"{mark} {job.id}", end="")
        notes().print(f"  {error or ''}", markup=False)

    with opened(home, as_json=as_json) as harness:
        drained = harness.run_jobs(on_job)
    if as_json:
        print_json({"done": drained.done, "failed": drained.failed})
    return 1 if drained.failed else 0


@app.command()
def retry(job: JobId, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Make a job due now and reset its failed attempts."""
    with opened(home, as_json=as_json) as harness:
        harness.jobs.retry(job)
    if as_json:
        print_json({"id": job, "due": True})
    else:
        say(f"due now: {job}; `harness jobs run` runs it")


@app.command()
def rm(job: JobId, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete a job without running it."""
    with opened(home, as_json=as_json) as harness:
        harness.jobs.remove(job)
    if as_json:
        print_json({"deleted": True, "id": job})
    else:
        say(f"deleted: {job}")
