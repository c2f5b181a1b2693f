"""The commands `harness import` and `harness export`: files into a workspace, and out of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    out,
    path,
    print_json,
    say,
)

if TYPE_CHECKING:
    from harness.integrations.import_notes import ImportPlan
    from workspaces.revision import Author, RevisionId
    from workspaces.workspace.workspace import Workspace

LINES_MAX = 40
"""Lines of a plan that a person is shown. Programs get all lines with --json."""

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")


def register(app: typer.Typer) -> None:
    app.command("import")(import_)
    app.command()(export)


def import_(
    source: Annotated[
        Path,
        typer.Argument(parser=path, help="A directory, a .zip, a .tar (.gz, .bz2) or a file."),
    ],
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", "-w", help="The target workspace; default: the home's default workspace."
        ),
    ] = None,
    kind: Annotated[
        Literal["files", "project", "claude-memory", "obsidian", "manual", "auto"] | None,
        typer.Option(
            "--as",
            help="Kind of the source; default: recognised by its files. `manual` and `auto` are rows of a"
            " JSON export, as facts of a person or of a model.",
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Import rows as facts of this agent.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and change nothing.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import existing files into a workspace.

    From a project, the command imports the instructions for agents (CLAUDE.md, AGENTS.md, .claude/rules).
    From the memory folder of Claude Code, it imports MEMORY.md and notes. From an Obsidian vault, it imports
    the notes. From any other source, it imports every file under its path. No file is overwritten: MEMORY.md
    and TASKS.md receive their new lines, and another file whose name is taken gets a new name. Links are not
    followed. The command reports renamed and skipped files.

    A JSON export of rows becomes facts. All rows are imported, or none: each refused row is named.
    """
    from harness.cli.files.import_rows import import_rows, is_rows
    from harness.integrations.import_notes import plan_import
    from workspaces.errors import Refused

    with opened(home, as_json=as_json) as harness:
        if kind is None and (agent or is_rows(source)):
            kind = "manual"
        if kind == "manual" or kind == "auto":
            if agent is not None and workspace is not None:
                raise Refused("--agent", agent, "cannot be combined with --workspace")
            import_rows(
                harness,
                source,
                workspace or harness.settings.default_workspace,
                agent=agent,
                row_source=kind,
                dry_run=dry_run,
                as_json=as_json,
            )
            return
        if agent is not None:
            raise Refused("--agent", agent, f"cannot be combined with --as {kind}")
        place = harness.workspaces.get(workspace or harness.settings.default_workspace)
        place.edits.commit()
        plan = plan_import(source, place, kind)
        by = harness.rooms.principal.author("api")
        revisions = [] if dry_run else _carried_out(plan, place, by)
    if as_json:
        print_json(_document(plan, place.record.name, revisions, dry_run=dry_run))
    else:
        _show(plan, place.record.name, revisions, dry_run=dry_run)


def _carried_out(plan: ImportPlan, place: Workspace, by: Author) -> list[RevisionId]:
    from rich.progress import Progress

    from harness.integrations.import_notes import carry_out

    console = notes()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("importing", total=len(plan.after))
        return carry_out(
            plan, place, by=by, on_progress=lambda done: progress.update(task, advance=done)
        )


def _document(
    plan: ImportPlan, workspace: str, revisions: list[RevisionId], *, dry_run: bool
) -> dict[str, Any]:
    from workspaces.durability import HERE

    return {
        "workspace": workspace,
        "kind": plan.kind,
        "dry_run": dry_run,
        "files": [
            {"source": one.source, "path": one.path, "fate": one.fate, "renamed": one.renamed}
            for one in plan.items
        ],
        "left": [{"name": left.name, "reason": left.reason} for left in plan.left],
        "revisions": revisions,
        "durable": HERE.as_json(),
    }


def _show(plan: ImportPlan, workspace: str, revisions: list[RevisionId], *, dry_run: bool) -> None:
    lines = [
        f"{item.fate:<7} {item.path}" + (f"  ← {item.source}" if item.path != item.source else "")
        for item in plan.items
        if item.fate not in {"same", "known"}
    ]
    lines += [f"left    {left.name}: {left.reason}" for left in plan.left]
    console = out()
    for line in lines[:LINES_MAX]:
        console.print(line, markup=False)
    if len(lines) > LINES_MAX:
        console.print(f"… and {len(lines) - LINES_MAX:,} more (--json shows all)", markup=False)
    counted = Counter(item.fate for item in plan.items)
    counts = [f"{count:,} {fate}" for fate, count in counted.items()]
    counts += [f"{len(plan.left):,} left"] if plan.left else []
    console.print(
        f"{plan.name} ({plan.kind}) → {workspace}: {', '.join(counts) or 'no files'}",
        markup=False,
    )
    if dry_run:
        console.print("nothing was changed (--dry-run)", markup=False)
    elif revisions:
        made = ", ".join(revision[:10] for revision in revisions)
        console.print(
            f"revision {made}; `harness revert {workspace} REVISION` undoes it", markup=False
        )


def export(
    workspace: Annotated[
        str, typer.Argument(help="Name or id of a workspace.", metavar="WORKSPACE")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", parser=path, help="A .zip, .tar, .tar.gz or .tgz; default: WORKSPACE.zip."
        ),
    ] = None,
    revision: Annotated[
        str, typer.Option("--revision", "-r", help="Export the state at this revision.")
    ] = "head",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all files of a workspace into an archive.

    The history is an ordinary git directory: `git clone "$(harness path WORKSPACE --history)"` copies it.
    """
    from workspaces.errors import AlreadyExists, Refused

    with opened(home, as_json=as_json) as harness:
        place = harness.workspaces.get(workspace)
        name = f"{place.record.name.replace('/', '_')}.zip"
        target = (to or Path(name)).expanduser()
        ending = next((end for end in reversed(ENDINGS) if target.name.endswith(end)), None)
        if ending is None:
            raise Refused("--to", str(target), f"must end with one of {', '.join(ENDINGS)}")
        if target.exists():
            raise AlreadyExists("file", str(target))
        count, shown = _exported(place, revision, target, ending)
    if as_json:
        print_json({"path": str(target.absolute()), "files": count, "revision": shown})
    else:
        say(f"{target}: {count} files as of {(shown or 'the beginning')[:10]}")


def _exported(
    place: Workspace, revision: str, target: Path, ending: str
) -> tuple[int, RevisionId | None]:
    """Write the archive to a temporary file and rename it, so that a partial archive never has its name."""
    from workspaces.errors import Unavailable
    from workspaces.localfs.archive import pack
    from workspaces.timestamp import moment_of

    place.edits.commit()
    shown = place.history.resolve(revision)
    if shown is None:
        raise Unavailable(place.record.name, "nothing has been written yet")
    files = place.files(view=shown)
    at = moment_of(place.history.commit(shown).at)
    unfinished = target.with_name(f".{target.name}.part")
    try:
        with unfinished.open("wb") as stream:
            pack(
                ((path, place.read(path, view=shown).data) for path in files),
                stream,
                ending=ending,
                at=at,
            )
        unfinished.rename(target)
    except OSError as error:
        raise Unavailable(str(target), error.strerror or str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(files), shown
