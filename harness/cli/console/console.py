"""Helpers that all commands share: open the home, read input, print results and print errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from workspaces.invisible_characters import STEERING, visible

if TYPE_CHECKING:
    from rich.console import Console

    from harness import Harness
    from harness.bootstrap.local_files import LocalFiles
    from harness.sync.record_deletion import DeletionReport
    from workspaces.accounts.principal import Principal
    from workspaces.clock import Clock
    from workspaces.errors import Failure
    from workspaces.home.layout import Home
    from workspaces.ids import WorkspaceId
    from workspaces.workspace.workspace import Workspace


def path(text: str) -> Path:
    """Return the path that an argument names.

    Raises:
        BadParameter: the argument is empty, as when a shell variable is not set. `Path` would take it for
            the current directory.
    """
    if not text:
        raise typer.BadParameter("the path is empty; use `.` for the current directory")
    return Path(text)


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", parser=path, help="The home directory; default: HARNESS_HOME, or ~/.harness."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="JSON",
        help="Configuration as a JSON merge patch; null removes a key.",
    ),
]

INPUT_BYTES_MAX = 65 * 2**20
"""More bytes than any file or message may have, so that endless input is refused and not read to memory."""


class Shown:
    """The options of the running command that decide how an error is shown."""

    home: Path | None = None
    account: str | None = None
    as_json: bool = False
    field: str | None = None
    """The one field of the JSON document to print."""


@contextmanager
def opened(home: Path | None, *, as_json: bool = False, **more: Any) -> Generator[Harness]:
    """Open the harness on the home that `--home` names, after or before the command.

    `more` goes to `Harness.open`.
    """
    from harness import Harness

    Shown.as_json = as_json
    with Harness.open(home or Shown.home, account=Shown.account, **more) as harness:
        yield harness


class OpenedFiles:
    """The workspaces of a home, for a command that reads or writes files. See `opened_files`."""

    def __init__(self, home: Home, local: LocalFiles | None, whole: Callable[[], Harness]) -> None:
        """`whole` opens the whole home. It is called for what `local` cannot do."""
        self.home = home
        self._local = local
        self.whole = whole

    @property
    def principal(self) -> Principal:
        return self._local.principal if self._local else self.whole().rooms.principal

    @property
    def clock(self) -> Clock:
        return self._local.clock if self._local else self.whole().rooms.clock

    def get(self, reference: str) -> Workspace:
        """Return the workspace with this id or name.

        Raises: NotFound. Unavailable if its files cannot be read.
        """
        workspace = self._local.get(reference) if self._local else None
        return workspace or self.whole().workspaces.get(reference)

    def stored(self) -> Sequence[Mapping[str, Any]]:
        """Return the records of the workspaces that are not private, as they are stored, ordered by name."""
        if self._local is None:
            return [record.as_json() for record in self.whole().workspaces.list()]
        return [record.value for record in self._local.stored()]

    def list(self) -> list[Workspace]:
        """Return the workspaces that are not private, ordered by name."""
        workspaces = self._local.list() if self._local else None
        if workspaces is None:
            places = self.whole().workspaces
            return [places.open(record) for record in places.list()]
        return workspaces

    def close(self) -> None:
        """Let the whole home pack the histories that are due for it."""
        if self._local is not None:
            untidy = self._local.untidy()
            self._local.close()
            if untidy:
                self._hand_over(untidy)

    def _hand_over(self, untidy: list[WorkspaceId]) -> None:
        """Open workspaces in the whole home, which enqueues the packing of their histories when it closes."""
        from workspaces.errors import Failure

        with suppress(Failure):  # any failure: the next command tries it again
            for workspace_id in untidy:
                self.whole().workspaces.get(workspace_id)


@contextmanager
def opened_files(home: Path | None, *, as_json: bool = False) -> Generator[OpenedFiles]:
    """Open the workspaces of the home, as `opened` does. A home of this machine alone is not opened whole."""
    from harness.bootstrap.local_files import open_local_files
    from harness.runtime.settings import read_settings

    Shown.as_json = as_json
    with ExitStack() as stack:
        whole = cache(lambda: stack.enter_context(opened(home, as_json=as_json)))
        settings = read_settings(home or Shown.home)
        files = OpenedFiles(settings.home, open_local_files(settings, Shown.account), whole)
        try:
            yield files
        finally:
            files.close()


def out() -> Console:
    """Return the console for results that people read. Programs use `--json`."""
    return _console()


def notes() -> Console:
    """Return the console for messages and progress: standard error, so that results can be piped."""
    return _console(stderr=True)


def put(text: str) -> None:
    """Print to standard output. A terminal gets the visible characters only, a pipe the unchanged text."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def say(line: str) -> None:
    put(f"{line}\n")


def complain(text: str) -> None:
    """Print to standard error, as `put` does."""
    sys.stderr.write(visible(text) if sys.stderr.isatty() else text)


def remark(text: str) -> None:
    """Print a line to standard error, dim on a terminal that shows styles."""
    is_styled = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if is_styled and not os.environ.get("NO_COLOR"):
        sys.stderr.write(f"\x1b[2m{visible(text)}\x1b[0m\n")
    else:
        complain(f"{text}\n")


def erase_line() -> None:
    """Erase the last line of the terminal."""
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def escaped(text: str) -> str:
    """Escape text of other authors so that it can be printed between styles in square brackets."""
    from rich.markup import escape

    return escape(text)


def _console(**options: Any) -> Console:
    """Return a console that prints its own styles and removes control sequences from the text."""
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
    """Read standard input to its end, or to `INPUT_BYTES_MAX`."""
    return _input().read(INPUT_BYTES_MAX)


def input_lines() -> Iterator[str]:
    """Read standard input line by line.

    Only a newline ends a line. Other line ends of Unicode are text, as in JSON.
    """
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


def as_config(text: str | None, **options: object) -> dict[str, Any]:
    """Return the configuration of `--config`, overridden by the options that have a name of their own."""
    from workspaces.accounts.record_catalog import merge_patch
    from workspaces.errors import Refused

    try:
        patch: Any = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as error:
        raise Refused("config", text, f"is not JSON: {error}") from error
    if not isinstance(patch, dict):
        raise Refused("config", text, "must be an object")
    named = {key: value for key, value in options.items() if value is not None}
    return merge_patch(cast(dict[str, Any], patch), named)


def print_json(document: object) -> None:
    """Print one document, or the field of it that `--field` names. Bytes that are no text are escaped."""
    if Shown.field is None:
        print_document(document)
        return
    value = _field(document, Shown.field)
    if isinstance(value, str):
        put(value + "\n")
    else:
        print_document(value)


def print_document(document: object) -> None:
    """Print one document, whole. Failures are printed so, whatever `--field` names."""
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
    """Print a record, one name and value per line. Nested values are shown as JSON."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record), default=0)
    console = out()
    for name, value in record.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"{name:<{width}}", markup=False, style="bold", end="  ")
        console.print(shown, markup=False)


def print_deleted(report: DeletionReport, *, as_json: bool) -> None:
    """Print the deleted record, and what was deleted with it."""
    if as_json:
        print_json(report.as_json())
        return
    put(f"deleted: {report.name} ({report.id})\n")
    for directory in report.trash:
        put(f"  files and history were moved to {directory}\n")
    if report.conversations:
        put(f"  deleted with it: {report.conversations} conversations\n")
    if report.runs:
        put(f"  deleted with it: {report.runs} runs\n")
    for key_id in report.keys:
        put(f"  revoked: {key_id}\n")


def print_styled(parts: Iterable[tuple[str, str]]) -> None:
    """Print pairs of text and style.

    A pipe gets the unchanged text without styles. A terminal gets it through the program that PAGER names,
    if it is set.
    """
    if _is_pipe():
        put("".join(text for text, _ in parts))
        return
    console = out()
    if not console.is_terminal:
        put("".join(text for text, _ in parts))
        return
    from rich.text import Text

    styled = Text.assemble(*((visible(text), style) for text, style in parts))
    with _paged(console) as pager:
        pager.print(styled, end="")


@contextmanager
def _paged(console: Console) -> Generator[Console]:
    command = shlex.split(os.environ.get("PAGER", ""))
    if not (command and shutil.which(command[0])):
        yield console
        return
    environment = {
        "LESS": "FRX",
        **os.environ,
    }  # show colours; end at once if the text fits on the screen
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        try:
            yield _console(file=pager.stdin, force_terminal=True)
            pager.communicate()
        except BrokenPipeError:  # the reader has seen enough
            pager.communicate()


def has_colours() -> bool:
    """Return True if the output shows colours. Otherwise differences need marks."""
    console = out()
    return console.is_terminal and not console.no_color and console.color_system is not None


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table whose columns are as wide as their widest cell.

    Cells are never folded, so that the output can be cut and piped.
    """
    lines = [tuple(map(visible, row)) for row in (headings, *rows)]
    widths = [max(map(_columns, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            cell + " " * (width - _columns(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    if _is_pipe():
        put("".join(f"{line}\n" for line in shown))
        return
    console = out()
    for number, line in enumerate(shown):
        console.print(line, markup=False, style="dim" if number == 0 else "")


def _columns(text: str) -> int:
    """Return the columns that a terminal needs for a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_pipe() -> bool:
    """Return True if the output shows no styles for certain, so that it needs no library for them."""
    return not sys.stdout.isatty() and not _STYLES_FORCED & os.environ.keys()


_STYLES_FORCED = {"FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS"}
"""Variables by which a library for styles takes a pipe for a terminal."""


def show_failure(failure: Failure, *, is_one_of_many: bool = False) -> None:
    """Print an error: its code, a sentence, and the remedy.

    `is_one_of_many`: the JSON document of the command holds the error too, so none is printed here.
    """
    from workspaces.errors import LinesChanged

    remedy = failure.remedy or _where_listed(failure)
    lines = [line.as_json() for line in failure.lines] if isinstance(failure, LinesChanged) else []
    if Shown.as_json and not is_one_of_many:
        error = {"code": failure.code, "message": str(failure), "remedy": remedy}
        field = getattr(failure, "field", None)
        more = {**({"field": field} if field else {}), **({"lines": lines} if lines else {})}
        print_document({"error": {**error, **more}})
    complain(f"error ({failure.code}): {failure}\n")
    for line in lines:
        place = line["path"] if line["line"] is None else f"{line['path']}:{line['line']}"
        complain(f"  {place}  {line['text']}\n")
    if remedy:
        complain(f"  → {remedy}\n")


_LISTED = {"account", "agent", "conversation", "key", "sandbox", "user", "workspace"}
"""The kinds of records that have a command of the same name, with a `list`."""


def _where_listed(failure: Failure) -> str | None:
    from workspaces.errors import NotFound

    if not isinstance(failure, NotFound):
        return None
    if failure.what == "file":
        return "`harness ls WORKSPACE` lists them"
    return f"`harness {failure.what} list` lists them" if failure.what in _LISTED else None


def _in_json(character: re.Match[str]) -> str:
    """Return the character as a JSON escape. The document means the same."""
    units = character[0].encode("utf-16-be")
    return "".join(
        f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)
    )


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")
