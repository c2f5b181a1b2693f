"""The command `harness resource`: memories that memorize stored, listed, shown, forgotten."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    opened,
    print_json,
    print_table,
    put,
)

CONTENT_CHARACTERS = 60

app = typer.Typer(
    help="Memories with their proof, by every filter.",
    no_args_is_help=True,
)

MemoryArgument = Annotated[str, typer.Argument(help="Id or key of the memory.", metavar="ID")]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="resource")


@app.command("list")
def list_(
    q: Annotated[str | None, typer.Option("--query", "-q", help="Words of the memory.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="Only with this tag.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="codex, claude-code, claude-desktop or harness.")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Only of this directory and those below.")
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    after: Annotated[str | None, typer.Option(help="Only if changed on this day or later.")] = None,
    before: Annotated[str | None, typer.Option(help="Only if changed before this day.")] = None,
    sort: Annotated[
        str, typer.Option(help="updated_at, created_at or confidence; `-` turns it around.")
    ] = "-updated_at",
    page: Annotated[int, typer.Option(min=1, help="The page.")] = 1,
    per_page: Annotated[int, typer.Option(min=1, max=100, help="Memories on a page.")] = 25,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List memories, those that changed last first."""
    from harness.memorize.memorize_request import ResourceListRequest
    from workspaces.validation import parse

    stated: dict[str, Any] = {
        "q": q,
        "tags": tag or [],
        "provider": provider,
        "project": project,
        "conversation_id": conversation,
        "updated_after": after,
        "updated_before": before,
        "sort": sort,
        "page": page,
        "per_page": per_page,
    }
    with opened(home, as_json=as_json) as harness:
        found = harness.rooms.memorizer.memories.list(parse(ResourceListRequest, stated))
    if as_json:
        print_json(found.as_json())
        return
    rows = (
        (
            one.fact.id,
            one.fact.value[:CONTENT_CHARACTERS].replace("\n", " "),
            ", ".join(one.tags),
            one.origin.provider,
            one.fact.updated_at[:16].replace("T", " "),
        )
        for one in found.memories
    )
    print_table(("ID", "MEMORY", "TAGS", "FROM", "UPDATED"), rows)


@app.command("get")
def get(memory: MemoryArgument, home: HomeOption = None) -> None:
    """Show a memory as JSON."""
    with opened(home, as_json=True) as harness:
        found = harness.rooms.memorizer.memories.get(memory)
    print_json(found.as_json())


@app.command("delete")
def delete(memory: MemoryArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Forget a memory. Its conversation stays in the archive."""
    with opened(home, as_json=as_json) as harness:
        author = harness.rooms.principal.author("api")
        gone = harness.rooms.memorizer.memories.delete(memory, author)
    if as_json:
        print_json({"deleted": True})
    else:
        put(f"Forgot {gone.fact.key}.\n")


@app.command("schema")
def schema(
    operation: Annotated[
        Literal["memorize", "list", "get", "delete"], typer.Argument(help="The operation.")
    ],
) -> None:
    """Print the JSON schema that the input of an operation is checked with."""
    from harness.memorize.memorize_request import SchemaRequest, schema_of_operation

    print_json(schema_of_operation(SchemaRequest(operation=operation)))
