"""The commands `harness path`, `ls`, `cat`, `write`, `rm` and `mv`: the files of a workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.arguments import PathArgument, RevisionOption, WorkspaceArgument
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    opened_files,
    print_json,
    print_table,
    put,
    read_input,
    say,
)

if TYPE_CHECKING:
    from workspaces.paths import WorkspacePath


def register(app: typer.Typer) -> None:
    for command in (path, ls, cat, write, rm, mv):
        app.command()(command)


def path(
    workspace: WorkspaceArgument,
    file: Annotated[str | None, typer.Argument(help="A file of the workspace.")] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="Print its git directory, which any git client can read."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the path of a workspace or file on this machine."""
    from workspaces.paths import WorkspacePath

    with opened_files(home, as_json=as_json) as files:
        place = files.get(workspace)
        location = place.root if file is None else place.root / WorkspacePath(file)
        if history:
            location = files.home.history(place.namespace)
    if as_json:
        print_json({"path": str(location)})
    else:
        say(str(location))


def ls(
    workspace: Annotated[
        str | None,
        typer.Argument(help="Name or id of a workspace; default: list the workspaces."),
    ] = None,
    revision: RevisionOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the files of a workspace. Without WORKSPACE, list the workspaces."""
    if workspace is None:
        from harness.cli.files.workspaces import list_

        if revision is not None:
            raise typer.BadParameter("name the workspace too: `harness ls WORKSPACE -r REVISION`")
        list_(home, as_json)
        return
    from harness.presentation.file_json import listing
    from workspaces.tree.conflict_copy import is_conflict

    with opened_files(home, as_json=as_json) as files:
        place = files.get(workspace)
        if revision is not None:
            names = place.files(view=revision)
            if as_json:
                print_json([{"path": name} for name in names])
            else:
                say("\n".join(names))
            return
        tree = place.tree.scan()
    shown = [(name, state) for name, state in tree.files.items() if not is_conflict(name)]
    if as_json:
        print_json(listing(tree))
        return
    print_table(("size", "path"), ((f"{state.size:,}", name) for name, state in shown))
    for problem in tree.problems:
        complain(f"problem: {problem.path!r} {problem.detail}\n")
    for name in tree.scratch:
        complain(f"not versioned: {name!r} is a temporary file of an editor\n")


def cat(
    workspace: WorkspaceArgument,
    file: PathArgument,
    revision: RevisionOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a file of a workspace.

    A pipe gets the exact bytes. A terminal gets the text without control sequences.
    """
    from harness.presentation.file_json import file_document
    from workspaces.file import is_binary, size_text

    with opened_files(home, as_json=as_json) as files:
        content = files.get(workspace).read(file, view=revision or "head")
    if as_json:
        print_json(file_document(content))
        return
    if sys.stdout.isatty():
        if is_binary(content.data):
            complain(f"{content.path}: binary, {size_text(len(content.data))}\n")
        else:
            put(content.text)
        return
    sys.stdout.buffer.write(content.data)
    sys.stdout.buffer.flush()


def write(
    workspace: WorkspaceArgument,
    file: PathArgument,
    if_version: Annotated[
        str | None,
        typer.Option(
            "--if-version",
            help="Write only if this is the current version; `none`: if there is no file.",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write standard input to a file, as a new revision."""
    from harness.presentation.file_json import written_document
    from workspaces.conditions import ABSENT, ANY
    from workspaces.ids import Version

    data = read_input()
    expect = ANY if if_version is None else ABSENT if if_version == "none" else Version(if_version)
    with opened_files(home, as_json=as_json) as files:
        author = files.principal.author("api")
        written = files.get(workspace).write(file, data, by=author, expect=expect)
    if as_json:
        print_json(written_document(written))
    else:
        result = written.revision[:12] if written.revision else "unchanged"
        complain(f"{written.path}: {result}\n")


def rm(
    workspace: WorkspaceArgument,
    file: PathArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a file, as a new revision. `harness restore` brings it back."""
    from harness.presentation.file_json import written_document

    with opened_files(home, as_json=as_json) as files:
        author = files.principal.author("api")
        written = files.get(workspace).delete(file, by=author)
    if as_json:
        print_json(written_document(written))
    else:
        complain(f"{written.path}: deleted by {(written.revision or '')[:12]}\n")


def mv(
    workspace: WorkspaceArgument,
    file: PathArgument,
    to: Annotated[str, typer.Argument(help="The new path, relative to the workspace.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rename a file, as one revision. Its lines keep their dates and authors.

    An existing file is never overwritten.
    """
    from workspaces.errors import AlreadyExists, NotFound
    from workspaces.paths import WorkspacePath

    source, target = WorkspacePath(file), WorkspacePath(to)

    def plan(now: Mapping[WorkspacePath, bytes | None]) -> dict[WorkspacePath, bytes | None]:
        if now[source] is None:
            raise NotFound("file", source)
        if now[target] is not None:  # also if both paths are the same
            raise AlreadyExists("file", target)
        return {target: now[source], source: None}

    with opened_files(home, as_json=as_json) as files:
        author = files.principal.author("api")
        revision = files.get(workspace).change([source, target], plan, by=author)
    if as_json:
        print_json({"from": source, "path": target, "revision": revision})
    else:
        complain(f"{source} → {target}: {(revision or '')[:12]}\n")
