"""The command `harness forget`: take a text out of everything that this account has, and refuse it from then
on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    complain,
    notes,
    opened,
    print_json,
    print_table,
    put,
    read_input,
    say,
)
from harness.cli.memory.forbid import lift, list_rules

if TYPE_CHECKING:
    from harness.forgetting.forgetting import Forgetting

app = typer.Typer(
    help="Take a text out of everything, and refuse it from then on.",
    invoke_without_command=True,
)


app.command("list", help="List what is refused because it was forgotten or forbidden.")(list_rules)
app.command("lift", help="Refuse a forgotten text no longer. What was forgotten stays forgotten.")(
    lift
)


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="forget")


@app.callback()
def forget(
    context: typer.Context,
    text: Annotated[
        str | None, typer.Option("--text", help="The text; `-` reads it from standard input.")
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="REGEX", help="All texts that it matches.")
    ] = None,
    line: Annotated[
        tuple[str, str] | None,
        typer.Option("--line", metavar="W PATH:N", help="A line of a file as it is now."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="The lines that it added.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="C", help="A whole conversation.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it is, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the report.")] = "",
    many: Annotated[
        bool, typer.Option("--many", help="Also if over a fifth of all lines have it.")
    ] = False,
    forbid_short: Annotated[
        bool, typer.Option("--forbid-short", help="Also a text of one or two short words.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Take a text out of files, their whole history, conversations, prompts and S3.

    Without --dry-run and --yes, it says what it found and asks. Other case, line ends and marks do not hide a
    text; a translation or another wording does. Ids of revisions change, and old ids still work. Nothing
    brings the text back, and it is refused from then on.
    """
    if context.invoked_subcommand is not None:
        return 0
    request = _request(
        text=as_text(read_input()).rstrip("\n") if text == "-" else text,
        match=match,
        line=None if line is None else _line(*line),
        revision=revision,
        conversation=conversation,
        dryRun=dry_run or None,
        reason=reason or None,
        many=many or None,
        forbidShort=forbid_short or None,
    )
    with opened(home, as_json=as_json) as harness:
        from harness.forgetting.selection import ForgettingRequest
        from workspaces.validation import parse

        forgettings = harness.rooms.forgettings
        planned = forgettings.plan(parse(ForgettingRequest, request))
        if dry_run:
            _print(planned.forgetting, as_json=as_json)
            return 0
        if not yes:
            if not as_json:
                _print(planned.forgetting)
            if not _is_confirmed():
                complain("Nothing was changed.\n")
                return 1
        started = forgettings.start(planned)
        with notes().status("forgetting"):
            done = forgettings.run_here(started.id)
            forgettings.run_pending()  # what a killed command has begun
    _print(done, as_json=as_json)
    return 0


@app.command()
def show(
    forgetting: Annotated[
        str | None, typer.Argument(help="Its id; default: all of them.", metavar="ID")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the report of a forgetting, or list all of them."""
    with opened(home, as_json=as_json) as harness:
        forgettings = harness.rooms.forgettings
        if forgetting is not None:
            _print(forgettings.show(forgetting), as_json=as_json)
            return
        every = forgettings.stored.list()
    if as_json:
        print_json({"forgettings": [one.as_json() for one in every]})
        return
    rows = ((one.id, one.at[:19], one.status, one.selector, str(one.count)) for one in every)
    print_table(("forgetting", "at (UTC)", "status", "by", "places"), rows)


@app.command()
def verify(
    report: Annotated[
        str, typer.Argument(help="The id of a forgetting, or the file of its report.")
    ],
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", metavar="DIR", help="Look in this directory, too: a backup."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Look everywhere again, in raw bytes. The text is read from standard input.

    Deleted rows, packs, old versions in the bucket and escaped texts are looked at. The exit code is 1 if the
    text is found.
    """
    from harness.forgetting.verify import verify as look

    with opened(home, as_json=as_json) as harness:
        if sys.stdin.isatty():
            notes().print("The text that was forgotten (end with Ctrl-D):")
        text = as_text(read_input()).strip()
        verified = look(harness.rooms.forgettings, report, text, also=also or ())
    if as_json:
        print_json(verified.as_json())
    else:
        for place in verified.found:
            say(f"found: {place}")
        state = "NOT forgotten" if verified.found else "found nowhere"
        say(f"{verified.forgetting}: {state} ({verified.looked_at})")
    return 1 if verified.found else 0


def _request(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _line(workspace: str, place: str) -> dict[str, Any]:
    path, _, number = place.rpartition(":")
    if not path or not number.isdecimal():
        raise typer.BadParameter("write --line WORKSPACE PATH:NUMBER, such as notes MEMORY.md:12")
    return {"workspace": workspace, "path": path, "number": int(number)}


def _is_confirmed() -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        complain("There is no terminal to ask at; say --yes, or --dry-run.\n")
        return False
    return typer.confirm("Forget it everywhere? Nothing brings it back", default=False, err=True)


def _print(forgetting: Forgetting, *, as_json: bool = False) -> None:
    if as_json:
        print_json(forgetting.as_json())
        return
    rows = (
        (
            one.place.where,
            one.place.workspace or one.place.conversation or "",
            one.place.path or "",
            (one.place.revision or "")[:12],
            f"{one.count:,}",
        )
        for one in forgetting.found
    )
    if forgetting.found:
        print_table(("where", "of", "path", "revision", "count"), rows)
    state = "nothing was found" if not forgetting.found else f"{forgetting.count:,} found"
    put(f"{forgetting.id}: {forgetting.status}, {state}\n")
    for machine in forgetting.machines:
        heard = f"heard {machine.heard_at[:19]}" if machine.heard_at else "has yet to hear"
        put(f"machine {machine.id}: {heard}\n")
    for named in forgetting.may_repeat:
        put(f"may say it in other words: {named}\n")
    for one in forgetting.unreachable:
        put(f"not reached: {one.where}: {one.why}\n")
    if forgetting.waits_for:
        put(f"It waits, and goes on by itself: {forgetting.waits_for}\n")
