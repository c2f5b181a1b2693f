"""The command `harness bench`: measurements with your own data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from harness.models.embedding import EmbeddingEndpoint

app = typer.Typer(help="Measure with your own data.", no_args_is_help=True)

_COLUMNS = ("questions", "recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr")
_CUT_COLUMNS = ("precision", "returned")


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
    peer: Annotated[
        bool, typer.Option("--peer", help="Ask SQLite's FTS5 too, with both its tokenizers.")
    ] = False,
    embedder: Annotated[
        str | None, typer.Option(help="An embeddings endpoint (OpenAI's interface) to use as well.")
    ] = None,
    embedder_model: Annotated[
        str, typer.Option(help="The model to name to the embedder.")
    ] = "text-embedding-3-small",
    embedder_key: Annotated[
        str | None,
        typer.Option(
            envvar="HARNESS_EMBEDDINGS_KEY", help="The embedder's key.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well and how fast recall finds lines.

    A folder holds Markdown files and questions.jsonl, with one JSON object per line:

    {"question": "When is the deploy day?", "evidence": [["notes/team.md", 12]], "category": "dates"}

    `evidence` lists the lines that should be found, counted from 1. `category` is optional. The command
    writes nothing into the folder and uses no home. Precision and the number of returned lines are those of
    an answer with the default cut; all else is measured without it.
    """
    from rich.progress import Progress

    from harness.presentation.bench import measure

    Shown.as_json = as_json
    endpoint = _endpoint(embedder, embedder_model, embedder_key) if embedder else None
    if sys.stderr.isatty():
        with Progress(console=notes(), transient=True) as progress:
            task = progress.add_task("asking", total=None)
            measured = measure(
                directory,
                lambda done, total: progress.update(task, completed=done, total=total),
                embedder=endpoint,
                with_peers=peer,
            )
    else:
        measured = measure(directory, embedder=endpoint, with_peers=peer)
    document: dict[str, Any] = measured.as_json()
    if as_json:
        print_json(document)
        return
    rows = [("all", document), *document["by_category"].items()]
    rows += document.get("peers", {}).items()
    columns = (*_COLUMNS, *_CUT_COLUMNS)
    shown = (
        (name, *(str(figures.get(column, "")) for column in columns)) for name, figures in rows
    )
    print_table(("", *columns), shown)
    complain(
        f"{document['lines']:,} lines indexed in {document['build_s']:.2f} s;"
        f" one question took {document['p50_ms']:.2f} ms (median), {document['p95_ms']:.2f} ms (p95)\n"
    )


def _endpoint(url: str, model: str, key: str | None) -> EmbeddingEndpoint:
    from harness.models.embedding import EmbeddingEndpoint

    return EmbeddingEndpoint(url, model, key)
