"""The commands `harness block`: the memory blocks of a user."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    complain,
    opened,
    print_json,
    print_styled,
    print_table,
    put,
    read_input,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.memory.blocks.block import Block, BlockPlace

block_app = typer.Typer(help="Memory blocks: core and archival.", no_args_is_help=True)

TypeArgument = Annotated[
    Literal["core", "archival"], typer.Argument(help="core or archival.", metavar="BLOCK")
]
BlockAgentOption = Annotated[
    str | None,
    typer.Option("--agent", "-a", help="The block of you with this agent; default: your own."),
]


def register(app: typer.Typer) -> None:
    app.add_typer(block_app, name="block")


@block_app.command("list")
def list_blocks(
    agent: BlockAgentOption = None, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """List the blocks that exist: your own, and those with each agent."""
    with opened(home, as_json=as_json) as harness:
        blocks = harness.blocks.list("all" if agent is None else "agent", agent)
        names = {record.id: record.name for record in harness.agents.list()}
    if as_json:
        print_json({"blocks": [block.as_json() for block in blocks]})
        return
    rows = (
        (
            block.type,
            block.scope if block.agent_id is None else names.get(block.agent_id, block.agent_id),
            f"{len(block.content):,}",
            block.updated_at[:19],
        )
        for block in blocks
    )
    print_table(("block", "scope", "characters", "updated (UTC)"), rows)


@block_app.command()
def show(
    block: TypeArgument,
    agent: BlockAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a block."""
    with opened(home, as_json=as_json) as harness:
        found = harness.blocks.get(harness.blocks.place(block, agent=agent))
    if as_json:
        print_json(found.as_json())
    elif found.content:
        put(f"{found.content}\n")


@block_app.command()
def edit(
    block: TypeArgument,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", "-t", help="The whole new text; - reads standard input. Default: your editor."
        ),
    ] = None,
    agent: BlockAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a block. Without a text, open it in your editor ($VISUAL, or $EDITOR).

    The block is replaced only if nobody else changed it meanwhile. If somebody did, your text is kept in a
    file, and nothing is overwritten.
    """
    with opened(home, as_json=as_json) as harness:
        place = harness.blocks.place(block, agent=agent)
        before = harness.blocks.find(place)
        if text is None:
            written = _edited(harness, place, before)
        else:
            content = as_text(read_input()) if text == "-" else text
            written = _put(harness, place, before, content)
    if as_json:
        print_json(written.as_json())
    else:
        complain(f"{block}: {len(written.content):,} characters, updated {written.updated_at}\n")


@block_app.command()
def history(
    block: TypeArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of revisions.")
    ] = 50,
    agent: BlockAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the revisions of a block, newest first. A deleted block still has its revisions."""
    from harness.presentation.file_json import revision_document

    with opened(home, as_json=as_json) as harness:
        place = harness.blocks.place(block, agent=agent)
        harness.blocks.find(place)  # edits by hand are committed
        revisions = harness.blocks.workspace(place).log(place.path, limit=limit)
    if as_json:
        print_json({"revisions": [revision_document(one) for one in revisions]})
        return
    print_styled(
        part
        for one in revisions
        for part in (
            (one.id[:10], "yellow"),
            (f" {one.at[:19]} ", ""),
            (f"{one.author} ", "dim"),
            (f"{one.subject}\n", ""),
        )
    )


@block_app.command()
def restore(
    block: TypeArgument,
    revision: Annotated[
        str, typer.Argument(help="Id of a revision, as `harness block history` shows it.")
    ],
    agent: BlockAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a block to its text at a revision. The present text stays in the history."""
    with opened(home, as_json=as_json) as harness:
        place = harness.blocks.place(block, agent=agent)
        restored = harness.blocks.restore(
            place, revision, by=harness.rooms.principal.author("api")
        ).block
    if as_json:
        print_json(restored.as_json())
    else:
        complain(f"{block}: restored, updated {restored.updated_at}\n")


def _put(harness: Harness, place: BlockPlace, before: Block | None, content: str) -> Block:
    from harness.memory.blocks.condition import BlockCondition
    from workspaces.conditions import ABSENT

    condition = BlockCondition(ABSENT if before is None else before.updated_at)
    by = harness.rooms.principal.author("api")
    return harness.blocks.put(place, content, condition, by=by).block


def _edited(harness: Harness, place: BlockPlace, before: Block | None) -> Block:
    """Return the block after the person has edited it. What could not be saved is kept in its file."""
    from workspaces.errors import Failure, Refused

    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not editor or not sys.stdin.isatty():
        rule = "needs a terminal and $EDITOR"
        remedy = "name the text: `--text TEXT`, or `--text -` for standard input"
        raise Refused("edit", None, rule, remedy=remedy)
    handle, name = tempfile.mkstemp(prefix=f"{place.type}-", suffix=".md")
    file = Path(name)
    with os.fdopen(handle, "w") as stream:
        stream.write(f"{before.content}\n" if before is not None else "")
    ended = subprocess.run([*editor, str(file)], check=False)
    if ended.returncode != 0:
        remedy = f"your text is in {file}"
        raise Refused("edit", None, f"the editor ended with {ended.returncode}", remedy=remedy)
    try:
        written = _put(harness, place, before, as_text(file.read_bytes()))
    except Failure as failure:
        failure.remedy = f"your text is in {file}; look at the block and edit it again"
        raise
    file.unlink()
    return written
