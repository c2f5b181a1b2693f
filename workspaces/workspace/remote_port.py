"""Define the port to the remote store, if several machines share a workspace's files.

The object of a file is the one place where all machines agree on its content. The store decides each write
by a condition on the object's token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from workspaces.history.git.objects import ObjectId
from workspaces.history.source import StatedOrigin
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import Author
from workspaces.storage.blobs import Token
from workspaces.timestamp import Stamp


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The object of one file, as far as this machine knows it."""

    agreed: Version | None
    """The version that both sides had last. None: there was no file."""
    version: Version | None
    """The version of the object. None: there is no object."""
    token: Token | None
    object_id: ObjectId | None
    """Finds the bytes in the history, if a revision here contains them."""
    data: bytes | None = None
    """The bytes, if the store has just sent them."""
    is_asked: bool = False
    """True if the store has said so during this call. False: it is what both sides had last."""
    is_agreed: bool = True
    """True if the baseline says the same, down to the token."""
    is_being_deleted: bool = False
    """True if this machine has begun to delete the object, and has no answer yet. If the object is gone, then
    no other machine deleted it, and a file that is here again is new."""
    origin: StatedOrigin | None = None
    """What the store says of the bytes' origin, if it has just sent them."""
    stamp: Stamp | None = None
    """After a write: the stamp that the store was told, for the revision to come."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """An object in the listing of the store."""

    path: WorkspacePath
    size: int
    version: Version | None
    """None if this machine has not fetched the object yet."""


class Remote(Protocol):
    """The remote store. Its decisions hold for every machine.

    Every method that asks the store raises Unavailable when it does not answer.
    """

    def known(self, path: WorkspacePath) -> ObjectState:
        """Return the state that both sides had last, without a request."""
        ...

    def known_versions(self) -> Mapping[WorkspacePath, Version]:
        """Return the versions that both sides had last, without a request."""
        ...

    def ask(self, path: WorkspacePath, known: ObjectState, *, whole: bool = False) -> ObjectState:
        """Return the present state of the object: one request, without the bytes if they are the known ones.
        With `whole`, always with the bytes."""
        ...

    def write(
        self, path: WorkspacePath, data: bytes | None, state: ObjectState, by: Author | None
    ) -> ObjectState:
        """Write the object, or delete it (None), if it still has this state. Return the new state. `by` is
        the author of the revision to come. None: the newest revision has the file like this already.

        Raises: Conflict when the object has another state. MassDeletion, without `by`, when the directory
        here is not the one that was synced last.
        """
        ...

    def agree(self, path: WorkspacePath, state: ObjectState) -> None:
        """Record that the file here has the state of the object. The caller holds the writer lock."""
        ...

    def refresh(self, path: WorkspacePath) -> None:
        """Bring the remote version of the file here, merged with what changed here. The caller does not hold
        the writer lock."""
        ...

    def list(self) -> Sequence[RemoteEntry]:
        """Return the objects that are files here or could be, ascending by path. One request for each
        thousand names."""
        ...

    def problems(self) -> list[Problem]:
        """Return the remote files that could not be brought here, as far as the remote was examined."""
        ...
