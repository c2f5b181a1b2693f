"""Conformance of the blob stores in memory and in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.blob_store import BlobStoreConformance
from workspaces.localfs.safe_open import SafeRoot
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.tree.directory import FileBlobs


class TestMemoryBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> MemoryBlobs:
        return MemoryBlobs()


class TestFileBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileBlobs]:
        (tmp_path / "tree").mkdir()
        (tmp_path / "staging").mkdir()
        store = FileBlobs(tmp_path / "tree", tmp_path / "staging")
        yield store
        store.close()


class TestFileBlobsWithoutOpenat2(TestFileBlobs):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileBlobs]:
        (tmp_path / "tree").mkdir()
        (tmp_path / "staging").mkdir()
        store = FileBlobs(
            tmp_path / "tree",
            tmp_path / "staging",
            open_tree=lambda root: SafeRoot(root, openat2=False),
        )
        yield store
        store.close()
