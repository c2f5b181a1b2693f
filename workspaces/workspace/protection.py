"""Put back what a model may not change.

Some parts of memory are a person's to set: a fact's pin and importance, a decision that is made. A model's
tools write files, and a shell knows no fields. So when a model's change is committed, those parts become what
they were before. The file then always says what counts, and the model is told.

A rule looks at one file before and after a change. The revision has the rest of the model's change, and a
trailer that says what was put back.

A forbidden text is nobody's to write. The gate finds it. An API refuses the write, and a file on the disk
stays there and is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from workspaces.errors import ForbiddenPlace
from workspaces.paths import WorkspacePath
from workspaces.revision import Author

TRAILER = "Put-Back"

_BY_PERSONS = ("api", "edit", "sync")
"""Revisions of persons, and those that repeat what another machine has committed. No rule applies to them."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """What a rule did to a change of one file."""

    path: WorkspacePath
    data: bytes | None
    """The file as it may be. None: no file."""
    what: str
    """What was put back, as in `pinned, importance`."""


Rule = Callable[[WorkspacePath, bytes | None, bytes | None, Author], PutBack | None]
"""Returns what is put back of a writer's change, from the file before and after it (None: no file). None:
nothing."""

IsKept = Callable[[WorkspacePath], bool]
"""Returns whether the first revision of a file is what counts, whatever a person makes of it later."""


class ForbiddenGate(Protocol):
    """What may not come into the files of a workspace, whoever writes it."""

    def version(self, *, is_fresh: bool = False) -> int:
        """Return a number that grows with every change of the rules. 0: nothing is forbidden.

        Other processes change the rules too. What they did in the last second may be missing, unless
        `is_fresh`. A caller that is about to keep a text asks so once, and the other calls follow.
        """
        ...

    def changed(
        self, path: str, before: bytes | None, after: bytes | None, /, *, take_pass: bool
    ) -> Sequence[ForbiddenPlace]:
        """Return the forbidden places that a change of a file brings. With `take_pass`, a rule that may pass
        once has passed, if nothing else of the change is forbidden."""
        ...

    def refused(self, places: Sequence[ForbiddenPlace]) -> None:
        """Count that a change was refused because of these places."""
        ...

    def mended(self, before: bytes | None, after: bytes) -> bytes | None:
        """Return the new bytes of a file with a mark in each forbidden place that the change brings.

        Return None for a file that must go whole, because it is no text.
        """
        ...


class OpenGate:
    """A gate that lets everything pass."""

    def version(self, *, is_fresh: bool = False) -> int:  # noqa: ARG002 - nothing ever changes
        return 0

    def changed(self, *_change: object, take_pass: bool) -> Sequence[ForbiddenPlace]:  # noqa: ARG002 - it finds nothing
        return ()

    def refused(self, places: Sequence[ForbiddenPlace]) -> None:
        pass

    def mended(self, before: bytes | None, after: bytes) -> bytes | None:  # noqa: ARG002 - as it is
        return after


class Protection:
    """The rules of a workspace."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        is_kept: IsKept = lambda _path: False,
        gate: ForbiddenGate | None = None,
    ) -> None:
        self._rules = rules
        self.is_kept = is_kept
        self.gate = gate or OpenGate()

    def gated(self, gate: ForbiddenGate) -> Protection:
        """Return the same rules with a gate."""
        return Protection(self._rules, self.is_kept, gate)

    def concerns(self, by: Author) -> bool:
        """Return True if the rules apply to this writer."""
        return bool(self._rules) and by.source not in _BY_PERSONS

    def of(
        self, path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
    ) -> PutBack | None:
        """Return the part of this writer's change that is put back, or None."""
        if not self.concerns(by) or before == after:
            return None
        for rule in self._rules:
            put_back = rule(path, before, after, by)
            if put_back is not None:
                return put_back
        return None


def told(by: Author, put_back: Collection[PutBack]) -> Author:
    """Return the author with a trailer that says what was put back."""
    if not put_back:
        return by
    return by.saying(TRAILER, " | ".join(f"{one.path}: {one.what}" for one in put_back))
