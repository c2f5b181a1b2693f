"""The part of `harness import` that imports facts: rows of a JSON export."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.cli.console.console import out, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Harness
    from harness.memory.facts.facts import FactEntry, FactFate

RowSource = Literal["manual", "auto"]

BYTES_MAX = 64 * 1024 * 1024
"""Bytes of an export: 5 000 rows of the largest size, in which each character is an escape, are smaller."""

LINES_MAX = 40
"""Lines that a person is shown. Programs get all rows with --json."""


def is_rows(source: Path) -> bool:
    """Return True if the source is a JSON file of rows."""
    from harness.integrations.fact_rows import looks_like_rows
    from workspaces.errors import Failure

    if source.suffix.lower() != ".json" or not source.is_file():
        return False
    try:
        return looks_like_rows(_read(source))
    except Failure:
        return False


def import_rows(
    harness: Harness,
    source: Path,
    workspace: str,
    *,
    agent: str | None,
    row_source: RowSource,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the rows of a file as facts, all of them or none.

    Raises: Refused, with each row that is refused.
    """
    from harness.integrations.fact_rows import read_rows

    entries = read_rows(_read(source), name=source.name)
    facts = harness.facts.of_agent(agent) if agent else harness.facts.of_workspace(workspace)
    principal = harness.rooms.principal
    by = principal.author("api" if row_source == "manual" else "extract")
    fates = facts.put_all(entries, by=by.saying("Imported", source.name), dry_run=dry_run)
    target = agent or workspace
    if as_json:
        rows = [
            {"key": entry.key, "fate": fate} for entry, fate in zip(entries, fates, strict=True)
        ]
        where = {"agent": agent} if agent else {"workspace": workspace}
        print_json({**where, "kind": "rows", "dry_run": dry_run, "memories": rows})
        return
    _show(entries, fates, f"{source.name} (rows) → {target}", dry_run=dry_run)


def _show(
    entries: Sequence[FactEntry], fates: Sequence[FactFate], title: str, *, dry_run: bool
) -> None:
    console = out()
    lines = [
        f"{fate:<7} {entry.key}"
        for entry, fate in zip(entries, fates, strict=True)
        if fate != "same"
    ]
    for line in lines[:LINES_MAX]:
        console.print(line, markup=False)
    if len(lines) > LINES_MAX:
        console.print(f"… and {len(lines) - LINES_MAX:,} more (--json shows all)", markup=False)
    counts = ", ".join(f"{count:,} {fate}" for fate, count in Counter(fates).items())
    console.print(f"{title}: {counts or 'no rows'}", markup=False)
    if dry_run:
        console.print("nothing was changed (--dry-run)", markup=False)


def _read(source: Path) -> bytes:
    from workspaces.errors import NotFound, OverLimit, Unavailable

    source = source.expanduser()
    try:
        size = source.stat().st_size
        if size > BYTES_MAX:
            raise OverLimit(str(source), maximum=BYTES_MAX, actual=size, unit="bytes")
        return source.read_bytes()
    except FileNotFoundError as error:
        raise NotFound("local file", str(source)) from error
    except OSError as error:
        raise Unavailable(str(source), error.strerror or str(error)) from error
