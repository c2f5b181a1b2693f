"""A quarantine: bundles that came from elsewhere, and nobody has looked at them yet.

Whoever can write to the bucket can put anything there. So what comes is unpacked beside the history, in
a git directory of its own, and looked at whole before any of it counts: git itself takes only objects
that are well-formed and complete (`index-pack --strict`), within limits of memory and time; then every
tree must hold nothing but regular files under names that are paths of a workspace (no link, no
submodule, nothing that git or this system would look for), every directory must fit into a path, and
every revision must bear a stamp that can be reckoned with. What breaks a rule refuses the bundle, whole.

Bundles that build on each other are unpacked as one: git is started once, and not for each of them. Where
they cannot be (an object is in two of them, or one is bad) each is unpacked by itself. A long history comes
in a few pieces, each in a chamber of its own (`chamber`) which sees those before it: while one is unpacked,
the one before it is looked at. And where they build on nothing that is in the history git does not see the
history at all: then what is found complete leads nowhere else, and need not be walked through again.

`admit` moves the objects over, under the writer lock: until then nothing of it is in the history, and a
crash leaves a directory that the next packing removes. Reachable it becomes only by the branch, which
`History.follow` moves, after everything that it leads to has been found to be there.

What is never looked at here: the contents of files. Whoever knows otherwise what they must be may have them
before they are admitted (`files`). No hook, filter or attribute of anyone is looked at; a bundle has no place
for a configuration.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from workspaces.errors import NotFound, OverLimit, Refused, Unavailable
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX, parse_bundle
from workspaces.history.git.commit import glance
from workspaces.history.git.object_view import ObjectView
from workspaces.history.git.objects import GitObjects, ObjectBatch, ObjectId, sync, unwritable
from workspaces.history.git.packfile import joined
from workspaces.history.git.quarantine_stage import HELD_BYTES_MAX, ObjectListing, QuarantineStage
from workspaces.history.git.tree_check import TreeChecker, TreeNames, TreeSize
from workspaces.paths import PARTS_MAX, PATH_BYTES_MAX, WorkspacePath
from workspaces.revision import RevisionId
from workspaces.storage.blobs import BLOB_BYTES_MAX
from workspaces.timestamp import is_stamp

PREFIX = "incoming-"

OBJECTS_MAX = 1_000_000
"""A hundred thousand revisions and more."""

COMMIT_BYTES_MAX = 64 * 1024
"""Ours have a dozen lines of at most five hundred characters."""

TREES_BYTES_MAX = 512 * 2**20
"""Trees and commits of all bundles together."""

FILES_MAX = 1_000_000
"""Of one revision: a few small trees that name each other can spell out more files than there are atoms."""

LOOSE_MAX = 100
"""From so many objects on they stay in their pack."""

PIECES = 2
"""Of a long history, at most: while two processors have something to do, git is not started often."""

PIECE_BYTES_MIN = 64 * 1024
"""Of packs. Less is unpacked and looked at sooner than git is started once more."""


class Quarantine:
    """Beside one history; gone when its block ends."""

    def __init__(self, git_directory: Path) -> None:
        self._history = git_directory
        self._objects = GitObjects(git_directory / "objects")
        self._tips: list[RevisionId] = []
        """Of the bundles that were taken."""
        self._waiting: list[bytes] = []
        """Packs that are not unpacked yet."""
        self._chambers: list[QuarantineStage] = []
        """In the order in which they build on each other."""
        self._numbers = count()
        self._stands_alone = True
        """Nothing that was taken builds on something in the history: so it says, and git found no other."""
        self._is_checked = True
        self._shapes = TreeChecker()
        self._shape_of: dict[ObjectId, TreeNames] = {}
        self._trees: dict[ObjectId, bytes] = {}
        """Those with directories."""
        self._extents: dict[ObjectId, TreeSize] = {}
        """Of those with directories."""
        self._same: dict[TreeSize, TreeSize] = {}
        """Thousands of trees reach equally far."""
        self._revisions: set[str] = set()
        self._objects_found = self._trees_bytes = 0
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
        """A bundle, to be unpacked together with others: its newest revision. Refused, OverLimit; NotFound
        when it builds on a revision that is not here."""
        if len(data) > BUNDLE_BYTES_MAX:
            raise OverLimit(
                "size of a bundle", maximum=BUNDLE_BYTES_MAX, actual=len(data), unit="bytes"
            )
        bundle = parse_bundle(data)
        for revision in bundle.known:
            if revision in self._tips:
                continue
            self._stands_alone = False
            if not self._is_in_history(revision):
                raise NotFound("revision", revision, remedy="the bundle before it is missing")
        if sum(map(len, self._waiting)) + len(bundle.pack) > BUNDLE_BYTES_MAX:
            self._let_in()
        self._is_checked = False
        self._waiting.append(bundle.pack)
        self._tips.append(bundle.tip)
        return bundle.tip

    def check(self) -> None:
        """Unpack all that was taken and look at it. Refused, OverLimit."""
        self._let_in()
        for tip in self._tips:
            if tip not in self._revisions and not self._is_in_history(tip):
                raise Refused("bundle", tip, "is named as its newest revision and is not in it")
        self._is_checked = True

    def admit(self) -> None:
        """All of it, once it was checked, into the history, durably; under the writer lock."""
        if not self._is_checked:
            self.check()
        sizes = [size for chamber in self._chambers for size in chamber.found().sizes]
        if len(sizes) <= LOOSE_MAX and sum(sizes) <= HELD_BYTES_MAX:
            batch = ObjectBatch(self._history / "objects")
            for chamber in self._chambers:
                for kind, _, data in chamber.read():
                    batch.add(kind, data)
            batch.sync()
            return
        there = self._history / "objects" / "pack"
        try:
            there.mkdir(exist_ok=True)
            for file in (file for chamber in self._chambers for file in chamber.durable_files()):
                file.rename(there / file.name)
            sync(there)
        except OSError as error:
            raise unwritable(error) from error

    def files(
        self, revision: RevisionId, wanted: Collection[WorkspacePath]
    ) -> Generator[tuple[WorkspacePath, bytes]]:
        """What a revision that was checked says of these, as far as they can be held. Unavailable. Close it
        where it is not gone through to the end."""
        seeing = [*(chamber.objects for chamber in self._chambers), self._history / "objects"]
        window = ObjectView(self._directory / str(next(self._numbers)), seeing=seeing)
        return window.files(revision, wanted)

    def leads_nowhere_else(self, revision: RevisionId) -> bool:
        """Whether everything a revision leads to is known to be in here: git, which did not see the history,
        has found it."""
        return self._is_checked and self._stands_alone and revision in self._tips

    def _is_in_history(self, revision: RevisionId) -> bool:
        try:
            self._objects.read(revision)
        except Unavailable:
            return False
        return True

    def _let_in(self) -> None:
        """What waits. While a piece of it is unpacked, the one before is looked at; while the last is looked
        at, what will stay in packs is made durable."""
        packs, self._waiting = self._waiting, []
        with ThreadPoolExecutor(1) as beside:
            looks = [beside.submit(self._look_at, chamber) for chamber in self._filled(packs)]
            if sum(map(len, packs)) >= PIECE_BYTES_MIN:
                for chamber in self._chambers:
                    chamber.durable_files()
        for look in looks:
            look.result()

    def _filled(self, packs: Sequence[bytes]) -> Iterator[QuarantineStage]:
        """Several packs are unpacked as one. Where they cannot be (an object is in two of them, or one is
        bad) each is by itself."""
        for piece in _pieces(packs):
            one = self._as_one(piece)
            if one is not None:
                yield one
                continue
            self._stands_alone = False  # whatever it says
            yield from map(self._chamber, piece)

    def _as_one(self, packs: Sequence[bytes]) -> QuarantineStage | None:
        one = packs[0] if len(packs) == 1 else joined(packs)
        if one is None or (len(packs) == 1 and not self._stands_alone):
            return None
        with suppress(Refused):
            return self._chamber(one)

    def _chamber(self, pack: bytes) -> QuarantineStage:
        seeing = [chamber.objects for chamber in self._chambers]
        if not self._stands_alone:
            seeing.append(self._history / "objects")
        chamber = QuarantineStage(self._directory / str(next(self._numbers)), pack, seeing=seeing)
        self._chambers.append(chamber)
        return chamber

    def _look_at(self, chamber: QuarantineStage) -> None:
        roots: set[ObjectId] = set()
        with closing(chamber.read(("commit", "tree"), self._check_sizes)) as read:
            for kind, name, data in read:
                if kind == "tree":
                    self._look_at_tree(name, data)
                else:
                    roots.add(_checked_commit(RevisionId(name), data))
                    self._revisions.add(name)
        for root in roots:
            self._check_extent(root)

    def _check_sizes(self, found: ObjectListing) -> None:
        self._objects_found += len(found.ids)
        if self._objects_found > OBJECTS_MAX:
            raise OverLimit(
                "objects of a bundle",
                maximum=OBJECTS_MAX,
                actual=self._objects_found,
                unit="objects",
            )
        limits = {"blob": BLOB_BYTES_MAX, "commit": COMMIT_BYTES_MAX, "tree": HELD_BYTES_MAX}
        for kind, name, size in zip(*found, strict=True):
            if kind not in limits:
                raise Refused("bundle", name, f"is a {kind}, and no history has one")
            if size > limits[kind]:
                what = f"size of a {kind} in a bundle"
                raise OverLimit(what, maximum=limits[kind], actual=size, unit="bytes")
            if kind != "blob":
                self._trees_bytes += size
        if self._trees_bytes > TREES_BYTES_MAX:
            raise OverLimit(
                "trees of a bundle",
                maximum=TREES_BYTES_MAX,
                actual=self._trees_bytes,
                unit="bytes",
            )

    def _look_at_tree(self, tree: ObjectId, data: bytes) -> TreeNames:
        shape = self._shape_of[tree] = self._shapes.of(data)
        if shape.directories:
            self._trees[tree] = data
        return shape

    def _check_extent(self, root: ObjectId) -> None:
        extent = self._extent(root, PARTS_MAX)
        if extent.bytes > PATH_BYTES_MAX:
            raise Refused("bundle", root, f"has a path longer than {PATH_BYTES_MAX} bytes")
        if extent.files > FILES_MAX:
            raise OverLimit(
                "files of a revision", maximum=FILES_MAX, actual=extent.files, unit="files"
            )

    def _extent(self, tree: ObjectId, parts_left: int) -> TreeSize:
        found = self._extents.get(tree)
        if found is None:
            if parts_left == 0:
                raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
            shape = self._shape_of.get(tree) or self._look_at_tree(tree, self._known_tree(tree))
            found = shape.extent
            if shape.directories:
                for length, child in shape.below(self._trees[tree]):
                    found = found.over(length, self._extent(child, parts_left - 1))
                self._extents[tree] = found = self._same.setdefault(found, found)
        if found.parts > parts_left:
            raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
        return found

    def _known_tree(self, tree: ObjectId) -> bytes:
        """One that was here before."""
        try:
            return self._objects.read(tree)
        except Unavailable as failure:
            raise Refused("bundle", tree, "is not in it, and not here") from failure


def _checked_commit(revision: RevisionId, data: bytes) -> ObjectId:
    tree, at = glance(revision, data)
    if not is_stamp(at):
        raise Refused("bundle", revision, f"bears the stamp {at!r}, which is none")
    return tree


def sweep(git_directory: Path, older_than: float) -> None:
    """Take away what killed processes have left, by when it was begun."""
    for left in git_directory.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if left.stat().st_mtime < older_than:
                shutil.rmtree(left, ignore_errors=True)


def _pieces(packs: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Neighbours, of about the same size together."""
    least = max(PIECE_BYTES_MIN, sum(map(len, packs)) // PIECES)
    piece: list[bytes] = []
    for pack in packs:
        piece.append(pack)
        if sum(map(len, piece)) >= least:
            yield piece
            piece = []
    if piece:
        yield piece
