"""The commands `harness log`, `diff`, `show`, `blame`, `restore`, `revert` and `git`.

They show the history of a workspace: the changes, their authors and their conversations. `restore` and
`revert` undo changes. Each command first commits edits by hand, so that its answer includes them.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.arguments import PathArgument, WorkspaceArgument
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    has_colours,
    notes,
    opened_files,
    print_json,
    print_styled,
)
from harness.cli.console.diff_printer import (
    styled_chapters,
    styled_files,
    styled_patch,
    styled_revision,
)

if TYPE_CHECKING:
    from harness.cli.console.console import OpenedFiles
    from workspaces.revision import Author, RevisionId
    from workspaces.workspace.workspace import Workspace

RevisionArgument = Annotated[
    str, typer.Argument(help="Id of a revision, as `harness log` shows it, or its first digits.")
]
WordsOption = Annotated[
    bool | None,
    typer.Option(
        "--words/--lines",
        "-w/-l",
        help="Compare words, as [-removed-]{+added+}, or lines. Default: words on a terminal.",
    ),
]


def register(app: typer.Typer) -> None:
    for command in (log, diff, show, blame, restore, revert):
        app.command()(command)
    app.command(
        name="git",
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(git)


def log(
    workspace: WorkspaceArgument,
    path: Annotated[
        str | None, typer.Argument(help="Only revisions that changed this file.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of revisions.")
    ] = 50,
    patch: Annotated[
        bool, typer.Option("--patch", "-p", help="Show the changes of each revision.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the revisions of a workspace, newest first.

    The list shows the author, the conversation, and the message that the turn answered. A revision is one
    act of one writer: a turn of an agent, an edit by hand, or a call of the API. `harness show` shows more of
    one revision.
    """
    from harness.presentation.file_json import change_document, revision_document
    from harness.presentation.history_view import TurnReasons, chapters
    from workspaces.paths import WorkspacePath

    why: dict[str, str | None] = {}
    with opened_files(home, as_json=as_json) as files:
        place = _with_edits(files, workspace)
        if patch:
            file = WorkspacePath(path) if path else None
            changes = place.history.changes(path=file, limit=limit)
            documents = [change_document(change) for change in changes]
            shown = [(change.revision, change.files) for change in changes]
        else:
            shown = [(revision, ()) for revision in place.log(path, limit=limit)]
            documents = [revision_document(revision) for revision, _ in shown]
        if not as_json:
            reasons = TurnReasons(lambda: files.whole().conversations)
            why = {revision.id: reasons.why(revision) for revision, _ in shown}
    if as_json:
        print_json(documents)
        return
    changed_files = {revision.id: changed for revision, changed in shown}
    grouped = chapters(revision for revision, _ in shown)
    words, marked = _by_words(None), not has_colours()
    print_styled(styled_chapters(grouped, why, changed_files, words=words, marked=marked))


def diff(
    workspace: WorkspaceArgument,
    path: Annotated[str | None, typer.Argument(help="Only this file.")] = None,
    older: Annotated[
        str | None, typer.Option("--from", help="The older revision; default: the one before --to.")
    ] = None,
    newer: Annotated[
        str, typer.Option("--to", help="The newer revision; default: the newest.")
    ] = "head",
    words: WordsOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the difference of two revisions, or the last change.

    With a PATH and without --from, the command shows the last change of this file.
    """
    from harness.presentation.file_json import difference_document
    from workspaces.paths import WorkspacePath

    file = WorkspacePath(path) if path else None
    with committed(workspace, home, as_json) as (place, _):
        if older is None:
            changes = place.history.changes(path=file, start=newer, limit=1)
            before = next((p for c in changes for p in c.revision.parents), None)
            after = next((c.revision.id for c in changes), None)
            files = changes[0].files if changes else ()
        else:
            difference = place.history.diff(older, newer, path=file)
            before, after, files = difference.older, difference.newer, difference.files
    if as_json:
        documents = [difference_document(file, by_words=bool(words)) for file in files]
        print_json({"from": before, "to": after, "files": documents})
    else:
        print_styled(styled_files(files, words=_by_words(words), marked=not has_colours()))


def show(
    workspace: WorkspaceArgument,
    revision: RevisionArgument = "head",
    words: WordsOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a revision and its changes.

    Its author, time and conversation are shown too.
    """
    from harness.presentation.file_json import change_document

    with committed(workspace, home, as_json) as (place, _):
        change = place.history.show(revision)
    if as_json:
        print_json(change_document(change, by_words=bool(words)))
    else:
        files = styled_files(change.files, words=_by_words(words), marked=not has_colours())
        print_styled([*styled_revision(change.revision), *files])


def blame(
    workspace: WorkspaceArgument,
    path: PathArgument,
    revision: Annotated[
        str, typer.Option("--revision", "-r", help="Read the file at this revision.")
    ] = "head",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the author and date of each line of a file.

    The conversation is shown too. --json also names the turn.
    """
    from harness.presentation.file_json import line_document
    from workspaces.paths import WorkspacePath

    with committed(workspace, home, as_json) as (place, _):
        lines = place.history.blame(WorkspacePath(path), revision)
    if as_json:
        print_json([line_document(line) for line in lines])
        return
    names = [f"{line.author} ({line.conversation or 'no conversation'})" for line in lines]
    width = max(map(len, names), default=0)
    print_styled(
        part
        for name, line in zip(names, lines, strict=True)
        for part in (
            (line.revision[:10], "yellow"),
            (f" {line.at[:10]} ", ""),
            (f"{name:<{width}}", "dim"),
            (f" {line.number:>4}  {line.text}\n", ""),
        )
    )


def restore(
    workspace: WorkspaceArgument,
    path: PathArgument,
    revision: Annotated[
        str | None, typer.Option("--revision", "-r", help="The revision to restore.")
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", help="The state before the last change.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a file to its state at a revision.

    If the revision does not have the file, the file is deleted. The command makes a new revision: the current
    content stays in the history.
    """
    from harness.presentation.file_json import written_document

    if (revision is None) != previous:
        raise typer.BadParameter("give either --revision ID or --previous")
    with committed(workspace, home, as_json) as (place, person):
        written = place.restore(path, revision or _before_last_change(place, path), by=person)
    if as_json:
        print_json(written_document(written))
    else:
        result = written.revision[:10] if written.revision else "already has this content"
        complain(f"{written.path}: {result}\n")


def _before_last_change(place: Workspace, path: str) -> RevisionId:
    """Return the revision before the last one that changed the file.

    Raises: NotFound if no revision changed it; Refused if the first revision of all did.
    """
    from workspaces.errors import NotFound, Refused

    last = next(iter(place.log(path, limit=1)), None)
    if last is None:
        raise NotFound("file", path)
    if not last.parents:
        remedy = f"`harness log` lists the revisions of {path}"
        raise Refused("--previous", path, "has no earlier revision", remedy=remedy)
    return last.parents[0]


def revert(
    workspace: WorkspaceArgument,
    revision: RevisionArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo one revision. Later changes stay.

    It goes by lines, so facts told since stay. If one of its lines was rewritten since, the command changes
    nothing and names the line: you must decide which text to keep.
    """
    from harness.presentation.file_json import reverted_document

    with committed(workspace, home, as_json) as (place, person):
        made = place.revert(revision, by=person)
    if as_json:
        print_json(reverted_document(revision, made))
    else:
        complain(f"{revision}: {f'undone by {made[:10]}' if made else 'already undone'}\n")


def git(
    workspace: WorkspaceArgument,
    arguments: Annotated[
        list[str], typer.Argument(help="A git command: log, show, diff, blame, ls-tree, …")
    ],
    home: HomeOption = None,
) -> None:
    """Run a git command that only reads.

    harness git notes log -p --since=yesterday -- MEMORY.md

    The history is an ordinary git directory that any git client can open. This command runs git without
    your configuration, and without options that could write or start a program.
    """
    with committed(workspace, home, False) as (place, _):
        answer = place.history.ask(arguments)
    if sys.stdout.isatty():
        print_styled(styled_patch(answer.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


@contextmanager
def committed(
    workspace: str, home: Path | None, as_json: bool
) -> Generator[tuple[Workspace, Author]]:
    """Yield a workspace after its edits by hand were committed, and the author of the command's changes."""
    with opened_files(home, as_json=as_json) as files:
        yield _with_edits(files, workspace), files.principal.author("api")


def _with_edits(files: OpenedFiles, workspace: str) -> Workspace:
    """Return a workspace after its edits by hand were committed. If it is busy, print a note instead."""
    from workspaces.errors import Unavailable, WorkspaceBusy

    place = files.get(workspace)
    try:
        place.edits.commit()
    except (Unavailable, WorkspaceBusy) as failure:
        if not place.history.is_there:
            raise
        notes().print(f"edits by hand are not included: {failure}", markup=False)
    return place


def _by_words(choice: bool | None) -> bool:
    return sys.stdout.isatty() if choice is None else choice
