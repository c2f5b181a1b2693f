"""The command `harness memorize`: one durable fact, tied to the words of a conversation that prove it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    complain,
    opened,
    print_json,
    put,
    read_input,
)

AGENT = "HARNESS_AGENT_ID"


def register(into: typer.Typer) -> None:
    into.command("memorize")(memorize)


def memorize(
    conversation: Annotated[
        str, typer.Argument(help="Id of the conversation.", metavar="CONVERSATION")
    ],
    content: Annotated[str, typer.Argument(help="The fact; `-` reads it from standard input.")],
    quote: Annotated[
        list[str] | None,
        typer.Option("--quote", "-q", help="Words of the conversation that prove it."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="The position of the message to cite.")
    ] = None,
    grounding: Annotated[
        list[str] | None, typer.Option("--grounding", help="A grounding as a JSON object.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", "-t", help="A tag.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key is the same memory.")
    ] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="From 0 to 1.")] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help="A JSON object of your own.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="The workspace. Default: the agent's own."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", envvar=AGENT, help="Name or id of the agent.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace words that a person has edited.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memorize a fact with its proof. The same call again changes nothing.

    `harness conversations local list` shows the conversations, and `local show` their positions. A quote is
    located in the conversation; without an agent the fact goes to the home's default workspace.
    """
    from harness.memorize.local.local_conversations import local_conversations
    from harness.memorize.memorize_request import MemorizeRequest
    from workspaces.validation import parse

    groundings: list[Any] = [{"quote": one} for one in quote or ()]
    if at is not None:
        groundings = [{"message_position": at, **one} for one in groundings or [{}]]
    groundings += [_object("--grounding", one) for one in grounding or ()]
    stated: dict[str, Any] = {
        "conversation_id": conversation,
        "content": as_text(read_input()) if content == "-" else content,
        "tags": tag or [],
        "confidence": confidence,
        "memory_key": key,
        "metadata": None if metadata is None else _object("--metadata", metadata),
        "groundings": groundings,
        "workspace": workspace,
        "agent_id": agent or None,
        "overwrite": overwrite,
    }
    with opened(home, as_json=as_json) as harness:
        memorizer, author = harness.rooms.memorizer, harness.rooms.principal.author("memorize")
        request = parse(MemorizeRequest, stated)
        done = memorizer.memorize(request, by=author, local=local_conversations(harness.settings))
    if as_json:
        print_json(done.as_json())
        return
    put(f"{done.status.capitalize()} {done.memory.fact.key} in {done.memory.workspace}.\n")
    for warning in done.warnings:
        complain(f"{warning}\n")


def _object(option: str, text: str) -> Any:
    """Return the JSON object of an option.

    Raises: Refused.
    """
    from workspaces.errors import Refused

    try:
        value = json.loads(text)
    except ValueError as error:
        raise Refused(option, text, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(option, text, "must be a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]
