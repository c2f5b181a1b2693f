"""Moving in: what a person has already, in the places where it belongs in a workspace.

    a parcel ──► recognise ──► place each file ──► settle with what is there ──► plan ──► carry out

Nothing is overwritten. MEMORY.md and TASKS.md are lists of statements and take up what is new to them;
any other file whose name is taken is put beside the one that is there. A version that the history has is
known already, so the same parcel may be brought again and again. The plan is made first and can be looked
at; carrying it out is refused where somebody has written meanwhile.
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
"""Files: each keeps its place. Project: its instructions for agents (CLAUDE.md, AGENTS.md, rules). The
memory folder that Claude Code keeps for a project. A vault of Obsidian's."""

Fate = Literal["new", "same", "known", "merged", "beside"]
"""Same: there already. Known: an older version of what is there. Beside: the name was taken."""

INLINE_LINES_MAX = 150
"""Instructions up to this length go into MEMORY.md, which is in every prompt; longer ones into a note."""

REVISION_FILES_MAX = 500
"""One import of more files is several revisions, so that nobody waits for the lock for long."""

MEMORY, TASKS = "MEMORY.md", "TASKS.md"

_LISTS = {MEMORY, TASKS}
_INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md")
_LITTER = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\._.+", re.IGNORECASE)
_NEVER_ENTERED = {"__MACOSX", "node_modules", "__pycache__", ".venv"}
_LINK = re.compile(r"(\]\()(\./)?([^()\s:]+\.md)(?=[)#])")


@dataclass(frozen=True, slots=True)
class ImportItem:
    """One file of the parcel, and what becomes of it."""

    source: str
    path: WorkspacePath
    fate: Fate
    renamed: bool
    """Its name could not be kept."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    name: str
    """Of what is imported, as the history shall name it."""
    kind: ImportKind
    items: tuple[ImportItem, ...]
    left: tuple[SkippedFile, ...]
    before: Files
    after: Files
    """What changes: the files as the plan saw them, and as they shall be."""


def plan_import(source: Path, workspace: Workspace, kind: ImportKind | None = None) -> ImportPlan:
    """`kind` None: recognised by what lies there."""
    source = source.expanduser().absolute()
    name = source.name
    kind = kind or recognised(source)
    if kind == "claude-memory" and MEMORY not in top_of(source):
        source = source / "memory"
    parcel = unpack(source, workspace.record.config.quota, enter=_enter(kind))
    if kind == "files" and kind_of(source) == "file" and name.endswith(".md"):
        parcel.files = {_note(name): data for name, data in parcel.files.items()}
    desk = _Desk(workspace)
    for target, found, data in sorted(_placed(kind, parcel)):
        desk.take(target, found, data)
    desk.check_room()
    left = (*parcel.left, *desk.left)
    after = {path: desk.files[path] for path in sorted(desk.changed)}
    before = {path: desk.read_before(path) for path in after}
    return ImportPlan(name, kind, tuple(desk.items), left, before, after)


def carry_out(
    plan: ImportPlan, workspace: Workspace, *, by: Author, told: Callable[[int], None]
) -> list[RevisionId]:
    """`told` hears how many files are done. Conflict where a file is not what the plan saw."""

    def written(now: Files) -> Files:
        for path, data in now.items():
            if data != plan.before[path]:
                raise Conflict("file", path, expected="what was planned on", actual="another")
        return {path: plan.after[path] for path in now}

    by = by.saying("Imported", plan.name)
    paths = list(plan.after)
    revisions: list[RevisionId] = []
    for start in range(0, len(paths), REVISION_FILES_MAX):
        batch = paths[start : start + REVISION_FILES_MAX]
        revision = workspace.change(batch, written, by=by)
        revisions += [revision] if revision else []
        told(len(batch))
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
    """Claude Code's own directory holds a memory for each project, and much that is none."""
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


# --- where things belong ----------------------------------------------------------------------------


def _placed(kind: ImportKind, parcel: Archive) -> Iterator[tuple[str, str, bytes]]:
    """Target, name in the parcel, and bytes of every file that is taken."""
    for name, data in parcel.files.items():
        if _LITTER.fullmatch(name.rpartition("/")[2]) or is_editor_file(name):
            parcel.left.append(SkippedFile(name, "is kept by a program for itself"))
            continue
        match kind:
            case "files":
                yield name, name, data
            case "obsidian":
                yield f"notes/{name}", name, data
            case "claude-memory":
                yield name if name == MEMORY else f"notes/{name}", name, _relinked(name, data)
            case "project":
                yield from _instructions(name, data, parcel)


def _note(name: str) -> str:
    """Where a file belongs that comes alone."""
    return name if name in _LISTS else f"notes/{name}"


def _relinked(name: str, data: bytes) -> bytes:
    """The index leads to its notes where they lie now."""
    if name != MEMORY:
        return data
    return _LINK.sub(r"\1notes/\3", data.decode(errors="surrogateescape")).encode(
        errors="surrogateescape"
    )


def _instructions(name: str, data: bytes, parcel: Archive) -> Iterator[tuple[str, str, bytes]]:
    plain = name.removeprefix(".claude/")
    if plain.startswith("rules/"):
        yield f"notes/{plain}", name, data
        return
    if plain not in _INSTRUCTIONS:
        parcel.left.append(SkippedFile(name, "is no instruction for agents"))
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        parcel.left.append(SkippedFile(name, "is not text"))
        return
    for mentioned in re.findall(r"(?m)(?:^|\s)@([\w./~-]+\.md)\b", text):
        if mentioned not in _INSTRUCTIONS:
            parcel.left.append(
                SkippedFile(mentioned, f"is mentioned in {name}; import it by itself")
            )
    if len(text.splitlines()) <= INLINE_LINES_MAX:
        told = render("import/section.md", source=name, text=lowered(text.strip(), 2))
        yield MEMORY, name, as_bytes(f"{told}\n")
        return
    path = f"notes/{plain}"
    told = render("import/pointer.md", source=name, path=path)
    yield path, name, data
    yield MEMORY, name, as_bytes(f"{told}\n")


# --- settling with what is there --------------------------------------------------------------------


class _Desk:
    """The workspace as it will be, file by file."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        tree = workspace.scan()
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
        fate, path, data = self._settled(path, data)
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

    def check_room(self) -> None:
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

    def _settled(self, path: WorkspacePath, data: bytes) -> tuple[Fate, WorkspacePath, bytes]:
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
        """A name that differs from one that is there only in case is that one."""
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
