"""What the tools of one turn work on: the mounts, whose name the writing is in, and what was seen.

A tool writes only over what this conversation has seen. The desk remembers the version of every file
that was read or written in it, and a write carries it as its condition: nobody's change is ever
replaced unread. What was newly seen is stored with the results of the tools, so that the next turn,
in another process or on another day, begins where this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.agents.mounts import Mount
from harness.tools.programs import NO_WORKSHOP, ToolPrograms
from harness.tools.stored_results import StoredResults
from workspaces.errors import NotFound, Refused
from workspaces.file import File
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.storage.records import JsonObject
from workspaces.validation import nearest
from workspaces.workspace.workspace import Command, Written


@dataclass(frozen=True, slots=True)
class ToolRevision:
    """A revision that a tool has made."""

    workspace: str
    revision: RevisionId

    def as_json(self) -> JsonObject:
        return {"workspace": self.workspace, "revision": self.revision}


def tool_revision_of(data: JsonObject) -> ToolRevision:
    return ToolRevision(data["workspace"], RevisionId(data["revision"]))


COMPARED_MAX = 1_000
"""Names that a misspelt one is held against: 10 µs each."""

SeenVersions = Mapping[str, Version]
"""`<namespace>/<path>` → the version that the conversation knows."""


@dataclass(frozen=True, slots=True)
class ToolEffects:
    """What a tool has brought: stored with its result."""

    seen: SeenVersions
    changes: tuple[ToolRevision, ...]


NO_NEWS = ToolEffects({}, ())


class ToolContext:
    def __init__(
        self,
        mounts: Sequence[Mount],
        author: Callable[[str], Author],
        *,
        seen: SeenVersions | None = None,
        workshop: ToolPrograms = NO_WORKSHOP,
        results: StoredResults | None = None,
    ) -> None:
        """`author` names the one who writes, given the id of the tool call; without `results` nothing
        of a result is kept but what is shown."""
        self.mounts = tuple(mounts)
        self.author = author
        self.workshop = workshop
        self.results = results
        self.changes: list[ToolRevision] = []
        self._seen: dict[str, Version] = dict(seen or {})
        self._news: dict[str, Version] = {}
        self._told = 0

    def fork(self) -> ToolContext:
        """The same desk for one of several calls that run at once: what it brings can be told apart, and
        what it has seen all have."""
        aside = ToolContext(self.mounts, self.author, workshop=self.workshop, results=self.results)
        aside._seen = self._seen
        return aside

    def mount(self, name: str | None) -> Mount:
        """The named mount; for None the default, which is the first that is not private."""
        for mount in self.mounts:
            if mount.name == name or (name is None and not mount.is_private):
                return mount
        names = [mount.name for mount in self.mounts]
        if name is None:
            rule = "must be named: there is no default workspace"
            raise Refused("workspace", name, rule, remedy=f"there are: {', '.join(names)}")
        raise Refused("workspace", name, "is unknown", remedy=f"there are: {', '.join(names)}")

    def writable(self, name: str | None) -> Mount:
        mount = self.mount(name)
        if not mount.is_writable:
            rule = "is mounted read-only here: it can be read, and nothing can be changed in it"
            raise Refused("workspace", mount.name, rule)
        return mount

    def asked_to_write(self, name: str | None, path: str) -> Mount | None:
        """The mount, when somebody must allow that this is written. Raises Failure where it cannot be."""
        mount = self.writable(name)
        path_of(path)
        return mount if mount.is_asked_for else None

    def read(self, mount: Mount, path: WorkspacePath) -> File:
        """NotFound, with the file that may be meant."""
        try:
            return mount.workspace.read(path)
        except NotFound as error:
            names = [stat.name for stat in mount.workspace.find("", bool)]
            near = _meant(path, names)
            remedy = f"did you mean {near!r}?" if near else "see with glob what there is"
            raise NotFound(error.what, error.name, remedy=remedy) from error

    def see(self, mount: Mount, path: WorkspacePath, version: Version) -> None:
        self._seen[_key(mount, path)] = self._news[_key(mount, path)] = version

    def seen(self, mount: Mount, path: WorkspacePath) -> Version | None:
        """The file as this conversation knows it; None when it was never read here."""
        return self._seen.get(_key(mount, path))

    def wrote(self, mount: Mount, written: Written) -> None:
        if written.version is not None:
            self.see(mount, written.path, written.version)
        if written.revision is not None:
            self.changes.append(ToolRevision(mount.name, written.revision))

    def ran(self, mount: Mount, command: Command) -> None:
        """What a command has done. A file that it changed is known as it left it, if it was known as it
        found it: what others wrote there before is still to be read."""
        if command.revision is not None:
            self.changes.append(ToolRevision(mount.name, command.revision))
        for path, state in command.after.files.items():
            before = command.before.files.get(path)
            if before == state:
                continue
            if before is None or before.version == self.seen(mount, path):
                self.see(mount, path, state.version)

    def drain_effects(self) -> ToolEffects:
        """What was seen and changed since this was asked before."""
        news = ToolEffects(self._news, tuple(self.changes[self._told :]))
        self._news, self._told = {}, len(self.changes)
        return news


def _meant(path: WorkspacePath, names: Sequence[str]) -> str | None:
    """One of the same name elsewhere, as when the path begins with the mount's name; else one of nearly this
    path."""
    place, _, own = path.casefold().rpartition("/")
    same = [name for name in names if name.rpartition("/")[2].casefold() == own]
    beside = [name for name in names if name.rpartition("/")[0].casefold() == place]
    return min(same, key=len, default=None) or nearest(path, beside[:COMPARED_MAX])


def _key(mount: Mount, path: WorkspacePath) -> str:
    return f"{mount.namespace}/{path}"


def place_of(text: str | None) -> str:
    """A directory or a file, where "" is the root of the mount."""
    stripped = (text or "").removeprefix("/").removesuffix("/")
    return "" if stripped in {"", "."} else WorkspacePath(stripped)


def path_of(text: str) -> WorkspacePath:
    """A model's path: a leading slash means the root of the mount."""
    return WorkspacePath(text.removeprefix("/"))
