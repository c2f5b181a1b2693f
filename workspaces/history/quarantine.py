"""A quarantine: bundles that came from elsewhere, and nobody has looked at them yet.

Whoever can write to the bucket can put anything there. So what comes is unpacked beside the history, in
a git directory of its own, and looked at whole before any of it counts: git itself takes only objects
that are well-formed and complete (`index-pack --strict`), within limits of memory and time; then every
tree must hold nothing but regular files under names that are paths of a workspace (no link, no
submodule, nothing that git or this system would look for), every directory must fit into a path, and
every revision must bear a stamp that can be reckoned with. What breaks a rule refuses the bundle, whole.

Bundles that build on each other are unpacked as one: git is started once, and not for each of them. Where
they cannot be (an object is in two of them, or one is bad) each is unpacked by itself. And where they build
on nothing that is in the history git does not see the history at all: then what is found complete leads
nowhere else, and need not be walked through again.

`admit` moves the objects over, under the writer lock: until then nothing of it is in the history, and a
crash leaves a directory that the next packing removes. Reachable it becomes only by the branch, which
`History.follow` moves, after everything that it leads to has been found to be there.

What is never read here: the contents of files. No hook, filter or attribute of anyone is looked at; a
bundle has no place for a configuration.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, cast

from workspaces.blobs import BLOB_BYTES_MAX
from workspaces.errors import NotFound, OverLimit, Refused, Unavailable
from workspaces.history.bundle import BUNDLE_BYTES_MAX, parse_bundle
from workspaces.history.commit import glance
from workspaces.history.git import reading_git, run_git
from workspaces.history.objects import Batch, ObjectId, Objects, sync, unwritable
from workspaces.history.packfile import joined
from workspaces.history.shape import Shape, Shapes
from workspaces.paths import PARTS_MAX, PATH_BYTES_MAX
from workspaces.revision import RevisionId
from workspaces.stamp import is_stamp

PREFIX = "incoming-"

OBJECTS_MAX = 1_000_000
"""A hundred thousand revisions and more."""

COMMIT_BYTES_MAX = 64 * 1024
"""Ours have a dozen lines of at most five hundred characters."""

TREES_BYTES_MAX = 512 * 2**20
"""Trees and commits of one bundle, all together, are read into memory in parts of `READ_BYTES`."""

READ_BYTES = 32 * 2**20

FILES_MAX = 1_000_000
"""Of one revision: a few small trees that name each other can spell out more files than there are atoms."""

LOOSE_MAX = 100
"""From so many objects on they stay in their pack."""


_Object = tuple[str, ObjectId, int]
"""Kind, id and size: nothing with a name is made twenty thousand times."""


class _Extent(NamedTuple):
    """How far a tree reaches."""

    files: int
    parts: int
    bytes: int
    """Of its longest path."""


class Quarantine:
    """Beside one history; gone when its block ends."""

    def __init__(self, git_directory: Path) -> None:
        self._history = git_directory
        self._objects = Objects(git_directory / "objects")
        self._shapes = Shapes()
        self._shape_of: dict[ObjectId, Shape] = {}
        self._trees: dict[ObjectId, bytes] = {}
        """Those with directories."""
        self._extents: dict[ObjectId, _Extent] = {}
        """Of those with directories."""
        self._found: list[_Object] | None = None
        self._tips: list[RevisionId] = []
        """Of the bundles that were taken."""
        self._waiting: list[bytes] = []
        """Packs that are not unpacked yet."""
        self._unpacked = 0
        """How often something was."""
        self._stands_alone = True
        """Nothing that was taken says that it builds on something in the history."""
        self._is_checked = True
        self._is_whole = False
        """It was unpacked without the history, and everything it leads to was found."""
        try:
            self._directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=git_directory))
            for name in ("refs", "objects/pack", "objects/info"):
                (self._directory / name).mkdir(parents=True)
            (self._directory / "HEAD").write_text("ref: refs/heads/main\n")
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
            self._unpack_waiting()
        self._found, self._is_checked = None, False
        self._waiting.append(bundle.pack)
        self._tips.append(bundle.tip)
        return bundle.tip

    def _is_in_history(self, revision: RevisionId) -> bool:
        try:
            self._objects.read(revision)
        except Unavailable:
            return False
        return True

    def admit(self) -> None:
        """All of it, once it was checked, into the history, durably; under the writer lock."""
        if not self._is_checked:
            self.check()
        found = self._listed()
        if len(found) <= LOOSE_MAX and sum(size for _, _, size in found) <= READ_BYTES:
            batch = Batch(self._history / "objects")
            for (kind, _, _), data in self._read(found):
                batch.add(kind, data)
            batch.sync()
            return
        there = self._history / "objects" / "pack"
        try:
            there.mkdir(exist_ok=True)
            files = list((self._directory / "objects" / "pack").glob("pack-*"))
            for file in sorted(files, key=lambda file: file.suffix == ".idx"):  # it comes last
                sync(file)
                file.rename(there / file.name)
            sync(there)
        except OSError as error:
            raise unwritable(error) from error

    def leads_nowhere_else(self, revision: RevisionId) -> bool:
        """Whether everything a revision leads to is known to be in here."""
        return self._is_whole and revision in self._tips

    def _unpack_waiting(self) -> None:
        packs, self._waiting = self._waiting, []
        if not packs:
            return
        one = packs[0] if len(packs) == 1 else joined(packs)
        is_first, self._unpacked = self._unpacked == 0, self._unpacked + 1
        self._is_whole = False
        if one is not None and (len(packs) > 1 or self._stands_alone):
            with suppress(Refused):
                self._unpack(one, alternates=not self._stands_alone)
                self._is_whole = self._stands_alone and is_first
                return
        for pack in packs:
            self._unpack(pack, alternates=True)

    def _unpack(self, pack: bytes, *, alternates: bool) -> None:
        limit = f"--max-input-size={BUNDLE_BYTES_MAX}"
        try:
            self._git(
                "-c",
                f"core.bigFileThreshold={READ_BYTES}",
                "index-pack",
                "--stdin",
                "--fix-thin",
                "--strict",
                limit,
                alternates=alternates,
                told=pack,
            )
        except Unavailable as failure:
            raise Refused("bundle", "in S3", f"is not good: {failure.reason}") from failure

    def _listed(self) -> list[_Object]:
        """What has been unpacked, and nothing of the history; it is asked for when all of it is here."""
        if self._found is not None:
            return self._found
        self._unpack_waiting()
        out = self._git(
            "cat-file",
            "--batch-all-objects",
            "--unordered",
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
        )
        words = out.decode().split()
        names = cast("list[ObjectId]", words[1::3])
        self._found = list(zip(words[::3], names, map(int, words[2::3]), strict=True))
        return self._found

    def check(self) -> None:
        """Unpack all that was taken and look at it. Refused, OverLimit."""
        found = self._listed()
        revisions = {name for kind, name, _ in found if kind == "commit"}
        for tip in self._tips:
            if tip not in revisions and not self._is_in_history(tip):
                raise Refused("bundle", tip, "is named as its newest revision and is not in it")
        _check_sizes(found)
        roots: set[ObjectId] = set()
        for (kind, name, _), data in self._read([one for one in found if one[0] != "blob"]):
            if kind == "tree":
                self._look_at_tree(name, data)
            else:
                roots.add(_checked_commit(RevisionId(name), data))
        for root in roots:
            self._check_extent(root)
        self._is_checked = True

    def _look_at_tree(self, tree: ObjectId, data: bytes) -> Shape:
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

    def _extent(self, tree: ObjectId, parts_left: int) -> _Extent:
        found = self._extents.get(tree)
        if found is None:
            if parts_left == 0:
                raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
            shape = self._shape_of.get(tree) or self._look_at_tree(tree, self._known_tree(tree))
            if not shape.directories:
                return _Extent(shape.files, 1, shape.longest)
            files, parts, longest = shape.files, 1, shape.longest
            for length, child in shape.below(self._trees[tree]):
                extent = self._extent(child, parts_left - 1)
                files += extent.files
                parts = max(parts, 1 + extent.parts)
                longest = max(longest, length + 1 + extent.bytes)
            found = self._extents[tree] = _Extent(files, parts, longest)
        if found.parts > parts_left:
            raise Refused("bundle", tree, f"has a path of more than {PARTS_MAX} parts")
        return found

    def _known_tree(self, tree: ObjectId) -> bytes:
        """One that was here before."""
        try:
            return self._objects.read(tree)
        except Unavailable as failure:
            raise Refused("bundle", tree, "is not in it, and not here") from failure

    def _read(self, wanted: Sequence[_Object]) -> Iterator[tuple[_Object, bytes]]:
        """While git unpacks the next ones."""
        if not wanted:
            return
        told = "".join(f"{name}\n" for _, name, _ in wanted).encode()
        command = ("cat-file", "--batch", "--buffer")
        with reading_git(self._there(), *command, told=told, is_limited=True) as out:
            for one in wanted:
                size = one[2]
                head, data = out.readline(), out.read(size + 1)
                if not head.endswith(b" %d\n" % size) or len(data) <= size:
                    raise Unavailable("git cat-file", f"did not print {one[1]} as it listed it")
                yield one, data[:-1]

    def _there(self, *, alternates: bool = False) -> str:
        """`alternates`: together with what is in the history."""
        file = self._directory / "objects" / "info" / "alternates"
        if alternates:
            file.write_text(f"{self._history / 'objects'}\n")
        else:
            file.unlink(missing_ok=True)
        return f"--git-dir={self._directory}"

    def _git(self, *arguments: str, told: bytes = b"", alternates: bool = False) -> bytes:
        return run_git(self._there(alternates=alternates), *arguments, told=told, is_limited=True)


def _check_sizes(found: Sequence[_Object]) -> None:
    if len(found) > OBJECTS_MAX:
        raise OverLimit(
            "objects of a bundle", maximum=OBJECTS_MAX, actual=len(found), unit="objects"
        )
    limits = {"blob": BLOB_BYTES_MAX, "commit": COMMIT_BYTES_MAX, "tree": READ_BYTES}
    total = 0
    for kind, name, size in found:
        if kind not in limits:
            raise Refused("bundle", name, f"is a {kind}, and no history has one")
        if size > limits[kind]:
            what = f"size of a {kind} in a bundle"
            raise OverLimit(what, maximum=limits[kind], actual=size, unit="bytes")
        if kind != "blob":
            total += size
    if total > TREES_BYTES_MAX:
        raise OverLimit("trees of a bundle", maximum=TREES_BYTES_MAX, actual=total, unit="bytes")


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
