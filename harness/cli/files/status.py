"""The command `harness status`: an overview of a home on one screen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from harness.cli.console.call_printer import folded
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    print_json,
    print_styled,
)

if TYPE_CHECKING:
    from harness.presentation.status import Section

_MARKS = {
    "ok": ("✓", "green"),
    "pending": ("•", "yellow"),
    "due": ("!", "bold yellow"),
    "merged": ("≈", "yellow"),
    "conflict": ("✗", "bold red"),
    "problem": ("✗", "red"),
}


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show pending work, conflicts, problems and due tasks.

    The last change of each workspace is shown too. The command changes no file. `harness doctor` checks the
    machine.
    """
    from harness.presentation.status import status as sections_of

    with opened(home, as_json=as_json) as harness:
        sections = sections_of(harness)
        harness.tell_learning()
    if as_json:
        print_json({section.name: _document(section) for section in sections})
    else:
        print_styled(part for section in sections for part in _styled(section))


def _document(section: Section) -> list[dict[str, object]]:
    return [
        {
            "subject": line.subject,
            "state": line.state,
            "told": line.told,
            "remedy": line.remedy,
            **line.facts,
        }
        for line in section.lines
    ]


def _styled(section: Section) -> Iterator[tuple[str, str]]:
    if not section.lines:
        return
    yield f"{section.name}\n", "bold"
    width = max(len(line.subject) for line in section.lines)
    for line in section.lines:
        mark, style = _MARKS[line.state]
        yield f"  {mark} ", style
        yield f"{line.subject:<{width}}  ", "bold" if line.state == "ok" else ""
        yield f"{line.told}\n", "" if line.state == "ok" else style
        if line.call is not None:
            columns = notes().width if sys.stdout.isatty() else None
            for shown in folded(line.call.lines, " " * (width + 6), columns):
                yield f"{shown}\n", ""
        if line.remedy:
            yield f"    {'':<{width}}  → {line.remedy}\n", "dim"
