"""The `harness` command: its groups, and the table that turns errors into exit codes.

0 done · 1 refused, not found, conflict, unavailable · 2 wrong usage · 3 a bug · 130 interrupted
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import admin, agents, doctor, files, history, prompt, turns, workspaces
from harness.cli.face import Shown, show_failure

HELP = """Durable memory for LLM agents as plain Markdown files.

A workspace is a directory of Markdown with a git history; an agent keeps its memory there, and you
read, edit and review it like any other files. To begin: harness chat
"""

app = typer.Typer(
    name="harness",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
turns.register(app)
files.register(app)
history.register(app)
prompt.register(app)
doctor.register(app)
app.add_typer(agents.app, name="agent")
app.add_typer(workspaces.app, name="workspace")
app.add_typer(admin.app, name="admin")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"harness {version('workspace-harness')}")
        raise typer.Exit


@app.callback()
def _global(  # pyright: ignore[reportUnusedFunction]
    home: Annotated[
        Path | None, typer.Option("--home", help="The home to work on (else HARNESS_HOME).")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    Shown.home = home


def main() -> None:
    sys.exit(_run())


def _run() -> int:
    try:
        result = app(standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        return _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return _reader_has_gone()
    except Exception as error:  # noqa: BLE001 - the table of this face
        return _failed(error)
    return result if isinstance(result, int) else 0


def _misused(error: typer.TyperException) -> int:
    show = getattr(error, "show", None)  # only the kinds that know their command have it
    if callable(show):
        show()
    else:
        sys.stderr.write(f"error: {error}\n")
    return 2


def _failed(error: Exception) -> int:
    from workspaces.errors import Failure

    if isinstance(error, Failure):
        show_failure(error)
        return 1
    if os.environ.get("HARNESS_TRACEBACK"):
        raise error
    sys.stderr.write(
        f"error (bug): {type(error).__name__}: {error}\n"
        "  → this should not happen; HARNESS_TRACEBACK=1 shows where it did\n"
    )
    return 3


def _reader_has_gone() -> int:
    """`harness log | head`: not an error, and nothing more to say to anyone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    main()
