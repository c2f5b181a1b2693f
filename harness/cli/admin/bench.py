"""The command `harness bench`: measurements with your own data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.console.console import (
    JsonOption,
    Shown,
    complain,
    notes,
    path,
    print_json,
    print_table,
)

app = typer.Typer(help="Measure with your own data.", no_args_is_help=True)

_COLUMNS = ("questions", "recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr")


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="bench")


@app.callback()
def _bench() -> None:  # pyright: ignore[reportUnusedFunction]
    """Make `bench` a group although it has one command."""


@app.command()
def recall(
    directory: Annotated[
        Path, typer.Argument(parser=path, help="A folder, or a folder of such folders.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Measure how well and how fast recall finds lines.

    A folder holds Markdown files and questions.jsonl, with one JSON object per line:

    {"question": "When is the deploy day?", "evidence": [["notes/team.md", 12]], "category": "dates"}

    `evidence` lists the lines that should be found, counted from 1. `category` is optional. The command
    writes nothing into the folder and uses no home.
    """
    from rich.progress import Progress

    from harness.presentation.bench import measure

    Shown.as_json = as_json
    if sys.stderr.isatty():
        with Progress(console=notes(), transient=True) as progress:
            task = progress.add_task("asking", total=None)
            measured = measure(
                directory, lambda done, total: progress.update(task, completed=done, total=total)
            )
    else:
        measured = measure(directory)
    document: dict[str, Any] = measured.as_json()
    if as_json:
        print_json(document)
        return
    rows = [("all", document), *document["by_category"].items()]
    shown = ((name, *(str(figures[column]) for column in _COLUMNS)) for name, figures in rows)
    print_table(("", *_COLUMNS), shown)
    complain(
        f"{document['lines']:,} lines indexed in {document['build_s']:.2f} s;"
        f" one question took {document['p50_ms']:.2f} ms (median), {document['p95_ms']:.2f} ms (p95)\n"
    )
