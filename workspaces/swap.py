"""The verified swap, with a second look: how a file that somebody may be writing is replaced.

    prepare aside → exchange → look at what came out → (250 ms later) look at it again → discard

What came out is what was expected, or somebody saved between the last look and the exchange: then it goes
back, and the swap has not happened. And a shell that had opened the file before the exchange appends to
what came out, after it. So it is looked at once more; what somebody wrote to it meanwhile is *reinstated*:
merged into what is there now, or kept as a second file.

Whoever dies in the middle leaves what came out aside, under a label that says what it should be. So
start-up recovery is the second look, and needs no journal. Reinstating twice, because the first time
somebody died in the middle of it, keeps a line twice at worst.

Only under the writer lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from workspaces.conflict import conflict_path
from workspaces.errors import AlreadyExists, Failure, NotFound, Refused
from workspaces.history.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.live import Displaced, Label, LiveTree, Staged, displaced_by, label_of
from workspaces.merge import merge
from workspaces.paths import WorkspacePath

SECOND_LOOK_S = 0.25
"""A shell's `echo x >> file` opens, writes and closes within a millisecond; a loaded machine takes longer."""

TRIES_MAX = 20
"""Somebody who saves faster than a file can be reinstated, twenty times in a row, is no editor."""

_NO_OBJECT = ObjectId("0" * 40)

Resolve = Callable[[Displaced], WorkspacePath | None]
"""The path of which a label says only the hash."""


@dataclass(frozen=True, slots=True)
class Swap:
    path: WorkspacePath
    data: bytes | None
    """None: it goes."""
    seen: bytes | None
    """None: there must be nothing."""
    staged: Staged | None = None
    """`data`, where it lies aside already."""


class Swaps:
    def __init__(
        self,
        tree: LiveTree,
        read_object: Callable[[ObjectId], bytes],
        nonce: Callable[[], str],
        resolve: Resolve,
        record: Callable[[WorkspacePath], object],
    ) -> None:
        """`record` makes a revision of a file as it is: without one, what is displaced has no base when it is
        looked at again."""
        self._tree = tree
        self._record = record
        self._read_object = read_object
        self._nonce = nonce
        self._resolve = resolve

    def put(self, path: WorkspacePath, data: bytes | None, seen: bytes | None) -> bool:
        """Whether the file became `data` (None: went), from what was `seen`. False: somebody was faster,
        and theirs is there."""
        done, refused = self.put_all([Swap(path, data, seen)])
        if refused:
            raise refused[path]
        return path in done

    def put_all(
        self, swaps: Sequence[Swap]
    ) -> tuple[set[WorkspacePath], dict[WorkspacePath, Failure]]:
        """Where it was done, and where there is no place for it; elsewhere somebody was faster."""
        labels, new = self._prepared(swaps)
        done: set[WorkspacePath] = set()
        refused: dict[WorkspacePath, Failure] = {}
        try:
            for swap in swaps:
                try:
                    staged = new.get(swap.path)
                    if staged is not None:
                        self._tree.enter(staged, swap.path)
                    elif not self._moved(swap, labels[swap.path]):
                        continue
                    done.add(swap.path)
                except (AlreadyExists, NotFound):
                    continue  # somebody was faster
                except Refused as error:
                    refused[swap.path] = error
        finally:
            for path in new.keys() - done:
                self._tree.discard(new[path])
            self._tree.flush(done)
        return done, refused

    def _prepared(
        self, swaps: Sequence[Swap]
    ) -> tuple[dict[WorkspacePath, Label], dict[WorkspacePath, Staged]]:
        """Durable, what goes in; and under which labels something comes out."""
        labels: dict[WorkspacePath, Label] = {}
        over: dict[Label, bytes | Staged] = {}
        new: dict[WorkspacePath, bytes | Staged] = {}
        for swap in swaps:
            data = swap.staged or swap.data
            if swap.seen is None and data is not None:
                new[swap.path] = data
                continue
            labels[swap.path] = label = self._label(swap)
            if data is not None:
                over[label] = data
        self._tree.prepare(over)
        return labels, dict(zip(new, self._tree.confirm(list(new.values())), strict=True))

    def _moved(self, swap: Swap, label: Label) -> bool:
        try:
            if swap.data is None:
                self._tree.take(swap.path, label)
            else:
                self._tree.exchange(label, swap.path)
        except (NotFound, Refused):
            self._tree.discard(label)  # it never was in the tree
            raise
        if self._tree.look(label) == swap.seen:
            return True
        self._put_back(label, swap.path)
        return False

    def _label(self, swap: Swap) -> Label:
        expected = _NO_OBJECT if swap.seen is None else blob_id(swap.seen)
        went_in = None if swap.data is None else version_of(swap.data)
        return label_of(swap.path, expected, went_in, self._nonce())

    def reinstate(self, label: Label) -> WorkspacePath | None:
        """The second look. What somebody wrote goes back into the tree, at the path that is returned;
        None when there was nothing of anyone's."""
        path = self.path_of(label)
        told = displaced_by(label)
        if told is None or path is None:
            return None
        for _ in range(TRIES_MAX):
            out = self._tree.look(label)
            if out is None:
                return self._put_back(label, path)
            if blob_id(out) == told.expected or version_of(out).startswith(told.went_in):
                self._tree.discard(label)
                return None
            done = self._reinstated(label, path, out, told)
            if done is not None:
                self._tree.discard(label)
                return done
        return None  # it stays aside, for the next one to look

    def path_of(self, label: Label) -> WorkspacePath | None:
        told = displaced_by(label)
        if told is None:
            return None
        return self._resolve(told) if told.path.startswith("#") else WorkspacePath(told.path)

    def _reinstated(
        self, label: Label, path: WorkspacePath, out: bytes, told: Displaced
    ) -> WorkspacePath | None:
        """Where it stands now; None when somebody was faster."""
        try:
            current = self._read(path)
            if current is None:
                return self._entered(label, path)
            together = _together(path, self._base(out, told), current, out)
            if together == current:
                return path
            if together is not None:
                self._record(path)
                return path if self.put(path, together, current) else None
        except Refused:
            pass  # there is no place for a file any more
        return self._put_beside(label, path, out)

    def _put_beside(self, label: Label, path: WorkspacePath, out: bytes) -> WorkspacePath:
        """As a second file; in the root, where its directory is none any more."""
        beside = conflict_path(path, version_of(out))
        try:
            return self._entered(label, beside) or beside
        except Refused:
            beside = WorkspacePath(beside.name)
            return self._entered(label, beside) or beside

    def _entered(self, label: Label, path: WorkspacePath) -> WorkspacePath | None:
        try:
            self._tree.enter(label, path)
        except AlreadyExists:
            return None
        self._tree.flush([path])
        return path

    def _put_back(self, label: Label, path: WorkspacePath) -> WorkspacePath | None:
        """What came out goes back to where it was: a save that came in between, or what is no file of
        ours to read (a link, or too large) and is a problem there. What comes out in turn was in the tree
        for a moment, in which a shell may have opened it: it too is looked at again."""
        if label not in self._tree.labels():
            return None
        try:
            self._tree.exchange(label, path)
        except NotFound:
            self._entered(label, path)
        return path

    def _read(self, path: WorkspacePath) -> bytes | None:
        try:
            return self._tree.read(path).data
        except NotFound:
            return None

    def _base(self, out: bytes, told: Displaced) -> bytes | None:
        """What was expected; or what went in, where that had its place for a moment, before what came out was
        put back, and a shell has appended to it. Where `out` begins with both, the longer: what only repeats
        it is nobody's change."""
        expected = self._object(told.expected)
        begins = len(expected) if expected is not None and out.startswith(expected) else 0
        went_in = _beginning(out, told.went_in)
        return went_in if went_in is not None and len(went_in) > begins else expected

    def _object(self, name: ObjectId) -> bytes | None:
        try:
            return None if name == _NO_OBJECT else self._read_object(name)
        except Failure:
            return None


def _beginning(out: bytes, version: str) -> bytes | None:
    """The first lines of it that are of this version (or one that begins like this)."""
    hashed, end = sha256(), 0
    while end := out.find(b"\n", start := end) + 1:
        hashed.update(out[start:end])
        if hashed.hexdigest().startswith(version):
            return out[:end]
    return None


def _together(path: WorkspacePath, base: bytes | None, current: bytes, out: bytes) -> bytes | None:
    """What was only appended is appended, to the byte; everything else is merged."""
    if base is not None and out.startswith(base) and (base.endswith(b"\n") or not base):
        joint = b"" if current.endswith(b"\n") or not current else b"\n"
        return current + joint + out[len(base) :]
    merged = merge(path, base, current, out)
    return None if merged is None else merged.data
