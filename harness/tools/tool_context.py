"""The context of a turn's tools: the mounts, the author of writes, and the file versions seen so far.

A tool overwrites only versions that this conversation has seen. The context remembers the version of every
file that was read or written, and a write carries it as its condition. So no unread change is ever replaced.
Newly seen versions are stored with the tools' results. The next turn, in another process or on another day,
continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.agents.mounts import Mount
from harness.tools.programs import NO_PROGRAMS, ToolPrograms
from harness.tools.stored_results import StoredResults
from workspaces.errors import NotFound, Refused, nearest
from workspaces.file import File
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.storage.records import JsonObject
from workspaces.workspace.decided_files import Written
from workspaces.workspace.workspace import Command

if TYPE_CHECKING:
    from harness.memory.blocks.agent_blocks import AgentBlocks


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
"""The most names that a misspelt path is compared with; each takes 10 µs."""

SeenVersions = Mapping[str, Version]
"""`<namespace>/<path>` → the version that the conversation knows."""


@dataclass(frozen=True, slots=True)
class ToolEffects:
    """The effects of a tool, stored with its result."""

    seen: SeenVersions
    changes: tuple[ToolRevision, ...]


NO_EFFECTS = ToolEffects({}, ())


class ToolContext:
    def __init__(
        self,
        mounts: Sequence[Mount],
        author: Callable[[str], Author],
        *,
        seen: SeenVersions | None = None,
        programs: ToolPrograms = NO_PROGRAMS,
        results: StoredResults | None = None,
        blocks: AgentBlocks | None = None,
    ) -> None:
        """Create the context. `author` returns the author of a write, given the id of the tool call. Without
        `results` only the shown text of a result is stored. Without `blocks` no tool reaches memory
        blocks."""
        self.mounts = tuple(mounts)
        self.author = author
        self.programs = programs
        self.results = results
        self.blocks = blocks
        self.changes: list[ToolRevision] = []
        self._seen: dict[str, Version] = dict(seen or {})
        self._new_versions: dict[str, Version] = {}
        self._drained = 0

    def fork(self) -> ToolContext:
        """Return a context for one of several calls that run at the same time. Its effects are its own, but
        all forks share the versions seen."""
        fork = ToolContext(
            self.mounts,
            self.author,
            programs=self.programs,
            results=self.results,
            blocks=self.blocks,
        )
        fork._seen = self._seen
        return fork

    def mount(self, name: str | None) -> Mount:
        """Return the named mount; for None the default, which is the first that is not private."""
        for mount in self.mounts:
            if mount.name == name or (name is None and not mount.is_private):
                return mount
        names = [mount.name for mount in self.mounts]
        if name is None:
            rule = "must be named: there is no default workspace"
            raise Refused("workspace", name, rule, remedy=f"there are: {', '.join(names)}")
        raise Refused("workspace", name, "is unknown", remedy=f"there are: {', '.join(names)}")

    @property
    def default_name(self) -> str | None:
        """Return the name of the default mount: the first that is not private."""
        return next((mount.name for mount in self.mounts if not mount.is_private), None)

    def writable(self, name: str | None) -> Mount:
        mount = self.mount(name)
        if not mount.is_writable:
            rule = "is mounted read-only here: it can be read, and nothing can be changed in it"
            others = [other.name for other in self.mounts if other.is_writable]
            remedy = f"writable: {', '.join(others)}" if others else None
            raise Refused("workspace", mount.name, rule, remedy=remedy)
        return mount

    def mount_to_approve(self, name: str | None, path: str) -> Mount | None:
        """Return the mount if a person must approve this write, else None.

        Raises: Failure if the write is not possible.
        """
        mount = self.writable(name)
        path_of(path)
        return mount if mount.is_asked_for else None

    def read(self, mount: Mount, path: WorkspacePath) -> File:
        """Return the file.

        Raises: NotFound with a similar path, if there is one.
        """
        try:
            return mount.workspace.read(path)
        except NotFound as error:
            names = [stat.name for stat in mount.workspace.find("", bool)]
            similar = _similar_path(path, names)
            remedy = f"did you mean {similar!r}?" if similar else "see with glob what there is"
            raise NotFound(error.what, error.name, remedy=remedy) from error

    def see(self, mount: Mount, path: WorkspacePath, version: Version) -> None:
        self._seen[_key(mount, path)] = self._new_versions[_key(mount, path)] = version

    def seen(self, mount: Mount, path: WorkspacePath) -> Version | None:
        """Return the version that this conversation has seen; None if the file was never read in it."""
        return self._seen.get(_key(mount, path))

    def record_write(self, mount: Mount, written: Written) -> None:
        if written.version is not None:
            self.see(mount, written.path, written.version)
        if written.revision is not None:
            self.changes.append(ToolRevision(mount.name, written.revision))

    def record_command(self, mount: Mount, command: Command) -> None:
        """Record the effects of a command. A file that the command changed counts as seen if the conversation
        knew the version before the command. Otherwise it still has to be read, because others had changed
        it."""
        if command.revision is not None:
            self.changes.append(ToolRevision(mount.name, command.revision))
        for path, state in command.after.files.items():
            before = command.before.files.get(path)
            if before == state:
                continue
            if before is None or before.version == self.seen(mount, path):
                self.see(mount, path, state.version)

    def drain_effects(self) -> ToolEffects:
        """Return the versions seen and the revisions made since the last call."""
        effects = ToolEffects(self._new_versions, tuple(self.changes[self._drained :]))
        self._new_versions, self._drained = {}, len(self.changes)
        return effects


def _similar_path(path: WorkspacePath, names: Sequence[str]) -> str | None:
    """Return the path that was probably meant: a file of the same name elsewhere, as when the path begins
    with the mount's name, else a similar path in the same directory."""
    directory, _, own = path.casefold().rpartition("/")
    same = [name for name in names if name.rpartition("/")[2].casefold() == own]
    siblings = [name for name in names if name.rpartition("/")[0].casefold() == directory]
    return min(same, key=len, default=None) or nearest(path, siblings[:COMPARED_MAX])


def _key(mount: Mount, path: WorkspacePath) -> str:
    return f"{mount.namespace}/{path}"


def place_of(text: str | None) -> str:
    """Return the path of a directory or a file, where "" is the root of the mount."""
    stripped = (text or "").removeprefix("/").removesuffix("/")
    return "" if stripped in {"", "."} else WorkspacePath(stripped)


def path_of(text: str) -> WorkspacePath:
    """Return a model's path. A leading slash means the root of the mount."""
    return WorkspacePath(text.removeprefix("/"))
