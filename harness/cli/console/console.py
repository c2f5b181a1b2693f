"""What all commands share: the home they work on, how they print, how they refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from workspaces.invisible_characters import STEERING, visible

if TYPE_CHECKING:
    from rich.console import Console

    from harness import Harness
    from harness.sync.record_deletion import DeletionReport
    from workspaces.errors import Failure


def path(stated: str) -> Path:
    """A variable that is not set is an empty argument, and no path: `Path` takes it for this directory."""
    if not stated:
        raise typer.BadParameter("it is empty; `.` is the directory you are in")
    return Path(stated)


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", parser=path, help="The home to work on (else HARNESS_HOME, else ~/.harness)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="JSON",
        help="Any part of its configuration, as a merge patch: null removes a key.",
    ),
]

INPUT_BYTES_MAX = 65 * 2**20
"""More than any file or message may have: endless input is refused, not swallowed."""


class Shown:
    """What the running command was asked for, so that an error can be shown in the same way."""

    home: Path | None = None
    account: str | None = None
    as_json: bool = False
    field: str | None = None
    """The one field of the JSON document to print."""


@contextmanager
def opened(home: Path | None, *, as_json: bool = False) -> Generator[Harness]:
    """The harness on the home that was named, here or before the command."""
    from harness import Harness

    Shown.as_json = as_json
    with Harness.open(home or Shown.home, account=Shown.account) as harness:
        yield harness


def out() -> Console:
    """Results, for people. Programs ask for `--json`."""
    return _console()


def notes() -> Console:
    """Messages and progress: standard error, so that results can be piped."""
    return _console(stderr=True)


def put(text: str) -> None:
    """Print to standard output: to a terminal what is visible, into a pipe the text unchanged."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def say(line: str) -> None:
    put(f"{line}\n")


def complain(text: str) -> None:
    """Print to standard error, as `put` does."""
    sys.stderr.write(visible(text) if sys.stderr.isatty() else text)


def wipe_line() -> None:
    """Take the last line of a terminal back."""
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def escaped(text: str) -> str:
    """Return what somebody else wrote so that it can stand between styles in square brackets."""
    from rich.markup import escape

    return escape(text)


def _console(**options: Any) -> Console:
    """A console whose own styles steer the terminal, and nothing in the text that it is given."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(visible(one.text), one.style)

    return Plain(highlight=False, soft_wrap=True, emoji=False, **options)


def read_input() -> bytes:
    """Standard input, to its end."""
    return _input().read(INPUT_BYTES_MAX)


def input_lines() -> Iterator[str]:
    """Standard input, line by line. What else Unicode calls the end of a line is text here, as in JSON."""
    return map(as_text, _input())


def _input() -> BinaryIO:
    from workspaces.errors import Refused

    if not sys.stdin:
        raise Refused("standard input", None, "is closed")
    return sys.stdin.buffer


def as_text(data: bytes) -> str:
    from workspaces.errors import Refused

    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused("standard input", data[:40], "is not UTF-8 text") from error


def as_config(stated: str | None, **options: object) -> dict[str, Any]:
    """The configuration that `--config` and the options with a name of their own make together."""
    from workspaces.accounts.record_catalog import merge_patch
    from workspaces.errors import Refused

    try:
        patch: Any = json.loads(stated) if stated is not None else {}
    except (ValueError, RecursionError) as error:
        raise Refused("config", stated, f"is not JSON: {error}") from error
    if not isinstance(patch, dict):
        raise Refused("config", stated, "must be an object")
    named = {key: value for key, value in options.items() if value is not None}
    return merge_patch(cast(dict[str, Any], patch), named)


def print_json(document: object) -> None:
    """Print one document, or the field of it that `--field` names. Bytes that are no text are escaped."""
    if Shown.field is None:
        _print_document(document)
        return
    value = _field(document, Shown.field)
    if isinstance(value, str):
        put(value + "\n")
    else:
        _print_document(value)


def print_error(document: object) -> None:
    """Print the document of a failure, whole."""
    _print_document(document)


def _print_document(document: object) -> None:
    text = json.dumps(document, ensure_ascii=not _takes_unicode(), indent=2)
    text = STEERING.sub(_in_json, text)
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")


def _field(document: Any, name: str) -> Any:
    """Return the value at a dotted name: keys of objects, positions in lists.

    Raises: Refused if the document has no such field.
    """
    from workspaces.errors import Refused

    value = document
    for part in name.split("."):
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            names = cast(dict[str, Any], value) if isinstance(value, dict) else {}
            remedy = f"the fields here are: {', '.join(names)}" if names else None
            raise Refused("--field", name, f"is not there: no {part!r}", remedy=remedy) from error
    return value


def print_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """A record of names and values, one a line; what is nested is shown as JSON."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record), default=0)
    console = out()
    for name, value in record.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"{name:<{width}}", markup=False, style="bold", end="  ")
        console.print(shown, markup=False)


def print_gone(gone: DeletionReport, *, as_json: bool) -> None:
    """What a deletion took with it."""
    if as_json:
        print_json(gone.as_json())
        return
    put(f"deleted: {gone.name} ({gone.id})\n")
    for place in gone.trash:
        put(f"  files and history lie in {place}\n")
    if gone.conversations:
        put(f"  with {gone.conversations} conversations\n")
    for key_id in gone.keys:
        put(f"  revoked: {key_id}\n")


def print_styled(parts: Iterable[tuple[str, str]]) -> None:
    """Text and its style. Into a pipe goes the text alone, unchanged; on a terminal it goes through the
    program that PAGER names, if it names one."""
    console = out()
    if not console.is_terminal:
        put("".join(text for text, _ in parts))
        return
    from rich.text import Text

    told = Text.assemble(*((visible(text), style) for text, style in parts))
    with _paged(console) as shown:
        shown.print(told, end="")


@contextmanager
def _paged(console: Console) -> Generator[Console]:
    command = shlex.split(os.environ.get("PAGER", ""))
    if not (command and shutil.which(command[0])):
        yield console
        return
    environment = {"LESS": "FRX", **os.environ}  # colours; what fits on the screen needs no key
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        try:
            yield _console(file=pager.stdin, force_terminal=True)
            pager.communicate()
        except BrokenPipeError:  # the reader has seen enough
            pager.communicate()


def has_colours() -> bool:
    """Whether what is printed is seen in colours; else marks must do."""
    console = out()
    return console.is_terminal and not console.no_color and console.color_system is not None


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Columns as wide as their widest cell, never folded: what is printed can be cut and piped."""
    from rich.cells import cell_len

    lines = [tuple(map(visible, row)) for row in (headings, *rows)]
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
    remedy = failure.remedy or _where_listed(failure)
    if Shown.as_json and not is_one_of_many:
        error = {"code": failure.code, "message": str(failure), "remedy": remedy}
        field = getattr(failure, "field", None)
        print_error({"error": {**error, **({"field": field} if field else {})}})
    complain(f"error ({failure.code}): {failure}\n")
    if remedy:
        complain(f"  → {remedy}\n")


_LISTED = {"account", "agent", "conversation", "key", "sandbox", "user", "workspace"}
"""What there are commands for, of these names."""


def _where_listed(failure: Failure) -> str | None:
    from workspaces.errors import NotFound

    if not isinstance(failure, NotFound) or failure.what not in _LISTED:
        return None
    return f"`harness {failure.what} list` lists them"


def _in_json(found: re.Match[str]) -> str:
    """Return the character as JSON may spell it: the document is the same."""
    units = found[0].encode("utf-16-be")
    return "".join(
        f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)
    )


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")
