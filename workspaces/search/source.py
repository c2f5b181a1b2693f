"""Where an index has its texts from, and how it knows that one has changed.

A *state* is a short text that is different whenever the content is. The live tree's is what the file
system says of a file; a revision's is git's id of the bytes. Nobody has to tell an index of a change, and
so nobody can forget to: whoever asks a question has the states compared first.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
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
"""Begins the state of a file so young that another write could hide behind the same time stamp: it is
read again each time until it is older."""


class TextSource(Protocol):
    def states(self) -> Mapping[str, str]:
        """Every text there is, by name."""
        ...

    def read(self, name: str) -> bytes | None:
        """None when it is gone, or cannot be read."""
        ...


class LiveTexts:
    """The Markdown files of a workspace as they lie there now, also what nobody has made a revision of."""

    def __init__(self, blobs: FileBlobs, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._are_texts: dict[str, bool] = {}
        """Names are judged once: with ten thousand files that would be most of the work."""

    def states(self) -> Mapping[str, str]:
        young = (self._clock.now().timestamp() - YOUNG_S) * 1e9
        found: dict[str, str] = {}
        judged, self._are_texts = self._are_texts, {}
        for name, status in self._blobs.walk():
            is_text = judged[name] if name in judged else _is_text(name)
            self._are_texts[name] = is_text
            if not is_text or stat.S_ISDIR(status.st_mode):
                continue
            changed = max(status.st_mtime_ns, status.st_ctime_ns)
            state = f"{status.st_size} {changed} {status.st_ino}"
            found[name] = state if changed < young else UNSURE + state
        return found

    def read(self, name: str) -> bytes | None:
        try:
            return self._blobs.read(name).data
        except NotFound:
            return None
        except Failure:  # a problem, which a scan of the tree lists
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
