"""What the tools of one turn work on: the mounts, whose name the writing is in, and what was seen.

A tool writes only over what this conversation has seen. The desk remembers every file as it was last
read or written here: what others did to it since is then found by comparing, and nobody's change is
ever replaced unread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.agent import Mount
from workspaces.errors import Refused
from workspaces.ids import Namespace
from workspaces.parse import unknown_name
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.workspace import Written


@dataclass(frozen=True, slots=True)
class Change:
    """A revision that a tool has made."""

    workspace: str
    revision: RevisionId


class Desk:
    def __init__(self, mounts: Sequence[Mount], author: Callable[[str], Author]) -> None:
        """`author` names the one who writes, given the id of the tool call."""
        self.mounts = tuple(mounts)
        self.author = author
        self.changes: list[Change] = []
        self._seen: dict[tuple[Namespace, WorkspacePath], bytes] = {}

    def mount(self, name: str | None) -> Mount:
        """The named mount; for None the default, which is the first that is not private."""
        for mount in self.mounts:
            if mount.name == name or (name is None and not mount.is_private):
                return mount
        names = [mount.name for mount in self.mounts]
        if name is None:
            rule = "must be named: there is no default workspace"
            raise Refused("workspace", name, rule, remedy=f"there are: {', '.join(names)}")
        raise unknown_name("workspace", name, names)

    def writable(self, name: str | None) -> Mount:
        mount = self.mount(name)
        if not mount.is_writable:
            rule = "is mounted read-only here: it can be read, and nothing can be changed in it"
            raise Refused("workspace", mount.name, rule)
        return mount

    def see(self, mount: Mount, path: WorkspacePath, data: bytes) -> None:
        self._seen[mount.namespace, path] = data

    def seen(self, mount: Mount, path: WorkspacePath) -> bytes | None:
        """The file as this conversation knows it; None when it was never read here."""
        return self._seen.get((mount.namespace, path))

    def wrote(self, mount: Mount, written: Written, data: bytes) -> None:
        self.see(mount, written.path, data)
        if written.revision is not None:
            self.changes.append(Change(mount.name, written.revision))


def path_of(text: str) -> WorkspacePath:
    """A model's path: a leading slash means the root of the mount."""
    return WorkspacePath(text.removeprefix("/"))
