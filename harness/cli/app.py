"""The `harness` command: its groups, and the table that turns errors into exit codes.

0 done · 1 refused, not found, conflict, unavailable · 2 wrong usage · 3 a bug · 130 interrupted
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.admin import accounts, admin, agents, bench, doctor, join, sandboxes, up, use
from harness.cli.console.command_groups import GroupedCommands
from harness.cli.console.console import Shown, complain, path, print_json, say, show_failure
from harness.cli.files import (
    files,
    grep,
    history,
    import_export,
    recall,
    shell,
    status,
    sync,
    watch,
    workspaces,
)
from harness.cli.talk import approve, chat, compact, conversation, explain, jobs, prompt, run, usage

HELP = """Durable memory for LLM agents as plain Markdown files.

A workspace is a directory of Markdown with a git history; an agent keeps its memory there, and you
read, edit and review it like any other files. To begin: harness chat
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
chat.register(app)
run.register(app)
approve.register(app)
files.register(app)
history.register(app)
recall.register(app)
shell.register(app)
sync.register(app)
compact.register(app)
join.register(app)
prompt.register(app)
explain.register(app)
doctor.register(app)
usage.register(app)
up.register(app)
watch.register(app)
import_export.register(app)
use.register(app)
grep.register(app)
status.register(app)
app.add_typer(agents.app, name="agent")
app.add_typer(workspaces.app, name="workspace")
app.add_typer(sandboxes.app, name="sandbox")
app.add_typer(accounts.account_app, name="account")
app.add_typer(accounts.user_app, name="user")
app.add_typer(accounts.key_app, name="key")
app.add_typer(conversation.app, name="conversation")
app.add_typer(jobs.app, name="jobs")
app.add_typer(admin.app, name="admin")
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"harness {version('workspace-harness')}")
        raise typer.Exit


@app.callback()
def _global(  # pyright: ignore[reportUnusedFunction]
    home: Annotated[
        Path | None,
        typer.Option("--home", parser=path, help="The home to work on (else HARNESS_HOME)."),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account", help="The account to act in, anywhere on the line (else the default)."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    Shown.home = home
    Shown.account = account


_STORAGE_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Of a disk or of what standard output leads to: never a bug."""


def main() -> None:
    _open_closed_streams()
    out: Any = sys.stdout
    if out.errors == "strict":
        out.reconfigure(errors="backslashreplace")  # a name that is no text is shown anyway
    sys.exit(_flushed(_run()))


def _flushed(code: int) -> int:
    """What is left for the exit to write cannot be caught there."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        return _failed(error)
    return code


def _run() -> int:
    try:
        result = app(_account_first(sys.argv[1:]), standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        return _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (BrokenPipeError, SystemExit):  # the second is what typer and rich make of the first
        return _reader_has_gone()
    except Exception as error:  # noqa: BLE001 - the table of this face
        return _failed(error)
    return result if isinstance(result, int) else 0


def _account_first(arguments: list[str]) -> list[str]:
    """`--account X` may stand anywhere: nobody has to remember on which side of the command."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for place, argument in enumerate(ours):
        if argument == "--account" and place + 1 < len(ours):
            return [*ours[place : place + 2], *arguments[:place], *arguments[place + 2 :]]
        if argument.startswith("--account="):
            return [argument, *arguments[:place], *arguments[place + 1 :]]
    return arguments


def _misused(error: typer.TyperException) -> int:
    error.message = error.message.replace("Value error, ", "")
    if "--json" in sys.argv:
        print_json({"error": {"code": "usage", "message": str(error), "remedy": None}})
    show = getattr(error, "show", None)  # only the kinds that know their command have it
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
        complain(f"error (unavailable): cannot write: {reason}\n  → free some space\n")
        return 1
    if os.environ.get("HARNESS_TRACEBACK"):
        raise error
    if Shown.as_json:
        print_json({"error": {"code": "bug", "message": str(error), "remedy": None}})
    complain(
        f"error (bug): {type(error).__name__}: {error}\n"
        "  → this should not happen; HARNESS_TRACEBACK=1 shows where it did\n"
    )
    return 3


def _reader_has_gone() -> int:
    """`harness log | head`: not an error, and nothing more to say to anyone."""
    _discard_output()
    return 0


def _discard_output() -> None:
    """What is still in the buffer has nowhere to go, and must not be tried again at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """A stream that the caller closed (`<&-`) is missing here, and its number would be given to the
    next file that is opened: the record store. Input stays missing: closed is not empty."""
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
