"""The command `harness conversations`: those that memories cite, and `local`: those of other agents here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    escaped,
    opened,
    out,
    print_json,
    print_table,
    put,
    visible,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.memorize.local.local_conversations import LocalConversations
    from harness.memorize.local.local_message import LocalMessage

LIST_MAX = 50
MESSAGES_MAX = 20
ID_CHARACTERS = 36

app = typer.Typer(
    help="Conversations that memories cite, and those of other agents.",
    no_args_is_help=True,
)
local = typer.Typer(
    help="Conversations of agents on this machine.",
    no_args_is_help=True,
)
app.add_typer(local, name="local")


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="conversations")


@local.command("list")
def list_(
    provider: Annotated[
        str | None,
        typer.Option("--provider", help="codex, claude-code, claude-desktop or harness."),
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
    """List the conversations of agents on this machine, newest first."""
    from harness.memory.recall import since_of

    with opened(home, as_json=as_json) as harness:
        listed = _conversations(harness).list(
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
            one.title if one.has_messages else f"{one.title} (metadata only)",
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
    with opened(home, as_json=as_json) as harness:
        read = _conversations(harness).get(conversation, around=around, limit=limit)
    if as_json:
        print_json(read.as_json())
        return
    for message in read.messages:
        print_message(message)
    if not read.conversation.has_messages:
        complain("only title and dates of this conversation are on this machine\n")
    skipped = read.skipped
    count = skipped.malformed + skipped.too_long + skipped.unknown.total()
    if count:
        complain(f"{count:,} lines were skipped; --json tells why\n")


@app.command("list")
def list_archives(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the archived conversations that memories cite."""
    with opened(home, as_json=as_json) as harness:
        archives = harness.rooms.memorizer.archives.list()
    if as_json:
        print_json({"conversations": [one.as_json() for one in archives]})
        return
    rows = (
        (
            one.about.id[:ID_CHARACTERS],
            one.about.provider,
            one.updated_at[:16].replace("T", " "),
            str(one.snapshots[-1].messages),
            one.about.title,
        )
        for one in archives
    )
    print_table(("id", "provider", "changed (UTC)", "messages", "title"), rows)


@app.command("show")
def show_archive(
    conversation: Annotated[
        str, typer.Argument(help="Id of the conversation.", metavar="CONVERSATION")
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
    """Show messages of an archived conversation by their positions."""
    from itertools import islice

    from harness.memorize.local.local_conversations import shown_range

    with opened(home, as_json=as_json) as harness:
        archives = harness.rooms.memorizer.archives
        archive = archives.get(conversation)
        first, last = shown_range(archive.snapshots[-1].messages, around, limit)
        messages = list(islice(archives.messages(archive), first, last))
    if as_json:
        shown = [one.as_json() for one in messages]
        print_json({"conversation": archive.as_json(), "messages": shown})
        return
    for message in messages:
        print_message(message)


@app.command("rm")
def delete_archive(
    conversation: Annotated[
        str, typer.Argument(help="Id of the conversation.", metavar="CONVERSATION")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an archived conversation. Memories that cite it stay."""
    with opened(home, as_json=as_json) as harness:
        harness.rooms.memorizer.archives.delete(conversation)
    if as_json:
        print_json({"deleted": True})
    else:
        put(f"Deleted {conversation}.\n")


def print_message(message: LocalMessage) -> None:
    """Print a message with its position."""
    at = (message.timestamp or "")[:16].replace("T", " ")
    kind = "" if message.type == "message" else f" {message.type.replace('_', ' ')}"
    out().print(f"[bold]{message.position} {message.role}[/]{kind} [dim]{escaped(visible(at))}[/]")
    put(f"{visible(message.text)}\n\n")


def _conversations(harness: Harness) -> LocalConversations:
    """Return the conversations of the person who runs the command."""
    from harness.memorize.local.local_conversations import local_conversations

    return local_conversations(harness.settings, harness.rooms.memorizer.own)
