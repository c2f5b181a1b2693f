"""What a person should know after a turn and the reply does not say: changed memory, and memory not shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.agents.mounts import Mount
from harness.presentation.agent_memory import lines_left_out
from harness.tools.tool_context import ToolRevision
from workspaces.errors import NotFound
from workspaces.file import is_binary, size_text
from workspaces.workspace.workspace import Workspace

if TYPE_CHECKING:
    from harness.harness import Harness
    from harness.transcripts.outcome import Outcome


@dataclass(frozen=True, slots=True)
class TurnNotes:
    changes: tuple[str, ...] = ()
    """One line for each file that the turn changed."""
    lasting: tuple[str, ...] = ()
    """One line for each thing that stays so until somebody changes it: lines that do not fit, dead mounts."""


def turn_notes(harness: Harness, outcome: Outcome) -> TurnNotes:
    try:
        conversation = harness.conversations.get(outcome.conversation_id)
        agent = harness.agents.get(conversation.agent_id)
    except NotFound:  # deleted since
        return TurnNotes()
    mounts = harness.agents.bindings(agent)
    cut = [
        f"memory: {one.text} of {_place(mounts, one.mount, 'MEMORY.md')} did not fit into the prompt"
        for one in lines_left_out(harness, agent, mounts)
    ]
    gone = [
        f"mount {name!r} is gone: its workspace or sandbox was deleted (`harness status`)"
        for name in outcome.left_out
    ]
    return TurnNotes(tuple(_changes(mounts, outcome.changes)), (*cut, *gone))


def _changes(mounts: Sequence[Mount], changes: Sequence[ToolRevision]) -> Iterator[str]:
    """Yield a line for each file that the turn changed, with its added and removed lines."""
    workspaces = {mount.name: mount.here for mount in mounts if not mount.is_distant}
    files: dict[tuple[str, str], _FileTotal] = {}
    for change in changes:
        workspace = workspaces.get(change.workspace)
        if workspace is not None and workspace.history.has(change.revision):
            _count(files, change, workspace)
    for (mount, path), total in files.items():
        if summary := total.summary():
            yield f"memory: {_place(mounts, mount, path)} {summary}"


class _FileTotal:
    """The changes of one file, over all revisions of a turn."""

    def __init__(self) -> None:
        self._lines = Counter[bytes]()
        self._is_binary = False
        self._size: int | None = 0

    def add(self, before: bytes | None, after: bytes | None) -> None:
        self._is_binary = self._is_binary or is_binary(before or b"") or is_binary(after or b"")
        self._lines.update((after or b"").splitlines())
        self._lines.subtract((before or b"").splitlines())
        self._size = None if after is None else len(after)

    def summary(self) -> str:
        """Return the numbers of added and removed lines. A moved line counts as neither."""
        if self._size is None:
            return "deleted"
        if self._is_binary:
            return f"binary, {size_text(self._size)}"
        added = sum(count for count in self._lines.values() if count > 0)
        removed = -sum(count for count in self._lines.values() if count < 0)
        return " ".join([f"+{added}"] * bool(added) + [f"−{removed}"] * bool(removed))


def _count(
    files: dict[tuple[str, str], _FileTotal], change: ToolRevision, workspace: Workspace
) -> None:
    history = workspace.history
    parents = history.commit(change.revision).parents
    differing = history.differences(parents[0] if parents else None, change.revision)
    for path, (before, after) in differing.items():
        total = files.setdefault((change.workspace, path), _FileTotal())
        total.add(history.read(before) if before else None, history.read(after) if after else None)


def _place(mounts: Sequence[Mount], mount: str, path: str) -> str:
    """Return a path. In another mount than the default one, the name of the mount stands before it."""
    default = next((one.name for one in mounts if not one.is_private), None)
    return path if mount == default else f"{mount}/{path}"
