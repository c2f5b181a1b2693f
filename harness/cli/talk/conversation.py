"""The command `harness conversation`: list, show, export, import, fork and delete conversations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    input_lines,
    notes,
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
    help="Conversations with agents. Name one by its id, or by its key and --agent.",
    no_args_is_help=True,
)

ConversationArgument = Annotated[str, typer.Argument(help="Id or key.", metavar="CONVERSATION")]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", "-a", help="The agent of a conversation key; default: the home's default."
    ),
]
LIST_MAX = 50
FIRST_ENTRIES = 3
"""Entries in which the first message of a person is looked for."""

WORDS_CHARACTERS_MAX = 60
WORDS_CHARACTERS_MIN = 12
"""Characters of a first message in the list. A terminal gets as many as fit into its line."""

SHOWN_CHARACTERS_MAX = 200
"""Characters of a tool's input or result that are shown. --json prints all of them."""


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="conversation")


@app.command("list")
def list_(
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="List only conversations with this agent.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of conversations.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List your conversations, newest first, with their first words. --json prints their ids."""
    with opened(home, as_json=as_json) as harness:
        agent_id = harness.agents.get(agent).id if agent is not None else None
        names = {record.id: record.name for record in harness.agents.list()}
        listed = harness.conversations.list(agent_id, limit=limit)
        shown = [_listed(harness, conversation) for conversation in listed]
    if as_json:
        print_json({"conversations": shown})
        return
    rows = [
        (
            one["key"],
            names.get(one["agentId"], "-"),
            str(one["entries"]),
            one["updatedAt"][:16].replace("T", " "),
        )
        for one in shown
    ]
    headings = ("key", "agent", "entries", "last entry (UTC)")
    taken = sum(max(map(len, column)) + 2 for column in zip(headings, *rows, strict=True))
    room = max(WORDS_CHARACTERS_MIN, notes().width - taken) if sys.stdout.isatty() else None
    begins = (_cut(one["begins"], room) for one in shown)
    print_table(
        (*headings, "begins with"),
        ((*row, begin) for row, begin in zip(rows, begins, strict=True)),
    )


@app.command()
def show(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Number of the newest entries.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last N entries in order.

    Long tool calls are shortened; --json prints them whole.
    """
    from harness.conversations.export import entry_line
    from harness.presentation.file_json import session_document

    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        transcript = harness.conversations.transcript(record)
        newest = transcript.newest()
        last = newest.number if newest else 0
        entries = list(transcript.entries(max(1, last - limit + 1)))
        sessions = transcript.sessions()
        summary = _summary(harness, record)
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
    """Print a conversation as JSON lines. They are a header, the sessions and the entries."""
    with opened(home) as harness:
        record = harness.conversation(conversation, agent=agent)
        for line in harness.export_conversation(record):
            put(line)


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(help="A file that `export` wrote; - reads standard input.")
    ],
    agent: AgentOption = None,
    key: Annotated[str | None, typer.Option(help="Its new key; default: the exported key.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import an exported conversation as a new conversation of yours."""
    with opened(home, as_json=as_json) as harness:
        made = harness.import_conversation(_lines(file), agent=agent, key=key)
        _print_new(harness, made, "imported", as_json=as_json)


@app.command()
def fork(
    conversation: ConversationArgument,
    key: Annotated[str, typer.Argument(help="Key of the new conversation.")],
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, help="The last entry to copy; default: all entries."),
    ] = None,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new conversation with a copy of the entries.

    `harness conversation show` prints the numbers of the entries for --at.
    """
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        made = harness.fork_conversation(record, key, at=at)
        _print_new(harness, made, "forked", as_json=as_json)


@app.command()
def cancel(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel the running or waiting turn.

    It does not matter which process runs the turn. Later events in the queue stay there.
    """
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        is_cancelled = harness.cancel(record)
    if as_json:
        print_json({"cancelled": is_cancelled})
    else:
        result = "the turn ends" if is_cancelled else "no turn runs or waits"
        say(f"{record.key}: {result}")


@app.command()
def reset(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new session. Old messages are kept, but the agent no longer sees them."""
    from harness.presentation.file_json import session_document

    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        session = harness.conversations.reset(record)
    if as_json:
        print_json(session_document(session))
    else:
        say(f"reset: {record.key} continues with entry {session.first} in a new session")


@app.command()
def rm(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a conversation with its entries, sessions and queue. Workspaces do not change."""
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        report = harness.conversations.delete(record)
    counts = {"entries": report.entries, "sessions": report.sessions, "waiting": report.waiting}
    if as_json:
        print_json({"deleted": True, "id": record.id, **counts})
    else:
        summary = ", ".join(f"{count} {name}" for name, count in counts.items())
        say(f"deleted: {record.key} ({record.id}): {summary}")


def _summary(harness: Harness, conversation: Conversation) -> dict[str, Any]:
    from harness.presentation.file_json import conversation_document

    return conversation_document(conversation, harness.conversations.transcript(conversation))


def _listed(harness: Harness, conversation: Conversation) -> dict[str, Any]:
    """Return the summary of a conversation with its first words."""
    return {**_summary(harness, conversation), "begins": _first_words(harness, conversation)}


def _first_words(harness: Harness, conversation: Conversation) -> str:
    """Return the beginning of the first message of a person, in one line."""
    entries = harness.conversations.transcript(conversation).page(FIRST_ENTRIES, after=None)
    said = (entry.message.text for entry in entries if entry.message.role == "user")
    return _cut(" ".join(next((text for text in said if text), "").split()), WORDS_CHARACTERS_MAX)


def _cut(text: str, characters_max: int | None) -> str:
    if characters_max is None or len(text) <= characters_max:
        return text
    return f"{text[: characters_max - 1].rstrip()}…"


def _print_new(harness: Harness, made: Conversation, verb: str, *, as_json: bool) -> None:
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
        who = f"{who} of the entries up to {entry.covers}"
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
    """Yield the lines of a file one by one, because all of them may not fit into memory."""
    from workspaces.errors import NotFound, Refused

    if file == "-":
        yield from input_lines()
        return
    try:
        with Path(file).open(encoding="utf-8") as stream:
            yield from stream
    except FileNotFoundError as error:
        raise NotFound("local file", file) from error
    except (
        OSError,
        ValueError,
    ) as error:  # ValueError: a NUL in the name, or bytes that are not UTF-8
        raise Refused("file", file, f"cannot be read: {error}") from error
