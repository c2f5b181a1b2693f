"""The store of a backup: pieces under their hashes, and snapshots.

Pieces are uploaded by a few threads, so that reading goes on meanwhile. At most `WAITING_MAX` of them are in
memory. A piece that is there already is not sent again: the names are listed once for each of the 256
directories of which a name is needed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from harness.backup.listing import (
    PIECE_BYTES_MAX,
    SHARED_BYTES_MAX,
    STAMP,
    BackupSnapshot,
    Listed,
    ListedFile,
    Piece,
    Range,
    parse_listing,
    parse_snapshot,
)
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, Refused
from workspaces.home.known_backups import BackupRules
from workspaces.home.layout import Home
from workspaces.home.locations import blobs_at
from workspaces.storage.blobs import BlobStore
from workspaces.storage.retrying import RetryingBlobs

THREADS = 4
WAITING_MAX = 8
CACHED_PIECES = 8


class DepotContent(NamedTuple):
    """A snapshot and what it lists."""

    snapshot: BackupSnapshot
    listed: Mapping[str, Listed]

    @property
    def files(self) -> Iterator[ListedFile]:
        return (one for one in self.listed.values() if isinstance(one, ListedFile))


class DamagedPiece(Refused):
    """A piece that is missing, or whose bytes do not have its hash."""


class Depot:
    """The backups in one store. Threads may share it."""

    def __init__(self, store: BlobStore, place: str) -> None:
        self._store = store
        self.place = place
        self.rules = BackupRules(store, place)
        """What is forbidden now, whichever snapshot is restored."""
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def stamps(self) -> list[str]:
        """Return the names of all snapshots, oldest first."""
        names = (one.name.removeprefix("snapshots/") for one in self._store.scan("snapshots/"))
        stamps = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(stamp for stamp in stamps if STAMP.fullmatch(stamp))

    def snapshot(self, stamp: str | None = None) -> BackupSnapshot:
        """Return a snapshot, by default the newest.

        Raises: NotFound. Refused if it is damaged.
        """
        stamps = self.stamps()
        if not stamps:
            raise NotFound("backup at", self.place, remedy="`harness backup create` makes one")
        if stamp is not None and stamp not in stamps:
            newest = ", ".join(reversed(stamps[-5:]))
            raise NotFound("snapshot", stamp, remedy=f"the newest are: {newest}")
        return self._read_snapshot(stamp or stamps[-1])

    def content(self, snapshot: BackupSnapshot) -> DepotContent:
        """Read the listing of a snapshot.

        Raises: Refused if the listing is damaged. DamagedPiece if a piece of it is.
        """
        parts = (self.piece(digest) for digest in snapshot.listing)
        listed = {one.path: one for one in parse_listing(snapshot.stamp, parts)}
        count = sum(isinstance(one, ListedFile) for one in listed.values())
        if count != snapshot.files:
            rule = f"lists {count} files instead of {snapshot.files}"
            raise Refused(f"snapshot {snapshot.stamp}", None, rule)
        return DepotContent(snapshot, listed)

    def last_of(self, machine: str) -> DepotContent | None:
        """Return the newest readable backup of the home with this id. None: it has none here."""
        for stamp in reversed(self.stamps()):
            try:
                snapshot = self._read_snapshot(stamp)
                if snapshot.machine == machine:
                    return self.content(snapshot)
            except (Refused, NotFound):  # damaged: `verify` tells; an older one saves as much
                continue
        return None

    def piece(self, digest: str) -> bytes:
        """Return the bytes of a piece.

        Raises: DamagedPiece if it is missing or has other bytes.
        """
        with self._lock:
            data = self._cache.get(digest)
        if data is not None:
            return data
        data = self.read_piece(digest)
        with self._lock:
            self._cache[digest] = data
            while len(self._cache) > CACHED_PIECES:
                self._cache.popitem(last=False)
        return data

    def read_piece(self, digest: str) -> bytes:
        """Return the bytes of a piece as they lie in the store now.

        Raises: DamagedPiece if it is missing or has other bytes.
        """
        remedy = "`harness backup create --again` stores every file anew"
        try:
            data = self._store.read(_name(digest)).data
        except NotFound as error:
            raise DamagedPiece("piece", digest, "is missing", remedy=remedy) from error
        if len(data) > PIECE_BYTES_MAX or sha256(data).hexdigest() != digest:
            raise DamagedPiece("piece", digest, "has other bytes", remedy=remedy)
        return data

    def bytes_of(self, file: ListedFile) -> Iterator[bytes]:
        """Yield the bytes of a file, in order.

        Raises: DamagedPiece.
        """
        for piece, offset, size in file.ranges:
            data = self.piece(piece.digest)[offset : offset + size]
            if len(data) != size:
                raise DamagedPiece("piece", piece.digest, "is shorter than its listing says")
            yield data

    def damage(self, digests: Iterable[str]) -> Iterator[tuple[str, DamagedPiece | None]]:
        """Read pieces again and yield each with its damage, if it has any."""

        def look(digest: str) -> DamagedPiece | None:
            try:
                self.read_piece(digest)
            except DamagedPiece as damaged:
                return damaged
            return None

        waiting: list[tuple[str, Future[DamagedPiece | None]]] = []
        with ThreadPoolExecutor(THREADS) as pool:
            for digest in digests:
                waiting.append((digest, pool.submit(look, digest)))
                if len(waiting) >= WAITING_MAX:
                    first, future = waiting.pop(0)
                    yield first, future.result()
            for digest, future in waiting:
                yield digest, future.result()

    def _read_snapshot(self, stamp: str) -> BackupSnapshot:
        return parse_snapshot(stamp, self._store.read(f"snapshots/{stamp}.json").data)

    def put_snapshot(self, snapshot: BackupSnapshot) -> None:
        self._store.write(f"snapshots/{snapshot.stamp}.json", snapshot.as_bytes(), expect=ABSENT)

    def put_piece(self, digest: str, data: bytes, *, is_again: bool) -> None:
        """Store a piece. With `is_again`, replace what is there under its name."""
        try:
            self._store.write(_name(digest), data, expect=ANY if is_again else ABSENT)
        except Conflict:  # another backup was faster
            return

    def names_like(self, digest: str) -> set[str]:
        """Return the pieces in the directory where this piece is or would be."""
        prefix = f"objects/{digest[:2]}/"
        return {one.name.removeprefix(prefix) for one in self._store.scan(prefix)}


class PieceWriter:
    """Writes the bytes of a backup as pieces. One thread uses it."""

    def __init__(self, depot: Depot, known: Iterable[str], *, is_again: bool) -> None:
        """`known` are pieces that the store has. With `is_again`, every piece is written anyway."""
        self.stored = 0
        """The bytes that were sent to the store."""
        self._depot = depot
        self._is_again = is_again
        self._known = set[str](() if is_again else known)
        self._listed = set[str]()
        self._pool = ThreadPoolExecutor(THREADS)
        self._slots = threading.Semaphore(WAITING_MAX)
        self._sent: list[Future[None]] = []
        self._shared = Piece()
        self._parts: list[bytes] = []
        self._size = 0

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, chunks: Iterable[bytes]) -> tuple[Range, ...]:
        """Store the bytes of a file, which come in chunks of PIECE_BYTES_MAX and a shorter last one."""
        ranges: list[Range] = []
        for chunk in chunks:
            if len(chunk) > SHARED_BYTES_MAX:
                ranges.append(self._alone(chunk))
            elif chunk:
                ranges.append(self._together(chunk))
        return tuple(ranges)

    def alone(self, data: bytes) -> tuple[Range, ...]:
        """Store bytes that share no piece. So equal bytes are stored once."""
        cuts = range(0, len(data), PIECE_BYTES_MAX)
        return tuple(self._alone(data[at : at + PIECE_BYTES_MAX]) for at in cuts)

    def seal(self) -> None:
        """Complete the shared piece. Files that follow share another one."""
        if self._parts:
            self._shared.digest = self._send(b"".join(self._parts))
            self._shared, self._parts, self._size = Piece(), [], 0

    def finish(self) -> None:
        """Wait until everything is stored.

        Raises: the first failure of a thread.
        """
        self.seal()
        for future in self._sent:
            future.result()
        self._sent.clear()

    def _alone(self, data: bytes) -> Range:
        return Range(Piece(self._send(data)), 0, len(data))

    def _together(self, data: bytes) -> Range:
        if self._size + len(data) > PIECE_BYTES_MAX:
            self.seal()
        part = Range(self._shared, self._size, len(data))
        self._parts.append(data)
        self._size += len(data)
        return part

    def _send(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        if digest[:2] not in self._listed and not self._is_again and digest not in self._known:
            self._known |= self._depot.names_like(digest)
            self._listed.add(digest[:2])
        if digest not in self._known:
            self._known.add(digest)
            self.stored += len(data)
            self._raise_failure()
            self._slots.acquire()
            future = self._pool.submit(self._depot.put_piece, digest, data, is_again=self._is_again)
            future.add_done_callback(lambda _: self._slots.release())
            self._sent.append(future)
        return digest

    def _raise_failure(self) -> None:
        """Stop early if the store refuses."""
        done = [one for one in self._sent if one.done()]
        self._sent = [one for one in self._sent if not one.done()]
        for future in done:
            future.result()


@contextmanager
def writing(depot: Depot, known: Iterable[str], *, is_again: bool) -> Generator[PieceWriter]:
    """Yield a writer of pieces, and end its threads."""
    writer = PieceWriter(depot, known, is_again=is_again)
    try:
        yield writer
    finally:
        writer.close()


def depot_at(place: str, *, home: Home | None = None, field: str = "source") -> Depot:
    """Return the backups at a place: a directory, file:/directory or s3://bucket/prefix.

    `home` is the home that is to be stored there; the directory is then created.

    Raises: NotFound if nothing is there to read. Refused for an invalid place, or one inside the home.
    """
    is_path = not place.startswith(("s3:", "file:", "memory:"))
    directory = Path(place).expanduser().absolute() if is_path else None
    if place.startswith("file:"):
        directory = Path(place.removeprefix("file:"))
    if directory is not None:
        if home is not None and directory.resolve().is_relative_to(home.root.resolve()):
            remedy = "name a directory on another disk, or s3://bucket/prefix"
            raise Refused(field, place, "lies inside the home that it is to save", remedy=remedy)
        if home is None and not (directory / "blobs").is_dir():
            raise NotFound("backup at", place, remedy="`harness backup create` makes one")
    location = f"file:{directory}" if directory is not None else place
    return Depot(RetryingBlobs(blobs_at(location, field=field)), place)


def _name(digest: str) -> str:
    return f"objects/{digest[:2]}/{digest}"
