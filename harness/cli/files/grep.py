"""`harness grep`: finding lines in a workspace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import HomeOption, JsonOption, opened, print_json, print_styled

if TYPE_CHECKING:
    from workspaces.workspace.workspace import Workspace

SHOWN_CHARACTERS_MAX = 500
"""Of a line that a person is shown: a longer one is data."""


def register(app: typer.Typer) -> None:
    app.command()(grep)


def grep(
    workspace: Annotated[str, typer.Argument(help="A workspace: name or id.", metavar="WORKSPACE")],
    pattern: Annotated[str, typer.Argument(help="A regular expression (Python's).")],
    path: Annotated[
        str | None, typer.Argument(help="Only this file, or what lies below this directory.")
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Whether letters are small or capital.")
    ] = False,
    fixed: Annotated[
        bool, typer.Option("--fixed-strings", "-F", help="The pattern is a text, no expression.")
    ] = False,
    revision: Annotated[
        str, typer.Option("--revision", "-r", help="As it was at this revision.")
    ] = "head",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print every line of a workspace that holds the pattern. Exit code 1 when none does."""
    from workspaces.errors import Refused

    try:
        wanted = re.compile(
            re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0
        )
    except re.error as error:
        raise Refused("pattern", pattern, f"is no regular expression ({error})") from error
    with opened(home, as_json=as_json) as harness:
        place = harness.workspaces.get(workspace)
        found = list(_lines(place, wanted, path, revision))
    if as_json:
        print_json(
            [{"path": file, "line_number": number, "content": line} for file, number, line in found]
        )
    else:
        print_styled(part for hit in found for part in _styled(hit, wanted))
    return 0 if found else 1


def _lines(
    place: Workspace, wanted: re.Pattern[str], below: str | None, revision: str
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
        except NotFound:  # deleted since it was listed
            continue
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if wanted.search(line):
                yield name, number, line


def _styled(hit: tuple[str, int, str], wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    name, number, line = hit
    yield name, "magenta"
    yield ":", "dim"
    yield str(number), "green"
    yield ":", "dim"
    at = 0
    for found in wanted.finditer(line, 0, SHOWN_CHARACTERS_MAX):
        yield line[at : found.start()], ""
        yield found[0], "bold red"
        at = found.end()
    is_long = len(line) > SHOWN_CHARACTERS_MAX
    yield line[at:SHOWN_CHARACTERS_MAX] + ("…" if is_long else "") + "\n", ""
