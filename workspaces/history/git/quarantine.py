"""A quarantine: unpack and check untrusted bundles before their objects enter the history.

Any program with access to the bucket can put anything there. So a bundle is unpacked beside the history, in
a separate git directory, and checked completely before any of it counts. Git itself accepts only objects
that are well-formed and complete (`index-pack --strict`), within limits of memory and time. Then every tree
must hold only regular files, under names that are valid in workspace paths: no link, no submodule, nothing
that git or this system would look for. Every directory must fit into a path, and every revision must have a
valid stamp. A bundle that breaks a rule is refused as a whole.

Each bundle is unpacked in a stage of its own (`quarantine_stage`), which borrows the objects of the stages
before it. If the bundles build on nothing in the history, git does not see the history at all. Then a
complete set of objects refers to nothing outside, and need not be walked again.

`admit` moves the objects into the history, under the writer lock. Until then the history has none of them,
and a crash leaves a directory that the next packing removes. The objects become reachable only when
`History.follow` moves the branch, after everything that the new tip reaches was found to be present.

The contents of files are never checked here. A caller that knows from elsewhere what they must be can read
them before they are admitted (`files`). Git runs and reads no hook, filter or attribute, and a bundle has
no place for a configuration.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Generator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from workspaces.errors import NotFound, OverLimit, Refused, Unavailable
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX, parse_bundle
from workspaces.history.git.commit import parse_tree_and_stamp
from workspaces.history.git.object_view import ObjectView
from workspaces.history.git.objects import GitObjects, ObjectBatch, ObjectId, sync, unwritable
from workspaces.history.git.quarantine_stage import HELD_BYTES_MAX, ObjectListing, QuarantineStage
from workspaces.history.git.tree_check import TreeChecker, TreeNames, TreeSize
from workspaces.paths import PARTS_MAX, PATH_BYTES_MAX, WorkspacePath
from workspaces.revision import RevisionId
from workspaces.storage.blobs import BLOB_BYTES_MAX
from workspaces.timestamp import is_stamp

PREFIX = "incoming-"

OBJECTS_MAX = 1_000_000
"""Objects of all bundles together: more than a hundred thousand revisions."""

COMMIT_BYTES_MAX = 64 * 1024
"""Largest commit. Commits made here have a dozen lines of at most five hundred characters."""

TREES_BYTES_MAX = 512 * 2**20
"""Bytes of the trees and commits of all bundles together."""

FILES_MAX = 1_000_000
"""Files of one revision. A few small trees that contain each other can list more files than there are
atoms."""

LOOSE_MAX = 100
"""Most objects that are admitted as loose files. More stay in their pack."""


class Quarantine:
    """A quarantine beside one history. Its directory is removed when its block ends."""

    def __init__(self, git_directory: Path) -> None:
        self._history = git_directory
        self._objects = GitObjects(git_directory / "objects")
        self._tips: list[RevisionId] = []
        """Newest revisions of the bundles."""
        self._waiting: list[bytes] = []
        """Packs that are not unpacked yet."""
        self._stages: list[QuarantineStage] = []
        """Stages in the order in which they build on each other."""
        self._numbers = count()
        self._is_independent = True
        """True while no bundle builds on the history: the headers say so, and git did not contradict."""
        self._is_checked = True
        self._tree_checker = TreeChecker()
        self._names_of: dict[ObjectId, TreeNames] = {}
        self._trees: dict[ObjectId, bytes] = {}
        """Bytes of the trees that contain directories."""
        self._extents: dict[ObjectId, TreeSize] = {}
        """Full sizes of the trees that contain directories."""
        self._shared_extents: dict[TreeSize, TreeSize] = {}
        """One object for each size: thousands of trees have the same size."""
        self._revisions: set[str] = set()
        self._objects_seen = self._trees_bytes = 0
        try:
            self._directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=git_directory))
        except OSError as error:
            raise unwritable(error) from error

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def take(self, data: bytes) -> RevisionId:
        """Take in a bundle and return its newest revision. It is unpacked later.

        Raises: Refused when it is no bundle; OverLimit when it is too large; NotFound when it builds on a
        revision that is neither here nor in the history."""
        if len(data) > BUNDLE_BYTES_MAX:
            raise OverLimit(
                "size of a bundle", maximum=BUNDLE_BYTES_MAX, actual=len(data), unit="bytes"
            )
        bundle = parse_bundle(data)
        for revision in bundle.known:
            if revision in self._tips:
                continue
            self._is_independent = False
            if not self._is_in_history(revision):
                raise NotFound("revision", revision, remedy="the bundle before it is missing")
        if sum(map(len, self._waiting)) + len(bundle.pack) > BUNDLE_BYTES_MAX:
            self._unpack_waiting()
        self._is_checked = False
        self._waiting.append(bundle.pack)
        self._tips.append(bundle.tip)
        return bundle.tip

    def check(self) -> None:
        """Unpack all bundles and check their objects.

        Raises: Refused when an object breaks a rule; OverLimit when a limit is exceeded."""
        self._unpack_waiting()
        for tip in self._tips:
            if tip not in self._revisions and not self._is_in_history(tip):
                raise Refused("bundle", tip, "is named as the newest revision but is missing")
        self._is_checked = True

    def admit(self) -> None:
        """Move all objects into the history, durably, after a check if none was made yet. The caller holds
        the writer lock.

        Raises: Refused and OverLimit as `check` does; Unavailable when the disk cannot be written."""
        if not self._is_checked:
            self.check()
        sizes = [size for stage in self._stages for size in stage.objects_unpacked().sizes]
        if len(sizes) <= LOOSE_MAX and sum(sizes) <= HELD_BYTES_MAX:  # few and small: loose files
            batch = ObjectBatch(self._history / "objects")
            for stage in self._stages:
                for kind, _, data in stage.read():
                    batch.add(kind, data)
            batch.sync()
            return
        packs = self._history / "objects" / "pack"
        try:
            packs.mkdir(exist_ok=True)
            for file in (file for stage in self._stages for file in stage.durable_files()):
                file.rename(packs / file.name)
            sync(packs)
        except OSError as error:
            raise unwritable(error) from error

    def files(
        self, revision: RevisionId, wanted: Collection[WorkspacePath]
    ) -> Generator[tuple[WorkspacePath, bytes]]:
        """Yield the wanted files of a checked revision, as many as fit into memory. A caller that stops early
        must close the generator.

        Raises: Unavailable when git cannot read a file."""
        alternates = [*(stage.objects for stage in self._stages), self._history / "objects"]
        view = ObjectView(self._directory / str(next(self._numbers)), alternates=alternates)
        return view.files(revision, wanted)

    def is_self_contained(self, revision: RevisionId) -> bool:
        """Return True if everything reachable from a revision is known to be in this quarantine: git found it
        without seeing the history."""
        return self._is_checked and self._is_independent and revision in self._tips

    def _is_in_history(self, revision: RevisionId) -> bool:
        try:
            self._objects.read(revision)
        except Unavailable:
            return False
        return True

    def _unpack_waiting(self) -> None:
        """Unpack and check the waiting packs."""
        packs, self._waiting = self._waiting, []
        for pack in packs:
            self._check_stage(self._unpack(pack))

    def _unpack(self, pack: bytes) -> QuarantineStage:
        if self._is_independent:
            try:
                return self._new_stage(pack)
            except Refused:  # it builds on the history, although its header does not say so
                self._is_independent = False
        return self._new_stage(pack)

    def _new_stage(self, pack: bytes) -> QuarantineStage:
        alternates = [stage.objects for stage in self._stages]
        if not self._is_independent:
            alternates.append(self._history / "objects")
        directory = self._directory / str(next(self._numbers))
        stage = QuarantineStage(directory, pack, alternates=alternates)
        self._stages.append(stage)
        return stage

    def _check_stage(self, stage: QuarantineStage) -> None:
        roots: set[ObjectId] = set()
        with closing(stage.read(("commit", "tree"), self._check_sizes)) as objects:
            for kind, name, data in objects:
                if kind == "tree":
                    self._check_tree(name, data)
                else:
                    roots.add(_check_commit(RevisionId(name), data))
                    self._revisions.add(name)
        for root in roots:
            self._check_extent(root)

    def _check_sizes(self, listing: ObjectListing) -> None:
        self._objects_seen += len(listing.ids)
        if self._objects_seen > OBJECTS_MAX:
            raise OverLimit(
                "objects of a bundle",
                maximum=OBJECTS_MAX,
                actual=self._objects_seen,
                unit="objects",
            )
        limits = {"blob": BLOB_BYTES_MAX, "commit": COMMIT_BYTES_MAX, "tree": HELD_BYTES_MAX}
        for kind, name, size in zip(*listing, strict=True):
            if kind not in limits:
                raise Refused("bundle", name, f"is a {kind}, which no history may contain")
            if size > limits[kind]:
                limit = f"size of a {kind} in a bundle"
                raise OverLimit(limit, maximum=limits[kind], actual=size, unit="bytes")
            if kind != "blob":
                self._trees_bytes += size
        if self._trees_bytes > TREES_BYTES_MAX:
            raise OverLimit(
                "trees of a bundle",
                maximum=TREES_BYTES_MAX,
                actual=self._trees_bytes,
                unit="bytes",
            )

    def _check_tree(self, tree: ObjectId, data: bytes) -> TreeNames:
        names = self._names_of[tree] = self._tree_checker.check(data)
        if names.directories:
            self._trees[tree] = data
        return names

    def _check_extent(self, root: ObjectId) -> None:
        extent = self._extent(root, PARTS_MAX)
        if extent.bytes > PATH_BYTES_MAX:
            raise Refused("bundle", root, f"has a path longer than {PATH_BYTES_MAX} bytes")
        if extent.files > FILES_MAX:
            raise OverLimit(
                "files of a revision", maximum=FILES_MAX, actual=extent.files, unit="files"
            )

    def _extent(self, tree: ObjectId, parts_left: int) -> TreeSize:
        extent = self._extents.get(tree)
        if extent is None:
            if parts_left == 0:
                raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
            names = self._names_of.get(tree) or self._check_tree(tree, self._history_tree(tree))
            extent = names.extent
            if names.directories:
                for length, child in names.below(self._trees[tree]):
                    extent = extent.with_directory(length, self._extent(child, parts_left - 1))
                self._extents[tree] = extent = self._shared_extents.setdefault(extent, extent)
        if extent.parts > parts_left:
            raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
        return extent

    def _history_tree(self, tree: ObjectId) -> bytes:
        """Return a tree that the bundle lacks, from the history.

        Raises: Refused when the history lacks it too."""
        try:
            return self._objects.read(tree)
        except Unavailable as failure:
            raise Refused("bundle", tree, "is missing in the bundle and the history") from failure


def _check_commit(revision: RevisionId, data: bytes) -> ObjectId:
    tree, at = parse_tree_and_stamp(revision, data)
    if not is_stamp(at):
        raise Refused("bundle", revision, f"has the invalid stamp {at!r}")
    return tree


def sweep(git_directory: Path, older_than: float) -> None:
    """Remove quarantine directories that killed processes left and that were begun before `older_than`."""
    for directory in git_directory.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if directory.stat().st_mtime < older_than:
                shutil.rmtree(directory, ignore_errors=True)
