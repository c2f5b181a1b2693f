"""The command `harness forbid`: texts, patterns and detectors that no write may bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.arguments import WorkspaceArgument
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    opened,
    print_json,
    print_table,
    read_input,
    say,
)

if TYPE_CHECKING:
    from harness.harness import Harness
    from workspaces.storage.records import JsonObject

app = typer.Typer(
    help="Texts, patterns and detectors that no write may bring.", no_args_is_help=True
)

RuleArgument = Annotated[
    str, typer.Argument(help="Id of a rule, as the list shows it.", metavar="RULE")
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="forbid")


@app.command()
def add(
    text: Annotated[
        str | None,
        typer.Option(help="A text; `-` reads it from standard input. Only a hash of it is stored."),
    ] = None,
    match: Annotated[str | None, typer.Option(help="A regular expression of one line.")] = None,
    detect: Annotated[str | None, typer.Option(help="A detector: `keys` or `cards`.")] = None,
    workspace: Annotated[
        str | None, typer.Option(help="Only in this workspace, by its name or id.")
    ] = None,
    forbid_short: Annotated[
        bool,
        typer.Option(
            "--forbid-short", help="Take a text of fewer than 3 words and 12 letters too."
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forbid a text, what a pattern matches, or what a detector finds.

    A write that brings it is refused. A file that an editor or a command writes stays on the disk and is not
    kept until the text is out of it. What is there already stays: `harness forget` removes it.
    """
    fields = {
        "text": as_text(read_input()).strip() if text == "-" else text,
        "match": match,
        "detect": detect,
        "workspace": workspace,
    }
    given: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    with opened(home, as_json=as_json) as harness:
        forbidding = harness.rooms.forbidding
        (rule,) = forbidding.shown(forbidding.forbid({**given, "forbidShort": forbid_short}))
        publish(harness)
    if as_json:
        print_json(rule)
    else:
        say(f"forbidden from now on: {rule['id']}")


@app.command("list")
def list_rules(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List what is forbidden. A text is not shown: only a hash of it is stored."""
    with opened(home, as_json=as_json) as harness:
        rules = harness.rooms.forbidding.shown(*harness.rooms.forbidding.list())
    if as_json:
        print_json({"forbidden": rules})
        return
    rows = (
        (
            *(rule["id"], rule["kind"], _subject(rule), rule["workspaceId"] or "all"),
            *(rule["at"][:16], rule["by"], f"{rule['stopped']:,}"),
        )
        for rule in rules
    )
    print_table(("rule", "kind", "what", "workspace", "since (UTC)", "by", "stopped"), rows)


@app.command()
def lift(rule: RuleArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Forbid something no longer. What was forgotten stays forgotten."""
    with opened(home, as_json=as_json) as harness:
        (lifted,) = harness.rooms.forbidding.shown(harness.rooms.forbidding.lift(rule))
        publish(harness)
    if as_json:
        print_json(lifted)
    else:
        say(f"no longer forbidden: {lifted['id']}")


@app.command()
def allow(
    rule: RuleArgument,
    workspace: WorkspaceArgument,
    path: Annotated[str, typer.Argument(help="Path of a file, relative to the workspace.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the next change of a file pass a rule, within ten minutes."""
    with opened(home, as_json=as_json) as harness:
        harness.rooms.forbidding.allow(rule, {"workspace": workspace, "path": path})
    if as_json:
        print_json({"allowed": True})
    else:
        say(f"the next change of {path} may pass {rule}")


def publish(harness: Harness) -> None:
    """Tell the other machines, if S3 answers. Else the next sync does."""
    if harness.following is not None:
        harness.following.sync_if_reachable()


def _subject(rule: JsonObject) -> str:
    if "words" in rule:
        return f"{rule['words']} word{'s' if rule['words'] > 1 else ''}"
    return rule.get("pattern") or rule.get("detector") or ""
