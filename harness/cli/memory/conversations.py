"""The command `harness conversations local`: the conversations of other agents on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    Shown,
    complain,
    escaped,
    out,
    print_json,
    print_table,
    put,
    visible,
)

if TYPE_CHECKING:
    from harness.memorize.local.local_conversations import LocalConversations

LIST_MAX = 50
MESSAGES_MAX = 20
ID_CHARACTERS = 36

app = typer.Typer(
    help="Conversations of other agents on this machine.",
    no_args_is_help=True,
)
local = typer.Typer(
    help="Conversations of Codex, Claude Code and Claude Desktop.",
    no_args_is_help=True,
)
app.add_typer(local, name="local")


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="conversations")


@local.command("list")
def list_(
    provider: Annotated[
        str | None, typer.Option("--provider", help="codex, claude-code or claude-desktop.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Only of this directory and those below.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Part of the title or the directory.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only if changed on this day or later.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of conversations.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the conversations of other agents, newest first."""
    from harness.memory.recall import since_of

    Shown.as_json = as_json
    listed = _conversations(home).list(
        provider=provider,
        project=str(Path(project).expanduser().absolute()) if project is not None else None,
        query=query,
        since=since_of(since) if since is not None else None,
        limit=limit,
    )
    if as_json:
        print_json({"conversations": [one.as_json() for one in listed]})
        return
    rows = (
        (
            one.id[:ID_CHARACTERS],
            one.provider,
            one.updated_at[:16].replace("T", " "),
            one.project or "-",
            one.title if one.file is not None else f"{one.title} (metadata only)",
        )
        for one in listed
    )
    print_table(("id", "provider", "changed (UTC)", "directory", "title"), rows)


@local.command()
def show(
    conversation: Annotated[
        str, typer.Argument(help="Its id, or the beginning of it.", metavar="CONVERSATION")
    ],
    around: Annotated[
        int | None, typer.Option("--around", min=1, help="Show messages around this position.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of messages.")
    ] = MESSAGES_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show messages with positions, the newest or some earlier.

    Keys, tokens and passwords are replaced by what they are. Lines that cannot be read are counted.
    """
    Shown.as_json = as_json
    read = _conversations(home).get(conversation, around=around, limit=limit)
    if as_json:
        print_json(read.as_json())
        return
    for message in read.messages:
        at = (message.timestamp or "")[:16].replace("T", " ")
        kind = "" if message.type == "message" else f" {message.type.replace('_', ' ')}"
        out().print(
            f"[bold]{message.position} {message.role}[/]{kind} [dim]{escaped(visible(at))}[/]"
        )
        put(f"{visible(message.text)}\n\n")
    if read.conversation.file is None:
        complain("only title and dates of this conversation are on this machine\n")
    skipped = read.skipped
    count = skipped.malformed + skipped.too_long + skipped.unknown.total()
    if count:
        complain(f"{count:,} lines were skipped; --json tells why\n")


def _conversations(home: Path | None) -> LocalConversations:
    """Return the conversations of the person who runs the command."""
    from harness.memorize.local.local_conversations import local_conversations
    from harness.runtime.settings import read_settings

    return local_conversations(read_settings(home or Shown.home))
