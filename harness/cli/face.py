"""What all commands share: the home they work on, how they print, how they refuse."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from harness import Harness
    from workspaces.errors import Failure

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The home to work on (else HARNESS_HOME, else ~/.harness)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


INPUT_BYTES_MAX = 65 * 2**20
"""More than any file or message may have: endless input is refused, not swallowed."""


class Shown:
    """What the running command was asked for, so that an error can be shown in the same way."""

    home: Path | None = None
    as_json: bool = False


@contextmanager
def opened(home: Path | None, *, as_json: bool = False) -> Generator[Harness]:
    """The harness on the home that was named, here or before the command."""
    from harness import Harness

    Shown.as_json = as_json
    with Harness.open(home or Shown.home) as harness:
        yield harness


def out() -> Console:
    """Results, for people. Programs ask for `--json`."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def notes() -> Console:
    """Messages and progress: standard error, so that results can be piped."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def read_input() -> bytes:
    """Standard input, to its end."""
    from workspaces.errors import Refused

    if not sys.stdin:
        raise Refused("standard input", None, "is closed")
    return sys.stdin.buffer.read(INPUT_BYTES_MAX)


def as_text(data: bytes) -> str:
    from workspaces.errors import Refused

    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused("standard input", data[:40], "is not UTF-8 text") from error


def print_json(document: object) -> None:
    """One document. What is no text in it, as a file name can be, is escaped."""
    text = json.dumps(document, ensure_ascii=not _takes_unicode(), indent=2)
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")


def print_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """A record of names and values, one a line; what is nested is shown as JSON."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record), default=0)
    console = out()
    for name, value in record.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"[bold]{name:<{width}}[/]  ", end="")
        console.print(shown, markup=False)


def visible(text: str) -> str:
    """With control characters spelled out: what someone wrote into a file steers no terminal."""
    return "".join(
        f"\\x{ord(c):02x}" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c
        for c in text
    )


def print_styled(parts: Iterable[tuple[str, str]]) -> None:
    """Text and its style. Into a pipe goes the text alone, unchanged."""
    console = out()
    if not console.is_terminal:
        sys.stdout.write("".join(text for text, _ in parts))
        return
    from rich.text import Text

    console.print(Text.assemble(*((visible(text), style) for text, style in parts)), end="")


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Columns as wide as their widest cell, never folded: what is printed can be cut and piped."""
    from rich.cells import cell_len

    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*lines, strict=True)]
    console = out()
    for number, line in enumerate(lines):
        cells = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)
        )
        console.print("  ".join(cells).rstrip(), markup=False, style="dim" if number == 0 else "")


def show_failure(failure: Failure, *, is_one_of_many: bool = False) -> None:
    """The table of this face: every refusal is a sentence, its code, and what to do about it.

    `is_one_of_many`: the document of the command tells it too."""
    if Shown.as_json and not is_one_of_many:
        error = {"code": failure.code, "message": str(failure), "remedy": failure.remedy}
        field = getattr(failure, "field", None)
        print_json({"error": {**error, **({"field": field} if field else {})}})
    sys.stderr.write(f"error ({failure.code}): {failure}\n")
    if failure.remedy:
        sys.stderr.write(f"  → {failure.remedy}\n")


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")
