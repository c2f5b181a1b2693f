"""Store blobs as plain files below one directory: the live tree of a workspace on disk.

Other programs write here too, without any lock: an editor, or an agent's bash. So a file that was read may
change at any time, every open goes through `safe_open`, and a conditional write is a **verified exchange**:

    temporary file in `staging/` → write → fsync
    → [lock: compare → exchange the two files → read the replaced file] → fsync of the directory

If the replaced file is not what the writer expected, another program saved between the read and the
exchange. Then the save goes back, and the writer gets Conflict. A delete takes the file out, reads it, and
puts it back in the same way.

A reader sees the old bytes or the new ones. After a crash it finds one of the two, never a mixture. A
failure before the exchange leaves the old bytes. If only the last fsync fails, the new bytes are in place
and complete, and `Unavailable` says that the disk has not confirmed them.

The lock belongs to `staging`. It orders the conditional writes of all threads and processes that use this
store. The exchange detects programs that do not use it, such as an editor.

A caller that must read a replaced file once more uses the single moves of `port` instead. There nothing is
discarded. (Sync does so: an append through a descriptor opened before the exchange goes to that file.)

Tokens are content hashes. A directory exists only while it has files: deleting the last file removes it.
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
"""Limit of attempts to use a directory that was just made. One `rmdir` may fall in between; this many in a
row are no accident."""

EXCHANGES_MAX = 20
"""Limit of exchanges to put a save back. A program that saves faster than that, twenty times, is not an
editor."""

TREE_DEPTH_MAX = 64
"""Depth limit of a scan, deeper than any valid path. So a scan ends even in the tree of a bash loop `mkdir a;
cd a`."""


_IS_NO_DIRECTORY = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Errors of a directory that was deleted or replaced by something else."""


class FileBlobs:
    """A live tree on disk. `staging` must lie on the same file system as `root` and outside of it."""

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
        """Directories in which `enter` made others that are not durable yet."""
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
        """Return the file if it differs from `since`. The token is a hash of the bytes, so the file is read
        in any case."""
        blob = self.read(name)
        return None if blob.token == since else blob

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        """Write a file. `meta` is checked but not stored: a plain file has no place for it."""
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
                    self._replace(temporary, name, expect, token)
            finally:
                self._aside.discard(
                    temporary
                )  # now the replaced file, or the new file if it was refused
        except OSError as error:
            raise as_failure(error, name) from error
        return token

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        check_name(name)
        try:
            with self._aside.locked():
                self._check(name, expect)
                self._delete(name, expect)
        except OSError as error:
            raise as_failure(error, name) from error

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        for name, status in self.walk():
            if name and name.startswith(prefix) and _is_storable(name, status):
                yield Stat(name, status.st_size, None, status.st_mtime)

    def mend(self) -> DiskUsage:
        return mend(self._root)

    def find(self, directory: str, matches: Callable[[str], bool]) -> Iterator[Stat]:
        """Yield the files whose names match. Only these are examined: a listing of ten thousand files takes a
        sixth of a scan's time."""
        yield from self._find_below(directory, matches, 0)

    def _find_below(
        self, directory: str, matches: Callable[[str], bool], depth: int
    ) -> Iterator[Stat]:
        if depth > TREE_DEPTH_MAX:
            return
        matching: list[tuple[str, os.stat_result]] = []
        below: list[str] = []
        try:
            with self._tree.directory(directory) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    name = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        below.append(name)
                    elif matches(name) and (status := _status(entry)) is not None:
                        matching.append((name, status))
        except OSError as error:
            if error.errno in _IS_NO_DIRECTORY:
                return
            raise as_failure(error, directory or ".") from error
        for name, status in matching:
            if _is_storable(name, status):
                yield Stat(name, status.st_size, None, status.st_mtime)
        for name in below:
            yield from self._find_below(name, matches, depth + 1)

    def is_at(self, root: Path) -> bool:
        """Return True if `root` still names the directory that this store writes to."""
        return self._tree.is_at(root)

    def identity(self) -> str:
        """Return the directory's device and inode."""
        return self._tree.identity()

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield every entry. `TreeScan` decides what each entry is."""
        return self._walk("", 0)

    def stats(self, names: Collection[str]) -> dict[str, os.stat_result]:
        stats: dict[str, os.stat_result] = {}
        leaves: dict[str, dict[str, str]] = {}
        for name in names:
            directory, _, leaf = name.rpartition("/")
            leaves.setdefault(directory, {})[name] = leaf
        for directory, group in leaves.items():
            try:
                with self._tree.directory(directory) as fd:
                    for name, leaf in group.items():
                        if not name:
                            stats[name] = os.fstat(fd)
                            continue
                        try:  # `suppress` for each name would take as long as the stat
                            stats[name] = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
                        except FileNotFoundError:
                            continue
            except OSError as error:
                if error.errno in _IS_NO_DIRECTORY:
                    continue
                raise as_failure(error, directory or ".") from error
        return stats

    def stage(self, data: bytes) -> Staged:
        try:
            return Staged(self._aside.put(data, STAGED_PREFIX, flush=False))
        except OSError as error:
            raise as_failure(error, "staging") from error

    def unstage(self) -> None:
        for name in self._names_in_staging(STAGED_PREFIX):
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
                    continue  # the directory is gone: only its parent must be durable
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
        raise Unavailable(repr(path), "its directory is removed each time it is made")

    def take(self, path: WorkspacePath, label: Label) -> None:
        directory, _, leaf = path.rpartition("/")
        try:
            with self._tree.directory(directory) as parent:
                self._aside.take(parent, leaf, label)
                _flush(parent, path)  # now, because the directory itself may be removed next
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
        return sorted(Label(name) for name in self._names_in_staging(LABEL_PREFIX))

    def relabel(self, label: Label, new: Label) -> None:
        try:
            self._aside.rename(label, new)
        except OSError as error:
            raise as_failure(error, label) from error

    def discard(self, label: Label | Staged) -> None:
        self._aside.discard(label)

    def _exchange_in_two(self, label: Label, target: int, leaf: str) -> None:
        """Exchange in two steps, for a file system that cannot do it in one.
        For a moment there is no file at the path. If another program makes one then, that file stays.

        Raises: AlreadyExists in that case. Both files then lie aside.
        """
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
            # Another program made a file there, or removed the directory: neither file has its new place.
            self._aside.rename_new(temporary, another(label))
            raise AlreadyExists("file", leaf) from None

    def _walk(self, directory: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
        if depth > TREE_DEPTH_MAX:
            return
        above = f"{directory}/" if directory else ""
        listed: list[tuple[str, os.stat_result]] = []
        below: set[str] = set()
        try:
            with self._tree.directory(directory) as fd, os.scandir(fd) as entries:
                own = os.fstat(fd)  # before the listing: an entry added later changes this stat
                for entry in entries:
                    status = _status(entry)
                    if status is None:
                        continue
                    name = above + entry.name
                    if stat.S_ISDIR(status.st_mode):
                        name += "/"  # a directory sorts with the slash
                        below.add(name)
                    listed.append((name, status))
        except OSError as error:
            if error.errno in _IS_NO_DIRECTORY:
                return  # removed since its parent was listed
            raise as_failure(error, directory or ".") from error
        yield directory, own
        listed.sort(key=itemgetter(0))
        if not below:
            yield from listed
            return
        for item in listed:
            if item[0] in below:
                yield from self._walk(item[0][:-1], depth + 1)
            else:
                yield item

    def _check(self, name: BlobName, expect: Expect) -> None:
        if expect is ANY:
            return
        try:
            current = self.read(name).token
        except NotFound:
            current = None
        if not is_met(expect, current):
            raise Conflict("file", name, expected=expect, actual=current)

    def _names_in_staging(self, prefix: str) -> list[str]:
        try:
            return self._aside.names(prefix)
        except OSError as error:
            raise as_failure(error, "staging") from error

    def _replace(self, temporary: str, name: BlobName, expect: Expect, ours: Token) -> None:
        directory, _, leaf = name.rpartition("/")
        for _ in range(REMOVED_DIRECTORY_TRIES_MAX):
            with (
                suppress(FileNotFoundError),
                self._tree.directory(directory, create=True) as target,
            ):
                self._enter_or_exchange(temporary, target, leaf, expect, ours)
                _flush(target, name)
                return
        raise Unavailable(
            repr(name),
            "its directory is removed each time it is made",
            remedy="stop the program that removes it, then try again",
        )

    def _delete(self, name: BlobName, expect: Expect) -> None:
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
        """Take the file out of the tree and then read it. If it is not the expected one, put it back."""
        if isinstance(expect, Wildcard):
            os.unlink(leaf, dir_fd=parent)
            return
        temporary = fresh()
        self._aside.take(parent, leaf, temporary)
        try:
            found = self._token_in_staging(temporary)
            if found != expect:
                raise Conflict("file", leaf, expected=expect, actual=found)
        except BaseException:
            with suppress(FileExistsError):  # another program saved meanwhile: the newer file stays
                self._aside.enter(temporary, parent, leaf)
            raise
        finally:
            self._aside.discard(temporary)

    def _enter_or_exchange(
        self, temporary: str, target: int, leaf: str, expect: Expect, ours: Token
    ) -> None:
        """Put the new file in, as `expect` demands. A file that must be new never replaces a file saved
        without the lock. A replaced file is read once more after the exchange."""
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
        """Exchange the new file with the present one, and verify that the present one is what the writer
        expected.

        If it is not, another program saved after the lock holder's read. That save is put back. The file that
        comes out then must be the one put in before. If it is not, another program saved over that one too,
        and
        this is the newest save. Each round puts the newest save in, until no program saved in between.
        """
        placed: Token | None = ours
        if not self._exchange_once(temporary, target, leaf, expect):
            # the file system cannot exchange: replace without the check
            self._aside.replace(temporary, target, leaf)
            return
        try:
            out = self._token_in_staging(temporary)
        except OSError:
            self._exchange_once(temporary, target, leaf, expect)
            raise
        if out == expect:  # nothing was saved in between
            return
        for _ in range(EXCHANGES_MAX):
            self._exchange_once(temporary, target, leaf, expect)
            placed, out, before = out, self._token_in_staging(temporary), placed
            if out == before:
                break
        raise Conflict("file", leaf, expected=expect, actual=placed)

    def _exchange_once(self, temporary: str, target: int, leaf: str, expect: Token) -> bool:
        try:
            return self._aside.exchange(temporary, target, leaf)
        except FileNotFoundError:
            raise Conflict("file", leaf, expected=expect, actual=None) from None

    def _token_in_staging(self, temporary: str) -> Token | None:
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
    """Return the entry's status, or None if it was removed since it was listed. Other entries are still
    there."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _flush(directory: int, name: BlobName) -> None:
    """Flush a directory, so that a change already made in it is durable."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise Unavailable(
            repr(name),
            f"the change was written, but the disk does not confirm it ({error.strerror})",
            remedy="check the disk, and read the file again before you continue",
        ) from error
