"""`harness conversation`: what was said, kept and carried elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    input_lines,
    opened,
    out,
    print_json,
    print_table,
    put,
    say,
    visible,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.conversations.conversation import Conversation
    from harness.transcripts.transcript import Entry

app = typer.Typer(
    help="Conversations: what was said. Name one by its id, or by its key and --agent.",
    no_args_is_help=True,
)

ConversationArgument = Annotated[str, typer.Argument(help="Id or key.", metavar="CONVERSATION")]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", "-a", help="Whose conversation a key names (else the home's default)."),
]
LIST_MAX = 50
SHOWN_CHARACTERS_MAX = 200
"""Of a tool's input or result; --json has it whole."""


@app.command("list")
def list_(
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Only those with this agent.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Your conversations, the newest first."""
    with opened(home, as_json=as_json) as harness:
        of = harness.agents.get(agent).id if agent is not None else None
        names = {record.id: record.name for record in harness.agents.list()}
        shown = [_summary(harness, one) for one in harness.conversations.list(of, limit=limit)]
    if as_json:
        print_json({"conversations": shown})
        return
    rows = (
        (
            one["key"],
            one["id"],
            names.get(one["agentId"], "-"),
            str(one["entries"]),
            one["updatedAt"],
        )
        for one in shown
    )
    print_table(("key", "id", "agent", "entries", "last entry"), rows)


@app.command()
def show(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="So many of the newest entries.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last N entries in order.

    Tool calls are shortened; --json prints all of them.
    """
    from harness.conversations.export import entry_line
    from harness.presentation.file_json import session_document

    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        transcript = harness.conversations.transcript(found)
        newest = transcript.newest()
        last = newest.number if newest else 0
        entries = list(transcript.entries(max(1, last - limit + 1)))
        sessions = transcript.sessions()
        summary = _summary(harness, found)
    if as_json:
        shown = [session_document(one) for one in sessions]
        lines = [entry_line(entry) for entry in entries]
        print_json({**summary, "sessions": shown, "entries": lines})
        return
    begins = {session.first: number for number, session in enumerate(sessions, start=1)}
    for entry in entries:
        if entry.number in begins:
            out().print(f"[dim]── session {begins[entry.number]} ──[/]")
        _print_entry(entry)


@app.command()
def export(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
) -> None:
    """Print a conversation as JSON lines. A header, the sessions, the entries."""
    with opened(home) as harness:
        found = harness.conversation(conversation, agent=agent)
        for line in harness.export_conversation(found):
            put(line)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A file that `export` made; - reads standard input.")],
    agent: AgentOption = None,
    key: Annotated[str | None, typer.Option(help="The key it gets (else the one it had).")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring an exported conversation back, as a new one of yours."""
    with opened(home, as_json=as_json) as harness:
        made = harness.import_conversation(_lines(file), agent=agent, key=key)
        _tell_new(harness, made, "imported", as_json=as_json)


@app.command()
def fork(
    conversation: ConversationArgument,
    key: Annotated[str, typer.Argument(help="The key of the new one.")],
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="The last entry it takes along (else all).")
    ] = None,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a new conversation with the entries of this one. Up to a number; `show` prints them."""
    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        made = harness.fork_conversation(found, key, at=at)
        _tell_new(harness, made, "forked", as_json=as_json)


@app.command()
def cancel(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the turn that runs or waits. Whichever process runs it; what waits in line behind it stays."""
    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        is_cancelled = harness.cancel(found)
    if as_json:
        print_json({"cancelled": is_cancelled})
    else:
        what = "its turn ends" if is_cancelled else "no turn runs or waits"
        say(f"{found.key}: {what}")


@app.command()
def reset(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new session. What was said stays here, and the agent is not shown it any more."""
    from harness.presentation.file_json import session_document

    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        session = harness.conversations.reset(found)
    if as_json:
        print_json(session_document(session))
    else:
        say(f"reset: {found.key} goes on with entry {session.first} in a new session")


@app.command()
def rm(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a conversation. Its entries, its sessions, what waits in it; workspaces stay as they are."""
    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        gone = harness.conversations.delete(found)
    counts = {"entries": gone.entries, "sessions": gone.sessions, "waiting": gone.waiting}
    if as_json:
        print_json({"deleted": True, "id": found.id, **counts})
    else:
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        say(f"deleted: {found.key} ({found.id}): {told}")


def _summary(harness: Harness, conversation: Conversation) -> dict[str, Any]:
    from harness.presentation.file_json import conversation_document

    return conversation_document(conversation, harness.conversations.transcript(conversation))


def _tell_new(harness: Harness, made: Conversation, verb: str, *, as_json: bool) -> None:
    summary = _summary(harness, made)
    if as_json:
        print_json(summary)
    else:
        say(f"{verb}: {made.key} ({made.id}), {summary['entries']} entries")


def _print_entry(entry: Entry) -> None:
    from harness.messages.message import Text, ToolCall, ToolResult

    console = out()
    who = {"said": entry.message.role, "flush": "before the summary", "summary": "summary"}[
        entry.kind
    ]
    if entry.covers is not None:
        who = f"{who} of what was said up to {entry.covers}"
    head = f"[dim]{entry.number:>4}  {entry.at[:16].replace('T', ' ')}[/]  "
    for text in entry.system:
        console.print(f"{head}[bold]platform[/]  ", end="")
        console.print(visible(text), markup=False)
    for call_id in entry.allowed:
        console.print(f"{head}[green]allowed[/]  ", end="")
        console.print(visible(call_id), markup=False)
    for part in entry.message.parts:
        match part:
            case Text(text):
                console.print(f"{head}[bold]{who}[/]  ", end="")
                console.print(visible(text), markup=False)
            case ToolCall(_, name, arguments):
                console.print(f"{head}[cyan]{escaped(name)}[/]  ", end="")
                console.print(_short(json.dumps(arguments, ensure_ascii=False)), markup=False)
            case ToolResult(_, text, is_error):
                console.print(f"{head}[{'red' if is_error else 'dim'}]result[/]  ", end="")
                console.print(_short(text), markup=False)
            case _:
                console.print(f"{head}[dim]thinking[/]")


def _short(text: str) -> str:
    line = " ".join(visible(text).split())
    if len(line) <= SHOWN_CHARACTERS_MAX:
        return line
    return f"{line[:SHOWN_CHARACTERS_MAX]}… ({len(line):,} characters)"


def _lines(file: str) -> Iterator[str]:
    """One by one: all of them may be more than memory holds."""
    from workspaces.errors import NotFound, Refused

    if file == "-":
        yield from input_lines()
        return
    try:
        with Path(file).open(encoding="utf-8") as stream:
            yield from stream
    except FileNotFoundError as error:
        raise NotFound("file", file) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, bytes that are no UTF-8
        raise Refused("file", file, f"cannot be read: {error}") from error
