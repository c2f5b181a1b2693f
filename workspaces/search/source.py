"""The sources of an index's texts, and how the index detects that a text has changed.

A *state* is a short text that differs whenever the content differs. For the live tree it is the file
system's metadata of a file; for a revision it is git's id of the bytes. Writers do not notify an index, so
no writer can forget to. Every query compares the states first.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from typing import Protocol

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound
from workspaces.history.history import History
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.revision import RevisionId
from workspaces.tree.directory import FileBlobs
from workspaces.tree.scan import YOUNG_S

ENDINGS = (".md", ".markdown")

UNSURE = "~"
"""Prefix of the state of a file that has just changed: another write could have the same time stamp. The
index reads such a file again for each query until it is older."""


class TextSource(Protocol):
    """A set of texts to index."""

    def states(self) -> Mapping[str, str]:
        """Return the state of every text, by name."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a text, or None if it was removed or cannot be read."""
        ...


class LiveTexts:
    """The Markdown files of a workspace as they are now, including changes that are in no revision yet."""

    def __init__(
        self,
        blobs: FileBlobs,
        clock: Clock,
        readable: Callable[[WorkspacePath, bytes], bytes] = lambda _path, data: data,
    ) -> None:
        """`readable` returns the content that counts for readers, from what is on the disk."""
        self._blobs = blobs
        self._clock = clock
        self._readable = readable
        self._are_texts: dict[str, bool] = {}
        """Whether each name is a text's. With ten thousand files, repeating the check is most of the work."""

    def states(self) -> Mapping[str, str]:
        young = (self._clock.now().timestamp() - YOUNG_S) * 1e9
        states: dict[str, str] = {}
        known, self._are_texts = self._are_texts, {}
        for name, status in self._blobs.walk():
            is_text = known[name] if name in known else _is_text(name)
            self._are_texts[name] = is_text
            if not is_text or stat.S_ISDIR(status.st_mode):
                continue
            changed = max(status.st_mtime_ns, status.st_ctime_ns)
            state = f"{status.st_size} {changed} {status.st_ino}"
            states[name] = state if changed < young else UNSURE + state
        return states

    def read(self, name: str) -> bytes | None:
        try:
            return self._readable(WorkspacePath(name), self._blobs.read(name).data)
        except NotFound:
            return None
        except Failure:  # an unreadable file: the scan of the tree lists it as a problem
            return b""


class RevisionTexts:
    """The Markdown files of a revision."""

    def __init__(self, history: History, revision: RevisionId | None) -> None:
        self._history = history
        self._files = history.tree(revision)

    def states(self) -> Mapping[str, str]:
        return {name: blob for name, blob in self._files.items() if _is_text(name)}

    def read(self, name: str) -> bytes | None:
        return self._history.read(self._files[WorkspacePath(name)])


def _is_text(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and broken_rule(name) is None
