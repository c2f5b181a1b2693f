"""The command `harness recall`: find lines of workspaces by their meaning."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    notes,
    opened_files,
    print_json,
    print_styled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import TaskID

    from harness.cli.console.console import OpenedFiles
    from harness.memory.recall import Hit
    from workspaces.search.recall import Scope
    from workspaces.workspace.workspace import Workspace

PROGRESS_FILES_MIN = 200
"""Files from which on indexing shows its progress. Fewer take less than a second."""


def register(app: typer.Typer) -> None:
    app.command()(recall)


def recall(
    query: Annotated[str, typer.Argument(help="A question, some words, a name, an id or a date.")],
    workspace: Annotated[
        list[str] | None,
        typer.Option("--workspace", "-w", help="Search this workspace; repeatable. Default: all."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Largest number of lines.")] = 10,
    path: Annotated[
        list[str] | None,
        typer.Option("--path", "-p", help="Search this file, directory or pattern (`notes/*`)."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", help="memory, tasks, note, fact, block, decision or other."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines written on this day or later.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", help="Only lines by this author: a name, an agent's id, `turn` or `edit`."
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            "--revision", "-r", help="Search the state at this revision of one workspace."
        ),
    ] = None,
    cut: Annotated[
        str, typer.Option("--cut", help="auto: only lines that fit well. off: up to the limit.")
    ] = "auto",
    why: Annotated[bool, typer.Option("--why", help="Show why each line matches.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find lines by their meaning, best matches first.

    harness recall "when is the deploy day?"

    The search also finds other forms of a word, and lines next to or under a matching line. If a name, id
    or path occurs in one line only, that line comes first. Recent edits are included. An empty query ("")
    lists lines in order.

    Lines with less than half of the best score are left out, and so is everything if nothing bears on the
    question. Stderr says how many; `--cut off` shows them.
    """
    from typing import get_args

    from harness.memory.recall import CutMode, answer
    from harness.memory.recall import recall as find
    from workspaces.errors import unknown_name

    modes: dict[str, CutMode] = {mode: mode for mode in get_args(CutMode)}
    if cut not in modes:
        raise unknown_name("--cut", cut, list(modes))

    with opened_files(home, as_json=as_json) as files:
        scope = _scope(path or [], kind or [], since, by)
        places = _places(files, workspace or [], revision)
        if sys.stderr.isatty():
            _prepare(places)
        found = find(places, query, limit=limit, scope=scope, view=revision or "head")
        stale = {name: place.recall.stale_reason for name, place in places}
    for name, reason in stale.items():
        if reason:
            complain(f"the index of {name} may be out of date: {reason}\n")
    shown = answer(found, query, modes[cut])
    if as_json:
        print_json([hit.as_json() for hit in shown.hits])
    elif shown.hits:
        print_styled(_styled(shown.hits, query, with_names=len(places) > 1, with_why=why))
    elif not found:
        complain("no line matches\n")
    if shown.cut is not None and shown.cut.behind:
        lines = f"{shown.cut.shown} of {shown.cut.shown + shown.cut.behind} lines are shown"
        complain(f"{lines}, down to a score of {shown.cut.lowest:.2f}; --cut off shows all\n")
    elif found and not shown.hits:
        complain(
            f"nothing here bears on the question; --cut off shows {len(found)} with a word of it\n"
        )


def _scope(paths: list[str], kinds: list[str], since: str | None, by: str | None) -> Scope:
    from typing import get_args

    from harness.memory.recall import since_of
    from workspaces.errors import unknown_name
    from workspaces.search.kind import MemoryKind
    from workspaces.search.recall import Scope

    known: dict[str, MemoryKind] = {kind: kind for kind in get_args(MemoryKind)}
    for kind in kinds:
        if kind not in known:
            raise unknown_name("--kind", kind, list(known))
    return Scope(
        tuple(paths),
        tuple(known[kind] for kind in kinds),
        since_of(since) if since is not None else None,
        by,
    )


def _places(
    files: OpenedFiles, names: list[str], revision: str | None
) -> list[tuple[str, Workspace]]:
    from workspaces.errors import Refused

    places = [files.get(name) for name in dict.fromkeys(names)] if names else files.list()
    if revision is not None and len(places) != 1:
        rule = "needs exactly one workspace"
        raise Refused("--revision", revision, rule, remedy="name the workspace with --workspace")
    return [(place.name, place) for place in places]


def _prepare(places: list[tuple[str, Workspace]]) -> None:
    """Bring the indexes up to date and show progress. A large workspace takes some seconds once."""
    from rich.progress import Progress

    with Progress(console=notes(), transient=True) as progress:
        for name, place in places:
            task = progress.add_task(f"indexing {name}", visible=False)

            def on_progress(done: int, total: int, task: TaskID = task) -> None:
                is_visible = total >= PROGRESS_FILES_MIN
                progress.update(task, completed=done, total=total, visible=is_visible)

            place.recall.catch_up(on_progress)


def _styled(
    hits: Sequence[Hit], query: str, *, with_names: bool, with_why: bool
) -> Iterator[tuple[str, str]]:
    """Yield the lines as `grep -n` prints them, with the matching words highlighted."""
    from harness.memory.recall import age_of
    from workspaces.search.highlight import spans

    for hit in hits:
        line = hit.line
        place = f"{hit.workspace}:{line.path}" if with_names else line.path
        yield f"{place}:{line.line_number}: ", "dim"
        at = 0
        for start, end in spans(line.content, query):
            yield line.content[at:start], ""
            yield line.content[start:end], "bold yellow"
            at = end
        yield f"{line.content[at:]}\n", ""
        if with_why:
            written = age_of(line.updated_at, line.age_days)
            by = f"{line.author}, " if line.author else ""
            yield (
                f"    {line.score:.2f} · {line.kind} · {by}{written} · {'; '.join(line.why)}\n",
                "dim",
            )
