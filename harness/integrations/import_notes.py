"""The import of notes: existing files of a person, in their right places in a workspace.

    archive ──► recognise ──► place each file ──► compare with the workspace ──► plan ──► carry out

Nothing is overwritten. MEMORY.md and TASKS.md are lists of statements and take up the statements that are new
to them. Any other file whose name is taken is put beside the existing one. A version that is in the history
is known already, so the same archive may be imported again and again. The plan is made first and can be
looked at. Carrying it out is refused where another writer has changed a file meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.integrations.line_union import lowered, union
from harness.runtime.templates import render
from workspaces.errors import Conflict, NotFound, OverLimit, Refused
from workspaces.file import as_bytes
from workspaces.history.revert import Files
from workspaces.ids import version_of
from workspaces.localfs.archive import Archive, Enter, SkippedFile, kind_of, top_of, unpack
from workspaces.localfs.valid_name import nearest_path
from workspaces.paths import WorkspacePath, broken_rule, folded
from workspaces.revision import Author, RevisionId
from workspaces.tree.editor_files import is_editor_file
from workspaces.workspace.workspace import Workspace

ImportKind = Literal["files", "project", "claude-memory", "obsidian"]
"""The kind of the source.

Files: each keeps its place. Project: its instructions for agents (CLAUDE.md, AGENTS.md, rules).
Claude-memory: the memory folder that Claude Code keeps for a project. Obsidian: a vault.
"""

Fate = Literal["new", "same", "known", "merged", "beside"]
"""What happens to a file. Same: the workspace has it. Known: the history has it. Beside: its name was
taken."""

INLINE_LINES_MAX = 150
"""Instructions up to this length go into MEMORY.md, which is in every prompt; longer ones into a note."""

REVISION_FILES_MAX = 500
"""The most files of one revision. A larger import is several revisions, so that no writer waits long for
the lock."""

MEMORY, TASKS = "MEMORY.md", "TASKS.md"

_LISTS = {MEMORY, TASKS}
_INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md")
_LITTER = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\._.+", re.IGNORECASE)
_NEVER_ENTERED = {"__MACOSX", "node_modules", "__pycache__", ".venv"}
_LINK = re.compile(r"(\]\()(\./)?([^()\s:]+\.md)(?=[)#])")


@dataclass(frozen=True, slots=True)
class ImportItem:
    """One file of the archive, and what happens to it."""

    source: str
    path: WorkspacePath
    fate: Fate
    renamed: bool
    """True if the file could not keep its name."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The planned import."""

    name: str
    """The name of the source, as the history shows it."""
    kind: ImportKind
    items: tuple[ImportItem, ...]
    left: tuple[SkippedFile, ...]
    before: Files
    after: Files
    """The changed files. `before` has them as the plan saw them, `after` as they will be."""


def plan_import(source: Path, workspace: Workspace, kind: ImportKind | None = None) -> ImportPlan:
    """Plan an import. With `kind` None, the content of the source decides its kind."""
    source = source.expanduser().absolute()
    name = source.name
    kind = kind or recognised(source)
    if kind == "claude-memory" and MEMORY not in top_of(source):
        source = source / "memory"
    archive = unpack(source, workspace.record.config.quota, enter=_enter(kind))
    if kind == "files" and kind_of(source) == "file" and name.endswith(".md"):
        archive.files = {_note(name): data for name, data in archive.files.items()}
    tree_after = _ImportedTree(workspace)
    for target, found, data in sorted(_placed(kind, archive)):
        tree_after.take(target, found, data)
    tree_after.check_quota()
    left = (*archive.left, *tree_after.left)
    after = {path: tree_after.files[path] for path in sorted(tree_after.changed)}
    before = {path: tree_after.read_before(path) for path in after}
    return ImportPlan(name, kind, tuple(tree_after.items), left, before, after)


def carry_out(
    plan: ImportPlan, workspace: Workspace, *, by: Author, on_progress: Callable[[int], None]
) -> list[RevisionId]:
    """Carry out a plan. `on_progress` receives the number of files written by each revision.

    Raises: Conflict if a file has changed since the plan was made.
    """

    def written(now: Files) -> Files:
        for path, data in now.items():
            if data != plan.before[path]:
                raise Conflict("file", path, expected="the planned version", actual="another")
        return {path: plan.after[path] for path in now}

    by = by.saying("Imported", plan.name)
    paths = list(plan.after)
    revisions: list[RevisionId] = []
    for start in range(0, len(paths), REVISION_FILES_MAX):
        batch = paths[start : start + REVISION_FILES_MAX]
        revision = workspace.change(batch, written, by=by)
        revisions += [revision] if revision else []
        on_progress(len(batch))
    return revisions


def recognised(source: Path) -> ImportKind:
    top = top_of(source)
    if kind_of(source) == "file":
        return "project" if source.name in _INSTRUCTIONS else "files"
    if MEMORY in top:
        is_claudes = source.name == "memory" and source.parent.parent.name == "projects"
        return "claude-memory" if is_claudes else "files"
    if source.parent.name == "projects" and (source / "memory" / MEMORY).is_file():
        return "claude-memory"
    if ".obsidian" in top:
        return "obsidian"
    _refuse_all_memories(source, top)
    if top & {*_INSTRUCTIONS, ".claude"}:
        return "project"
    return "files"


def _refuse_all_memories(source: Path, top: set[str]) -> None:
    """Refuse Claude Code's own directory: it holds a memory for each project, and many files that are no
    memory."""
    if "projects" not in top:
        return
    found = sorted(source.glob(f"projects/*/memory/{MEMORY}"))
    if found:
        named = "; ".join(f"harness import {memory.parent}" for memory in found[:3])
        rule = f"holds the memories of {len(found)} projects"
        raise Refused("source", str(source), rule, remedy=f"import one at a time: {named}")


def _enter(kind: ImportKind) -> Enter:
    def enter(name: str) -> bool:
        leaf = name.rpartition("/")[2]
        if leaf in _NEVER_ENTERED or "reserved" in (broken_rule(leaf) or ""):
            return False
        if kind == "project":
            return name in {".claude", ".claude/rules"}
        return not (kind == "obsidian" and leaf in {".obsidian", ".trash"})

    return enter


# --- where files belong -----------------------------------------------------------------------------


def _placed(kind: ImportKind, archive: Archive) -> Iterator[tuple[str, str, bytes]]:
    """Yield target, name in the archive, and bytes of every file that is imported."""
    for name, data in archive.files.items():
        if _LITTER.fullmatch(name.rpartition("/")[2]) or is_editor_file(name):
            archive.left.append(SkippedFile(name, "belongs to another program"))
            continue
        match kind:
            case "files":
                yield name, name, data
            case "obsidian":
                yield f"notes/{name}", name, data
            case "claude-memory":
                yield name if name == MEMORY else f"notes/{name}", name, _relinked(name, data)
            case "project":
                yield from _instructions(name, data, archive)


def _note(name: str) -> str:
    """Return the place of a file that is imported alone."""
    return name if name in _LISTS else f"notes/{name}"


def _relinked(name: str, data: bytes) -> bytes:
    """Return the index with its links changed to the new place of the notes."""
    if name != MEMORY:
        return data
    return _LINK.sub(r"\1notes/\3", data.decode(errors="surrogateescape")).encode(
        errors="surrogateescape"
    )


def _instructions(name: str, data: bytes, archive: Archive) -> Iterator[tuple[str, str, bytes]]:
    plain = name.removeprefix(".claude/")
    if plain.startswith("rules/"):
        yield f"notes/{plain}", name, data
        return
    if plain not in _INSTRUCTIONS:
        archive.left.append(SkippedFile(name, "is not an instruction for agents"))
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        archive.left.append(SkippedFile(name, "is not text"))
        return
    for mentioned in re.findall(r"(?m)(?:^|\s)@([\w./~-]+\.md)\b", text):
        if mentioned not in _INSTRUCTIONS:
            archive.left.append(
                SkippedFile(mentioned, f"is mentioned in {name}; import it by itself")
            )
    if len(text.splitlines()) <= INLINE_LINES_MAX:
        section = render("import/section.md", source=name, text=lowered(text.strip(), 2))
        yield MEMORY, name, as_bytes(f"{section}\n")
        return
    path = f"notes/{plain}"
    pointer = render("import/pointer.md", source=name, path=path)
    yield path, name, data
    yield MEMORY, name, as_bytes(f"{pointer}\n")


# --- comparing with the workspace -------------------------------------------------------------------


class _ImportedTree:
    """The workspace as it will be, file by file."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        tree = workspace.tree.scan()
        self._quota = workspace.record.config.quota
        self._bytes = tree.bytes
        self._names = {path: path for path in tree.files}
        self._spelled: dict[str, str] = {}
        for path in tree.files:
            self._spell(path)
        self._before: dict[WorkspacePath, bytes | None] = {}
        self.files: dict[WorkspacePath, bytes] = {}
        self.changed: set[WorkspacePath] = set()
        self.items: list[ImportItem] = []
        self.left: list[SkippedFile] = []

    def take(self, target: str, name: str, data: bytes) -> None:
        near = nearest_path(target)
        if near is None:
            self.left.append(SkippedFile(name, f"its name {broken_rule(target)}"))
            return
        path = self._as_spelled(near)
        blocked = self._blocked(path)
        if blocked is not None:
            self.left.append(SkippedFile(name, blocked))
            return
        fate, path, data = self._decide_fate(path, data)
        if fate in {"new", "merged", "beside"}:
            if len(data) > self._quota.file_bytes:
                self.left.append(SkippedFile(name, f"would make {path} larger than a file may be"))
                return
            self._put(path, data)
        self.items.append(ImportItem(name, path, fate, path != target and fate != "beside"))

    def read_before(self, path: WorkspacePath) -> bytes | None:
        if path not in self._before:
            try:
                self._before[path] = self._workspace.read(path).data
            except NotFound:
                self._before[path] = None
        return self._before[path]

    def check_quota(self) -> None:
        size = self._bytes
        for path in self.changed:
            size += len(self.files[path]) - len(self.read_before(path) or b"")
        for what, unit, maximum, actual in (
            ("size", "bytes", self._quota.bytes, size),
            ("files", "files", self._quota.files, len(self._names)),
        ):
            if actual > maximum:
                raise OverLimit(
                    f"{what} of the workspace", maximum=maximum, actual=actual, unit=unit
                )

    def _decide_fate(self, path: WorkspacePath, data: bytes) -> tuple[Fate, WorkspacePath, bytes]:
        current = self._read(path)
        if current is None:
            return "new", path, data
        if current == data:
            return "same", path, data
        if path in _LISTS and _is_text(current) and _is_text(data):
            united = union(current.decode(), data.decode()).encode()
            return ("same" if united == current else "merged"), path, united
        version = version_of(data)
        if self._workspace.find_version(path, version) is not None:
            return "known", path, data
        stem, dot, ending = path.rpartition(".")
        if not dot or "/" in ending:
            stem, ending = path, ""
        beside = WorkspacePath(f"{stem}.imported-{version[:12]}{dot and f'.{ending}'}")
        return ("same" if self._read(beside) == data else "beside"), beside, data

    def _read(self, path: WorkspacePath) -> bytes | None:
        return self.files[path] if path in self.files else self.read_before(path)

    def _put(self, path: WorkspacePath, data: bytes) -> None:
        self.files[path] = data
        self._names[path] = path
        self._spell(path)
        if data != self.read_before(path):
            self.changed.add(path)

    def _blocked(self, path: WorkspacePath) -> str | None:
        for prefix in _prefixes(path)[:-1]:
            if prefix in self._names:
                return f"would lie below {prefix}, which is a file"
        if path not in self._names and folded(path) in self._spelled:
            return "has the name of a directory"
        return None

    def _spell(self, path: str) -> None:
        for prefix in _prefixes(path):
            self._spelled.setdefault(folded(prefix), prefix)

    def _as_spelled(self, path: WorkspacePath) -> WorkspacePath:
        """Return the existing spelling of a path. A name that differs only in case is the existing name."""
        for prefix in reversed(_prefixes(path)):
            known = self._spelled.get(folded(prefix))
            if known is not None:
                return WorkspacePath(known + path[len(prefix) :])
        return path


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _prefixes(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
