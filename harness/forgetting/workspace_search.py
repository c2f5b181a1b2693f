"""Find phrases in the files of a workspace, in its whole history and in its indexes. Nothing is changed.

The history is read object by object, as git stores it: a phrase may be in a file of an old revision, in the
message of a revision, or in an object that no revision reaches any more.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.redaction import TextFinder, all_places
from workspaces.errors import Failure
from workspaces.history.git.program import open_git_session, run_git
from workspaces.home.layout import Home
from workspaces.ids import Namespace


class GitObject(NamedTuple):
    """An object of a history: a file's bytes, a directory or a revision."""

    id: str
    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LineCount:
    """Lines of files, and those with a phrase among them."""

    matching: int = 0
    all: int = 0

    def __add__(self, other: LineCount) -> LineCount:
        return LineCount(self.matching + other.matching, self.all + other.all)


def matching_lines(text: str, finder: TextFinder) -> LineCount:
    """Count the lines of a text, and those in which a phrase begins."""
    matching = {text.count("\n", 0, place.start) for place in all_places(text, finder)}
    return LineCount(len(matching), text.count("\n") + 1)


def find_in_trashed_history(
    directory: Path, name: str, finder: TextFinder, findings: Findings
) -> None:
    """Find the phrases in all objects of a git directory in the trash."""
    if not directory.is_dir():
        return
    hits: list[tuple[GitObject, int]] = []
    for one in objects_of(directory):
        if one.kind == "tree":
            continue
        count = len(all_places(one.data.decode(errors="replace"), finder))
        if count:
            hits.append((one, count))
    if not hits:
        return
    paths = _paths_of(directory)
    for one, count in hits:
        is_revision = one.kind == "commit"
        path = paths.get(one.id)
        place = FoundPlace(
            "trash",
            workspace=name,
            path=None if path is None or is_revision else finder.replaced(path),
            revision=one.id if is_revision else None,
        )
        findings.add(place, count)


def find_in_indexes(home: Home, namespace: Namespace, finder: TextFinder) -> int:
    """Return the number of phrases in the texts of the search indexes of a workspace."""
    search = home.search(namespace)
    return sum(
        len(finder.find(text))
        for file in (search, search.with_suffix(".view.db"))
        for text in texts_of(file)
    )


def texts_of(file: Path) -> Iterator[str]:
    """Yield every text in every table of a SQLite file."""
    if not file.exists():
        return
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database,
    ):
        tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (table,) in tables:
            quoted = str(table).replace('"', '""')
            for row in database.execute(f'select * from "{quoted}"'):  # noqa: S608 - a table's own name
                yield from (value for value in row if isinstance(value, str))


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the regular files below a directory, without following a link."""
    if not directory.is_dir():
        return
    for root, _, names in os.walk(directory):
        for name in sorted(names):
            file = Path(root, name)
            if file.is_file() and not file.is_symlink():
                yield file


def objects_of(directory: Path) -> Iterator[GitObject]:
    """Yield all objects of a git directory, also those that no revision reaches."""
    arguments = ("cat-file", "--batch-all-objects", "--batch", "--buffer", "--unordered")
    with open_git_session(f"--git-dir={directory}", *arguments) as session:
        session.stdin.close()
        while header := session.stdout.readline():
            object_id, kind, size = header.decode().split()
            data = session.stdout.read(int(size))
            session.stdout.read(1)
            yield GitObject(object_id, kind, data)


def _paths_of(directory: Path) -> dict[str, str]:
    """Return one path of each object that a revision reaches."""
    try:
        listed = run_git(f"--git-dir={directory}", "rev-list", "--objects", "--all")
    except Failure:
        return {}
    lines = (line.partition(" ") for line in listed.decode(errors="replace").splitlines())
    return {object_id: path for object_id, _, path in lines if path}
