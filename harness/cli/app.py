"""The `harness` command: its options for all commands, and errors as exit codes. `command_groups` lists the
commands.

Exit codes: 0 done · 1 refused, not found, conflict, unavailable · 2 wrong usage · 3 a bug · 130 interrupted
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.console.command_groups import GroupedCommands
from harness.cli.console.console import Shown, complain, path, print_document, say, show_failure

HELP = """Durable memory for LLM agents as plain Markdown files.

A workspace is a directory of Markdown files with a git history. An agent keeps its memory there, and
you read, edit and review it like any other files. To begin: harness chat
"""

app = typer.Typer(
    name="harness",
    cls=GroupedCommands,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        say(f"harness {version('workspace-harness')}")
        raise typer.Exit


@app.callback()
def _global(  # pyright: ignore[reportUnusedFunction]
    home: Annotated[
        Path | None,
        typer.Option("--home", parser=path, help="The home directory; default: HARNESS_HOME."),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account", help="The account to use; may stand anywhere. Default: the home's account."
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(
            "--field",
            metavar="NAME",
            help="Print one field of the JSON document, such as version or 0.revision, anywhere on the line.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    Shown.home = home
    Shown.account = account
    Shown.field = field


_STORAGE_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors of a disk, or of the file that standard output writes to. They are never a bug."""


ALLOCATIONS_PER_COLLECTION = 200_000
"""Allocations between two runs of the garbage collector. A short command makes fewer, and leaves no garbage
before it ends. By default 700: the collector then takes a sixth of its time. `harness up` sets its own."""


def main() -> None:
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
    _open_closed_streams()
    out: Any = sys.stdout
    if out.errors == "strict":
        out.reconfigure(errors="backslashreplace")  # show names that are not valid UTF-8 too
    sys.exit(_flushed(_run()))


def _flushed(code: int) -> int:
    """Flush standard output and return the exit code. An error of the flush at exit could not be caught."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        return _failed(error)
    return code


def _run() -> int:
    try:
        result = app(_global_options_first(sys.argv[1:]), standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        return _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (BrokenPipeError, SystemExit):  # typer and rich turn a BrokenPipeError into SystemExit
        return _end_without_reader()
    except Exception as error:  # noqa: BLE001 - this is the error table of the command line
        return _failed(error)
    return result if isinstance(result, int) else 0


def _global_options_first(arguments: list[str]) -> list[str]:
    """Return the arguments with `--account X` and `--field X` in front: they may stand anywhere.

    `--field` asks the command for JSON.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front, ours = list[str](), list[str]()
    rest = iter(arguments[:end])
    for argument in rest:
        name, has_value, _ = argument.partition("=")
        if name not in ("--account", "--field"):
            ours.append(argument)
            continue
        front += [argument] if has_value else [argument, *islice(rest, 1)]
    if any(one.startswith("--field") for one in front) and "--json" not in ours:
        ours.append("--json")
    return [*front, *ours, *arguments[end:]]


def _misused(error: typer.TyperException) -> int:
    error.message = error.message.replace("Value error, ", "")
    if "--json" in sys.argv:
        print_document({"error": {"code": "usage", "message": str(error), "remedy": None}})
    show = getattr(error, "show", None)  # only errors that know their command have it
    if callable(show):
        show()
    else:
        complain(f"error: {error}\n")
    return 2


def _failed(error: Exception) -> int:
    from workspaces.errors import Failure

    if isinstance(error, Failure):
        show_failure(error)
        return 1
    if isinstance(error, OSError) and error.errno in _STORAGE_FAILS:
        _discard_output()
        reason = error.strerror or str(error)
        complain(f"error (unavailable): cannot write: {reason}\n  → free some disk space\n")
        return 1
    if os.environ.get("HARNESS_TRACEBACK"):
        raise error
    if Shown.as_json:
        print_document({"error": {"code": "bug", "message": str(error), "remedy": None}})
    complain(
        f"error (bug): {type(error).__name__}: {error}\n"
        "  → This is a bug. Run again with HARNESS_TRACEBACK=1 to see where it happened.\n"
    )
    return 3


def _end_without_reader() -> int:
    """Return the exit code for a closed pipe, as in `harness log | head`. This is not an error."""
    _discard_output()
    return 0


def _discard_output() -> None:
    """Discard buffered output. Its reader is gone, and the exit must not try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """Open the standard streams that the caller closed (`<&-`) on /dev/null.

    Otherwise the next file that is opened would get the free number: the record store. `sys.stdin` stays
    None, because closed input is not empty input.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            if number:
                setattr(sys, name, os.fdopen(number, "w", closefd=False))


if __name__ == "__main__":
    main()
