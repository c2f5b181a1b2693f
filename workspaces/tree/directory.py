"""Blobs as plain files below one directory: the live tree of a workspace.

Others write here too, without asking: an editor, an agent's bash. So nothing read is trusted to stay,
every open goes `beneath` the root, and a conditional replacement is a **verified swap**:

    temporary file in `staging/` → write → fsync
    → [lock: compare → exchange the two files → look at what came out] → fsync of the directory

What came out is what the writer had seen, or somebody saved between the look and the exchange: then it
goes back, and the writer is told. A delete takes the file out, looks, and puts it back likewise.

A reader sees the old bytes or the new ones, and after a crash finds one of the two, never a mixture.
What fails before the swap leaves the old bytes; if only the last fsync fails, the new ones are in place,
whole, and `Unavailable` says that the disk has not confirmed them.

The lock is one of `staging`: it orders the conditional writes of all threads and processes that come
through this store. Those who do not come through it, an editor say, are met by the swap.

Whoever must look at a displaced file once more (sync: an append through a descriptor that was opened
before the swap goes to it) makes the moves of `live` one by one instead: there nothing is discarded.

Tokens are content hashes. Directories exist by having files: a deleted file takes its empty ones along.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path

from workspaces.conditions import ABSENT, ANY, Wildcard, is_met
from workspaces.errors import AlreadyExists, Conflict, NotFound, OverLimit, Unavailable
from workspaces.ids import version_of
from workspaces.localfs.permissions import DiskUsage, mend
from workspaces.localfs.safe_open import SafeRoot, as_failure
from workspaces.localfs.staging import FLUSHED_AT_ONCE, STAGED_PREFIX, Staging, fresh
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.storage.blobs import (
    BLOB_BYTES_MAX,
    NO_META,
    Blob,
    BlobName,
    Expect,
    Meta,
    Stat,
    Token,
    check_meta,
    check_name,
)
from workspaces.tree.port import LABEL_PREFIX, Examine, Label, Staged, another

REMOVED_DIRECTORY_TRIES_MAX = 100
"""An `rmdir` may fall between making a directory and using it; this many in a row are no accident."""

EXCHANGES_MAX = 20
"""Somebody who saves faster than files change places, twenty times, is no editor."""

TREE_DEPTH_MAX = 64
"""Deeper than any valid path: a scan does not follow a bash loop of `mkdir a; cd a` into the abyss."""


_IS_NO_DIRECTORY = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Gone, or swapped for something else."""


class FileBlobs:
    """`staging` must lie on the same file system as `root` and outside of it."""

    def __init__(
        self,
        root: Path,
        staging: Path,
        *,
        bytes_max: int = BLOB_BYTES_MAX,
        open_tree: Callable[[Path], SafeRoot] = SafeRoot,
    ) -> None:
        self._bytes_max = bytes_max
        self._root = root
        self._made_in: set[str] = set()
        """Directories in which `enter` has made others that are not durable yet."""
        try:
            tree = self._tree = open_tree(root)
            self._aside = Staging(staging, owner=lambda: tree.owner, bytes_max=bytes_max)
        except OSError as error:
            raise as_failure(error, str(root)) from error

    def close(self) -> None:
        self._tree.close()
        self._aside.close()

    def read(self, name: BlobName) -> Blob:
        data, _ = self._tree.read(check_name(name), bytes_max=self._bytes_max)
        return Blob(name, data, Token(version_of(data)))

    @contextmanager
    def examining(self) -> Generator[Examine]:
        with self._tree.reading(bytes_max=self._bytes_max) as read:
            yield lambda name: read(check_name(name))

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        """A token is what the bytes are: without them there is none to compare."""
        blob = self.read(name)
        return None if blob.token == since else blob

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        """`meta` is checked and left out: a plain file has no place for it."""
        check_name(name)
        check_meta(meta)
        if len(data) > self._bytes_max:
            raise OverLimit(
                f"size of {name!r}", maximum=self._bytes_max, actual=len(data), unit="bytes"
            )
        token = Token(version_of(data))
        try:
            temporary = self._aside.put(data)
            try:
                with self._aside.locked():
                    self._check(name, expect)
                    self._put(temporary, name, expect, token)
            finally:
                self._aside.discard(temporary)  # by now what was replaced, or what was not wanted
        except OSError as error:
            raise as_failure(error, name) from error
        return token

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        check_name(name)
        try:
            with self._aside.locked():
                self._check(name, expect)
                self._remove(name, expect)
        except OSError as error:
            raise as_failure(error, name) from error

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        for name, status in self.walk():
            if name and name.startswith(prefix) and _is_storable(name, status):
                yield Stat(name, status.st_size, None, status.st_mtime)

    def mend(self) -> DiskUsage:
        return mend(self._root)

    def find(self, directory: str, matches: Callable[[str], bool]) -> Iterator[Stat]:
        """Only names that match are looked at closer: of ten thousand a listing takes a sixth of a scan."""
        yield from self._found(directory, matches, 0)

    def _found(self, directory: str, matches: Callable[[str], bool], depth: int) -> Iterator[Stat]:
        if depth > TREE_DEPTH_MAX:
            return
        found: list[tuple[str, os.stat_result]] = []
        below: list[str] = []
        try:
            with self._tree.directory(directory) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    name = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        below.append(name)
                    elif matches(name) and (status := _status(entry)) is not None:
                        found.append((name, status))
        except OSError as error:
            if error.errno in _IS_NO_DIRECTORY:
                return
            raise as_failure(error, directory or ".") from error
        for name, status in found:
            if _is_storable(name, status):
                yield Stat(name, status.st_size, None, status.st_mtime)
        for name in below:
            yield from self._found(name, matches, depth + 1)

    def is_at(self, root: Path) -> bool:
        """Whether the directory that this store writes to is still the one found under `root`."""
        return self._tree.is_at(root)

    def identity(self) -> str:
        """Device and inode."""
        return self._tree.identity()

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """`tree` says what is what."""
        return self._walk("", 0)

    def stats(self, names: Collection[str]) -> dict[str, os.stat_result]:
        found: dict[str, os.stat_result] = {}
        leaves: dict[str, dict[str, str]] = {}
        for name in names:
            directory, _, leaf = name.rpartition("/")
            leaves.setdefault(directory, {})[name] = leaf
        for directory, group in leaves.items():
            try:
                with self._tree.directory(directory) as fd:
                    for name, leaf in group.items():
                        if not name:
                            found[name] = os.fstat(fd)
                            continue
                        try:  # a context for each name would take as long as the look
                            found[name] = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
                        except FileNotFoundError:
                            continue
            except OSError as error:
                if error.errno in _IS_NO_DIRECTORY:
                    continue
                raise as_failure(error, directory or ".") from error
        return found

    def stage(self, data: bytes) -> Staged:
        try:
            return Staged(self._aside.put(data, STAGED_PREFIX, flush=False))
        except OSError as error:
            raise as_failure(error, "staging") from error

    def unstage(self) -> None:
        for name in self._names_aside(STAGED_PREFIX):
            self._aside.discard(name)

    def confirm(self, files: Sequence[bytes | Staged]) -> list[Staged]:
        aside: list[Staged] = []
        try:
            for data in files:
                is_new = isinstance(data, bytes)
                aside.append(Staged(self._aside.put(data, flush=False)) if is_new else data)
            self._aside.flush(aside)
        except OSError as error:
            for temporary in aside:
                self._aside.discard(temporary)
            raise as_failure(error, "staging") from error
        return aside

    def prepare(self, files: Mapping[Label, bytes | Staged]) -> None:
        staged: dict[Label, str] = {}
        try:
            for label, data in files.items():
                staged[label] = (
                    self._aside.put(data, flush=False) if isinstance(data, bytes) else data
                )
            self._aside.flush(staged.values())
            for label, temporary in staged.items():
                self._aside.rename(temporary, label)
        except OSError as error:
            for temporary in staged.values():
                self._aside.discard(temporary)
            raise as_failure(error, "staging") from error

    def flush(self, paths: Collection[WorkspacePath]) -> None:
        directories = {path.rpartition("/")[0] for path in paths} | self._made_in
        if len(directories) < FLUSHED_AT_ONCE or not self._aside.flush_all():
            for directory in directories:
                try:
                    with self._tree.directory(directory) as fd:
                        _flush(fd, directory or ".")
                except FileNotFoundError:
                    continue  # nothing is left to make durable but its absence, which its parent knows
                except OSError as error:
                    raise as_failure(error, directory or ".") from error
        self._made_in -= directories

    def exchange(self, label: Label, path: WorkspacePath) -> None:
        directory, _, leaf = path.rpartition("/")
        try:
            with self._tree.directory(directory) as target:
                if not self._aside.exchange(label, target, leaf):
                    self._exchange_in_two(label, target, leaf)
        except OSError as error:
            raise as_failure(error, path) from error

    def enter(self, label: Label | Staged, path: WorkspacePath) -> None:
        directory, _, leaf = path.rpartition("/")
        for _ in range(REMOVED_DIRECTORY_TRIES_MAX):
            try:
                with self._tree.directory(directory, create=True, made_in=self._made_in) as target:
                    self._aside.enter(label, target, leaf)
                return
            except FileExistsError:
                raise AlreadyExists("file", path) from None
            except FileNotFoundError:
                continue
            except OSError as error:
                raise as_failure(error, path) from error
        raise Unavailable(repr(path), "its directory vanishes as often as it is made")

    def take(self, path: WorkspacePath, label: Label) -> None:
        directory, _, leaf = path.rpartition("/")
        try:
            with self._tree.directory(directory) as parent:
                self._aside.take(parent, leaf, label)
                _flush(parent, path)  # now: the directory itself may be about to go
        except OSError as error:
            raise as_failure(error, path) from error
        self._remove_empty(directory)

    def look(self, label: Label) -> bytes | None:
        try:
            return self._aside.read(label)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise as_failure(error, label) from error

    def labels(self) -> list[Label]:
        return sorted(Label(name) for name in self._names_aside(LABEL_PREFIX))

    def relabel(self, label: Label, new: Label) -> None:
        try:
            self._aside.rename(label, new)
        except OSError as error:
            raise as_failure(error, label) from error

    def discard(self, label: Label | Staged) -> None:
        self._aside.discard(label)

    def _exchange_in_two(self, label: Label, target: int, leaf: str) -> None:
        """Where the file system cannot in one: for a moment there is no file at the path, and whoever makes
        one then keeps it. AlreadyExists; then both lie aside."""
        temporary = fresh()
        self._aside.rename_new(label, temporary)
        try:
            self._aside.take(target, leaf, label)
        except OSError:
            self._aside.rename_new(temporary, label)
            raise
        try:
            self._aside.enter(temporary, target, leaf)
        except (FileExistsError, FileNotFoundError):
            # Or its directory has gone with what was taken out: neither has the place of the other now.
            self._aside.rename_new(temporary, another(label))
            raise AlreadyExists("file", leaf) from None

    def _walk(self, directory: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
        if depth > TREE_DEPTH_MAX:
            return
        above = f"{directory}/" if directory else ""
        found: list[tuple[str, os.stat_result]] = []
        below: set[str] = set()
        try:
            with self._tree.directory(directory) as fd, os.scandir(fd) as entries:
                own = os.fstat(fd)  # before what lies in it: what comes later changes it
                for entry in entries:
                    status = _status(entry)
                    if status is None:
                        continue
                    name = above + entry.name
                    if stat.S_ISDIR(status.st_mode):
                        name += "/"  # as which it stands among its neighbours
                        below.add(name)
                    found.append((name, status))
        except OSError as error:
            if error.errno in _IS_NO_DIRECTORY:
                return  # since its parent was listed
            raise as_failure(error, directory or ".") from error
        yield directory, own
        found.sort(key=itemgetter(0))
        if not below:
            yield from found
            return
        for one in found:
            if one[0] in below:
                yield from self._walk(one[0][:-1], depth + 1)
            else:
                yield one

    def _check(self, name: BlobName, expect: Expect) -> None:
        if expect is ANY:
            return
        try:
            current = self.read(name).token
        except NotFound:
            current = None
        if not is_met(expect, current):
            raise Conflict("file", name, expected=expect, actual=current)

    def _names_aside(self, prefix: str) -> list[str]:
        try:
            return self._aside.names(prefix)
        except OSError as error:
            raise as_failure(error, "staging") from error

    def _put(self, temporary: str, name: BlobName, expect: Expect, ours: Token) -> None:
        directory, _, leaf = name.rpartition("/")
        for _ in range(REMOVED_DIRECTORY_TRIES_MAX):
            with (
                suppress(FileNotFoundError),
                self._tree.directory(directory, create=True) as target,
            ):
                self._swap_in(temporary, target, leaf, expect, ours)
                _flush(target, name)
                return
        raise Unavailable(
            repr(name),
            "its directory vanishes as often as it is made",
            remedy="end what removes it, then try again",
        )

    def _remove(self, name: BlobName, expect: Expect) -> None:
        directory, _, leaf = name.rpartition("/")
        try:
            with self._tree.directory(directory) as parent:
                self._take_out(parent, leaf, expect)
                _flush(parent, name)
            self._remove_empty(directory)
        except FileNotFoundError:
            if expect is not ANY and expect is not ABSENT:
                raise Conflict("file", name, expected=expect, actual=None) from None

    def _take_out(self, parent: int, leaf: str, expect: Expect) -> None:
        """Out of the tree first, then looked at: what is not what was meant goes back."""
        if isinstance(expect, Wildcard):
            os.unlink(leaf, dir_fd=parent)
            return
        temporary = fresh()
        self._aside.take(parent, leaf, temporary)
        try:
            found = self._token_aside(temporary)
            if found != expect:
                raise Conflict("file", leaf, expected=expect, actual=found)
        except BaseException:
            with suppress(FileExistsError):  # saved again meanwhile: the newer one stays
                self._aside.enter(temporary, parent, leaf)
            raise
        finally:
            self._aside.discard(temporary)

    def _swap_in(self, temporary: str, target: int, leaf: str, expect: Expect, ours: Token) -> None:
        """What must be new never replaces a file that came in past the lock, and what replaces is
        looked at once more when it has come out."""
        match expect:
            case Wildcard.ANY:
                self._aside.replace(temporary, target, leaf)
            case Wildcard.ABSENT:
                try:
                    self._aside.enter(temporary, target, leaf)
                except FileExistsError:
                    raise Conflict("file", leaf, expected=None, actual="a file") from None
            case token:
                self._exchange(temporary, target, leaf, token, ours)

    def _exchange(self, temporary: str, target: int, leaf: str, expect: Token, ours: Token) -> None:
        """The verified swap: ours goes in, what was there comes out and is what the writer had seen.

        Else somebody saved after the lock-holder had looked. It is put back, and what comes out then
        must be what was put in the time before; if it is not, somebody saved over that, and this is
        the newest. Each round the newest save goes in, until nobody was in between.
        """
        placed: Token | None = ours
        if not self._exchanged(temporary, target, leaf, expect):
            self._aside.replace(temporary, target, leaf)
            return
        try:
            out = self._token_aside(temporary)
        except OSError:
            self._exchanged(temporary, target, leaf, expect)
            raise
        if out == expect:
            return
        for _ in range(EXCHANGES_MAX):
            self._exchanged(temporary, target, leaf, expect)
            placed, out, before = out, self._token_aside(temporary), placed
            if out == before:
                break
        raise Conflict("file", leaf, expected=expect, actual=placed)

    def _exchanged(self, temporary: str, target: int, leaf: str, expect: Token) -> bool:
        try:
            return self._aside.exchange(temporary, target, leaf)
        except FileNotFoundError:
            raise Conflict("file", leaf, expected=expect, actual=None) from None

    def _token_aside(self, temporary: str) -> Token | None:
        data = self._aside.read(temporary)
        return None if data is None else Token(version_of(data))

    def _remove_empty(self, directory: str) -> None:
        while directory:
            directory, _, leaf = directory.rpartition("/")
            try:
                with self._tree.directory(directory) as parent:
                    os.rmdir(leaf, dir_fd=parent)
            except OSError:  # not empty, or already gone: either is fine
                return


def _is_storable(name: str, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and broken_rule(name) is None


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what was removed since it was listed; its neighbours are still there."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _flush(directory: int, name: BlobName) -> None:
    """The change has been made; only now it is durable."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise Unavailable(
            repr(name),
            f"it has been changed, but the disk does not confirm it ({error.strerror})",
            remedy="check the disk, and read the file again before going on",
        ) from error
