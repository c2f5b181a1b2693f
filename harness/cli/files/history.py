"""`harness log | diff | show | blame | restore | revert | git`: what changed in a workspace, who wrote
it, from which conversation, and how to have it back.

What was edited by hand a moment ago is made a revision first, so that it is part of every answer.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.arguments import PathArgument, RevisionOption, WorkspaceArgument
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    has_colours,
    notes,
    opened,
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
    from harness import Harness
    from workspaces.revision import Author, RevisionId
    from workspaces.workspace.workspace import Workspace

RevisionArgument = Annotated[
    str, typer.Argument(help="A revision's id, as `harness log` shows it; its start is enough.")
]
WordsOption = Annotated[
    bool | None,
    typer.Option(
        "--words/--lines",
        "-w/-l",
        help="Word by word, [-what went-]{+what came+}, as on a terminal; or by lines, as into a pipe.",
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
    path: Annotated[str | None, typer.Argument(help="Only what touched this file.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at the most.")] = 50,
    patch: Annotated[bool, typer.Option("--patch", "-p", help="With what each changed.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The revisions of a workspace, the newest first. Who wrote, in which conversation, and what was asked.

    Each is one act of one writer: a turn of an agent, an edit by hand, a call of the API. `harness show`
    tells more of one of them.
    """
    from harness.presentation.file_json import change_document, revision_document
    from harness.presentation.history_view import TurnReasons, chapters
    from workspaces.paths import WorkspacePath

    why: dict[str, str | None] = {}
    with opened(home, as_json=as_json) as harness:
        place = _settle(harness, workspace)
        if patch:
            file = WorkspacePath(path) if path else None
            changes = place.history.changes(path=file, limit=limit)
            documents = [change_document(change) for change in changes]
            shown = [(change.revision, change.files) for change in changes]
        else:
            shown = [(revision, ()) for revision in place.log(path, limit=limit)]
            documents = [revision_document(revision) for revision, _ in shown]
        if not as_json:
            reasons = TurnReasons(harness.rooms.conversations)
            why = {revision.id: reasons.why(revision) for revision, _ in shown}
    if as_json:
        print_json(documents)
        return
    files = {revision.id: found for revision, found in shown}
    told = chapters(revision for revision, _ in shown)
    print_styled(styled_chapters(told, why, files, words=_by_words(None)))


def diff(
    workspace: WorkspaceArgument,
    path: Annotated[str | None, typer.Argument(help="Only this file.")] = None,
    older: Annotated[
        str | None, typer.Option("--from", help="The older revision; else the one before --to.")
    ] = None,
    newer: Annotated[
        str, typer.Option("--to", help="The newer revision; else the newest.")
    ] = "head",
    words: WordsOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What differs between revisions, or was changed last.

    With a PATH and no --from: what the last revision that touched this file did to it.
    """
    from harness.presentation.file_json import difference_document
    from workspaces.paths import WorkspacePath

    file = WorkspacePath(path) if path else None
    with settled(workspace, home, as_json) as (place, _):
        if older is None:
            changes = place.history.changes(path=file, start=newer, limit=1)
            before = next((p for c in changes for p in c.revision.parents), None)
            after = next((c.revision.id for c in changes), None)
            files = changes[0].files if changes else ()
        else:
            found = place.history.diff(older, newer, path=file)
            before, after, files = found.older, found.newer, found.files
    if as_json:
        told = [difference_document(file, by_words=bool(words)) for file in files]
        print_json({"from": before, "to": after, "files": told})
    else:
        print_styled(styled_files(files, words=_by_words(words), marked=not has_colours()))


def show(
    workspace: WorkspaceArgument,
    revision: RevisionArgument = "head",
    words: WordsOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One revision and what it changed. Who made it, when, and in which conversation."""
    from harness.presentation.file_json import change_document

    with settled(workspace, home, as_json) as (place, _):
        change = place.history.show(revision)
    if as_json:
        print_json(change_document(change, by_words=bool(words)))
    else:
        told = styled_files(change.files, words=_by_words(words), marked=not has_colours())
        print_styled([*styled_revision(change.revision), *told])


def blame(
    workspace: WorkspaceArgument,
    path: PathArgument,
    revision: Annotated[
        str, typer.Option("--revision", "-r", help="The file as it was at this revision.")
    ] = "head",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who wrote each line of a file, and when. And from which conversation and turn."""
    from harness.presentation.file_json import line_document
    from workspaces.paths import WorkspacePath

    with settled(workspace, home, as_json) as (place, _):
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
    revision: RevisionOption = None,
    previous: Annotated[
        bool, typer.Option("--previous", help="As it was before its last change.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a file back to what it was at a revision. If it was not there then, it is removed.

    This is a new revision: what the file is now stays in the history.
    """
    from harness.presentation.file_json import written_document

    if (revision is None) != previous:
        raise typer.BadParameter("name one: --revision ID, or --previous")
    with settled(workspace, home, as_json) as (place, person):
        written = place.restore(path, revision or _before_last_change(place, path), by=person)
    if as_json:
        print_json(written_document(written))
    else:
        told = written.revision[:10] if written.revision else "is like that already"
        complain(f"{written.path}: {told}\n")


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
    """Undo what one revision did. Everything that was done since stays.

    Refused when the same lines were changed again since: then there is nothing to undo without a
    decision, which is yours.
    """
    from harness.presentation.file_json import reverted_document

    with settled(workspace, home, as_json) as (place, person):
        made = place.revert(revision, by=person)
    if as_json:
        print_json(reverted_document(revision, made))
    else:
        complain(f"{revision}: {f'undone by {made[:10]}' if made else 'undone already'}\n")


def git(
    workspace: WorkspaceArgument,
    arguments: Annotated[
        list[str], typer.Argument(help="A git command: log, show, diff, blame, ls-tree, …")
    ],
    home: HomeOption = None,
) -> None:
    """Ask git itself: any command and option that only reads.

    harness git notes log -p --since=yesterday -- MEMORY.md

    The history is an ordinary git directory and any git client can open it; here git runs without
    your configuration, and without anything that could write or start a program.
    """
    with settled(workspace, home, False) as (place, _):
        answer = place.history.ask(arguments)
    if sys.stdout.isatty():
        print_styled(styled_patch(answer.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


@contextmanager
def settled(
    workspace: str, home: Path | None, as_json: bool
) -> Generator[tuple[Workspace, Author]]:
    """A workspace with what was edited by hand made a revision, and who is asking."""
    with opened(home, as_json=as_json) as harness:
        yield _settle(harness, workspace), harness.rooms.principal.author("api")


def _settle(harness: Harness, workspace: str) -> Workspace:
    from workspaces.errors import WorkspaceBusy

    place = harness.workspaces.get(workspace)
    try:
        place.commit_edits()
    except WorkspaceBusy as busy:
        notes().print(f"not yet part of this: edits by hand ({busy})", markup=False)
    return place


def _by_words(stated: bool | None) -> bool:
    return sys.stdout.isatty() if stated is None else stated
