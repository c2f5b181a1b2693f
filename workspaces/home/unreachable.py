"""The remote side of shared workspaces in a home that has no bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workspaces.errors import Unavailable
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import Author
from workspaces.storage.blobs import Blob, Stat
from workspaces.workspace.remote_port import ObjectState, RemoteEntry

SET_PLACE = "set HARNESS_S3=s3://bucket/prefix, or `s3:` in harness.yaml"


class Unreachable:
    """The remote side of a shared workspace in a home that has no S3 location.

    The local files can be read and edited, but no change can be synced.
    """

    def known(self, path: WorkspacePath) -> ObjectState:
        del path
        raise _unreachable()

    def known_versions(self) -> Mapping[WorkspacePath, Version]:
        raise _unreachable()

    def ask(self, path: WorkspacePath, known: ObjectState, *, whole: bool = False) -> ObjectState:
        del path, known, whole
        raise _unreachable()

    def write(
        self, path: WorkspacePath, data: bytes | None, state: ObjectState, by: Author | None
    ) -> ObjectState:
        del path, data, state, by
        raise _unreachable()

    def agree(self, path: WorkspacePath, state: ObjectState) -> None:
        del path, state

    def refresh(self, path: WorkspacePath) -> None:
        del path
        raise _unreachable()

    def list(self) -> Sequence[RemoteEntry]:
        raise _unreachable()

    def problems(self) -> list[Problem]:
        return []


class UnreachableFiles:
    """The objects of a shared workspace in a home that has no S3 location."""

    def read(self, name: str) -> Blob:
        del name
        raise _unreachable()

    def walk(self, prefix: str = "") -> Iterator[Stat]:
        del prefix
        raise _unreachable()


def _unreachable() -> Unavailable:
    return Unavailable("S3", "this home has no S3 location", remedy=SET_PLACE)
