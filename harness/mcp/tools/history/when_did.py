"""The tool `when_did`: when lines with certain words came and went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from workspaces.errors import Refused
from workspaces.file import as_bytes
from workspaces.history.history import LOG_ENTRIES_MAX
from workspaces.history.log import RevisionChanges

TEXT_CHARACTERS_MAX = 500


class WhenDidArguments(ToolInput):
    words: Annotated[str, Field(min_length=1, max_length=500)]
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    workspace: str | None = None


class LineLife(ToolOutput):
    path: str
    text: str
    added: str
    removed: str | None
    """Null: the line is still there."""


class WhenDidOutput(ToolOutput):
    result: list[LineLife]
    left_out: int


def _when_did(arguments: WhenDidArguments, call: McpCall) -> WhenDidOutput:
    words = arguments.words.casefold().split()
    if not words or b"\0" in as_bytes(arguments.words):
        raise Refused("words", arguments.words, "must be words of a text")
    workspace = call.caller.workspace(arguments.workspace)
    workspace.edits.commit()
    rare = max(words, key=len)
    # git knows upper and lower case of ASCII alone; with another word everything is read
    changes = workspace.history.changes(
        limit=LOG_ENTRIES_MAX, holding=rare if rare.isascii() else None
    )
    lives = _lives(changes, words)
    kept = fitting(lives[: arguments.limit])
    return WhenDidOutput(result=kept, left_out=len(lives) - len(kept))


def _lives(changes: list[RevisionChanges], words: list[str]) -> list[LineLife]:
    """Return when each line that holds all words came and went, the newest first."""
    lives: list[LineLife] = []
    open_lives: dict[tuple[str, str], list[int]] = {}
    for one in reversed(changes):  # from the oldest on
        for sign, path, text in _lines(one):
            if not all(word in text.casefold() for word in words):
                continue
            if sign == "+":
                open_lives.setdefault((path, text), []).append(len(lives))
                lives.append(
                    LineLife(
                        path=path,
                        text=text[:TEXT_CHARACTERS_MAX],
                        added=one.revision.at,
                        removed=None,
                    )
                )
            elif begun := open_lives.get((path, text)):
                at = begun.pop()
                lives[at] = lives[at].model_copy(update={"removed": one.revision.at})
    return lives[::-1]


def _lines(change: RevisionChanges) -> Iterator[tuple[str, str, str]]:
    """Yield the sign, path and text of each removed and added line; in a file the removed ones come first."""
    for file in change.files:
        lines = file.patch.split("\n")
        for sign in "-+":
            yield from ((sign, file.path, line[1:]) for line in lines if line.startswith(sign))


def _text(output: WhenDidOutput) -> str:
    if not output.result:
        return "No line with these words was ever there."
    lines = [
        f"{life.path}: {life.text}\n  added {life.added}, "
        f"{f'removed {life.removed}' if life.removed else 'still there'}"
        for life in output.result
    ]
    left = (
        [f"({output.left_out} older ones are left out: raise `limit`)"] if output.left_out else []
    )
    return "\n".join([*lines, *left])


WHEN_DID = McpTool(
    "when_did",
    "Say when words came and went",
    input=WhenDidArguments,
    output=WhenDidOutput,
    run=_when_did,
    text=_text,
    hints=READS,
)
