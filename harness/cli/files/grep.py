"""The command `harness grep`: find lines of a workspace by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import HomeOption, JsonOption, opened, print_json, print_styled

if TYPE_CHECKING:
    from workspaces.workspace.workspace import Workspace

SHOWN_CHARACTERS_MAX = 500
"""Characters of a line that a person is shown. A longer line is cut: it is data, not text."""


def register(app: typer.Typer) -> None:
    app.command()(grep)


def grep(
    workspace: Annotated[
        str, typer.Argument(help="Name or id of a workspace.", metavar="WORKSPACE")
    ],
    pattern: Annotated[str, typer.Argument(help="A regular expression (Python's).")],
    path: Annotated[str | None, typer.Argument(help="Search only this file or directory.")] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Ignore the case of letters.")
    ] = False,
    fixed: Annotated[
        bool, typer.Option("--fixed-strings", "-F", help="Take the pattern as plain text.")
    ] = False,
    revision: Annotated[
        str, typer.Option("--revision", "-r", help="Search the state at this revision.")
    ] = "head",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the lines of a workspace that match a pattern. The exit code is 1 if none matches."""
    from workspaces.errors import Refused

    try:
        expression = re.compile(
            re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0
        )
    except re.error as error:
        raise Refused("pattern", pattern, f"is not a regular expression ({error})") from error
    with opened(home, as_json=as_json) as harness:
        place = harness.workspaces.get(workspace)
        matches = list(_lines(place, expression, path, revision))
    if as_json:
        print_json(
            [
                {"path": file, "line_number": number, "content": line}
                for file, number, line in matches
            ]
        )
    else:
        print_styled(part for match in matches for part in _styled(match, expression))
    return 0 if matches else 1


def _lines(
    place: Workspace, expression: re.Pattern[str], below: str | None, revision: str
) -> Iterator[tuple[str, int, str]]:
    from workspaces.errors import NotFound

    below = below.rstrip("/") if below else None
    names = [
        name
        for name in place.files(view=revision)
        if below is None or name == below or name.startswith(f"{below}/")
    ]
    if below is not None and not names:
        raise NotFound("file or directory", below)
    for name in names:
        try:
            data = place.read(name, view=revision).data
        except NotFound:  # another process deleted it since it was listed
            continue
        if b"\0" in data:  # a binary file
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if expression.search(line):
                yield name, number, line


def _styled(match: tuple[str, int, str], expression: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    name, number, line = match
    yield name, "magenta"
    yield ":", "dim"
    yield str(number), "green"
    yield ":", "dim"
    at = 0
    for hit in expression.finditer(line, 0, SHOWN_CHARACTERS_MAX):
        yield line[at : hit.start()], ""
        yield hit[0], "bold red"
        at = hit.end()
    is_long = len(line) > SHOWN_CHARACTERS_MAX
    yield line[at:SHOWN_CHARACTERS_MAX] + ("…" if is_long else "") + "\n", ""
