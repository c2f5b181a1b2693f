"""The verified swap, with a second look: how a file that somebody may be writing is replaced.

    prepare aside → exchange → look at what came out → (250 ms later) look at it again → discard

What came out is what was expected, or somebody saved between the last look and the exchange. Then it is
*given back* as soon as the swap has been told: merged into what is there now, with what was expected as the
base of both, or kept as a second file. It does not go back to where it was: what went in has been in the
tree, if for a moment, and whoever opened or saved the file in that moment has built on it.

And a shell that had opened the file before the exchange appends to what came out, after it. So it is looked
at once more, and what somebody wrote to it meanwhile is given back in the same way.

Whoever dies in the middle leaves what came out aside, under a label that says what it should be. So
start-up recovery is the second look, and needs no journal. Giving back twice, because the first time
somebody died in the middle of it, keeps a line twice at worst.

Only under the writer lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from workspaces.blobs import Blob
from workspaces.conflict import conflict_path
from workspaces.errors import AlreadyExists, Failure, NotFound, Refused
from workspaces.history.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.live import Displaced, Label, LiveTree, Staged, displaced_by, label_of
from workspaces.merge import Merged, merge
from workspaces.paths import WorkspacePath

SECOND_LOOK_S = 0.25
"""A shell's `echo x >> file` opens, writes and closes within a millisecond; a loaded machine takes longer."""

TRIES_MAX = 20
"""Somebody who saves faster than a file can be reinstated, twenty times in a row, is no editor."""

_NO_OBJECT = ObjectId("0" * 40)

Resolve = Callable[[Displaced], WorkspacePath | None]
"""The path of which a label says only the hash."""

Tell = Callable[[WorkspacePath, Merged, bytes], object]
"""Make a revision of what a file is now that it was merged with something that had come out of it."""


@dataclass(frozen=True, slots=True)
class Swap:
    path: WorkspacePath
    data: bytes | None
    """None: it goes."""
    seen: bytes | None
    """None: there must be nothing."""
    staged: Staged | None = None
    """`data`, where it lies aside already."""


@dataclass(frozen=True, slots=True)
class Swapped:
    done: set[WorkspacePath]
    refused: dict[WorkspacePath, Failure]
    """There is no place for it. Neither done nor refused is where somebody was faster: the file has gone, or
    there is one by now."""
    overtaken: dict[WorkspacePath, Label]
    """Done, and what came out is not what was seen: a save, to be given back once the swap is told."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What was given back."""

    path: WorkspacePath
    overtaken: dict[WorkspacePath, Label] | None = None
    """None: it stands there itself, and nothing lies aside any more."""


class Swaps:
    def __init__(
        self,
        tree: LiveTree,
        read_object: Callable[[ObjectId], bytes],
        keep_object: Callable[[bytes], ObjectId],
        nonce: Callable[[], str],
        resolve: Resolve,
        settled: Callable[[WorkspacePath], Blob | None],
        tell: Tell,
    ) -> None:
        """`settled`: a file as it is, once that is in a revision; without one, what is displaced has no base
        when it is looked at again. `keep_object` is for bytes that are in no revision."""
        self._tree = tree
        self._read_object = read_object
        self._keep_object = keep_object
        self._nonce = nonce
        self._resolve = resolve
        self._settled = settled
        self._tell = tell

    def put(self, swaps: Sequence[Swap]) -> Swapped:
        labels, new = self._prepared(swaps)
        swapped = Swapped(set(), {}, {})
        try:
            for swap in swaps:
                try:
                    staged = new.get(swap.path)
                    if staged is not None:
                        self._tree.enter(staged, swap.path)
                    elif not self._moved(swap, labels[swap.path], swapped):
                        continue
                    swapped.done.add(swap.path)
                except (AlreadyExists, NotFound):
                    continue  # somebody was faster
                except Refused as error:
                    swapped.refused[swap.path] = error
        finally:
            for path in new.keys() - swapped.done:
                self._tree.discard(new[path])
            self._tree.flush(swapped.done)
        return swapped

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

    def _moved(self, swap: Swap, label: Label, swapped: Swapped) -> bool:
        try:
            if swap.data is None:
                self._tree.take(swap.path, label)
            else:
                self._tree.exchange(label, swap.path)
        except (NotFound, Refused):
            self._tree.discard(label)  # it never was in the tree
            raise
        out = self._tree.look(label)
        if out == swap.seen:
            return True
        if swap.data is None or out is None:
            self._put_back(label, swap.path)
            return False
        swapped.overtaken[swap.path] = label
        return True

    def _label(self, swap: Swap) -> Label:
        expected = _NO_OBJECT if swap.seen is None else blob_id(swap.seen)
        went_in = None if swap.data is None else version_of(swap.data)
        return label_of(swap.path, expected, went_in, self._nonce())

    def give_back(self, overtaken: Iterable[Label]) -> None:
        """What was saved in the moment of a swap, into what is there now. Whoever still has it open writes to
        what lies aside: it stays there for the second look."""
        waiting = list(overtaken)
        for _ in range(len(waiting) + TRIES_MAX):
            if not waiting:
                return
            label = waiting.pop()
            told, path = displaced_by(label), self.path_of(label)
            out = self._tree.look(label)
            if told is None or path is None or out is None:
                continue  # the second look decides
            given = self._given_back(label, path, out, told)
            if given is None:
                waiting.append(label)
            elif given.overtaken is not None:
                waiting += given.overtaken.values()
                kept = label_of(path, self._keep_object(out), None, self._nonce())
                self._tree.relabel(label, kept)

    def look_again(self, label: Label) -> WorkspacePath | None:
        """The second look. What somebody wrote goes back into the tree, at the path that is returned; None
        when there was nothing of anyone's. What is saved in that moment waits for the next look."""
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
            given = self._given_back(label, path, out, told)
            if given is not None:
                self._tree.discard(label)
                return given.path
        return None  # it stays aside, for the next one to look

    def path_of(self, label: Label) -> WorkspacePath | None:
        told = displaced_by(label)
        if told is None:
            return None
        return self._resolve(told) if told.path.startswith("#") else WorkspacePath(told.path)

    def _given_back(
        self, label: Label, path: WorkspacePath, out: bytes, told: Displaced
    ) -> _Given | None:
        """None when somebody was faster."""
        try:
            blob = self._settled(path)
            if blob is None:
                at = self._entered(label, path)
                return None if at is None else _Given(at)
            current = blob.data
            merged = _together(path, self._object(told.expected), current, out)
            if merged is not None and merged.data == current:
                return _Given(path, {})
            if merged is not None:
                return self._merged(path, merged, current, out)
        except Refused:
            pass  # there is no place for a file any more
        return _Given(self._put_beside(label, path, out))

    def _merged(
        self, path: WorkspacePath, merged: Merged, current: bytes, out: bytes
    ) -> _Given | None:
        swapped = self.put([Swap(path, merged.data, current)])
        if path in swapped.refused:
            raise swapped.refused[path]
        if path not in swapped.done:
            return None
        self._tell(path, merged, out)
        return _Given(path, swapped.overtaken)

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
        """What came out goes back to where it was: a save in the place of what was to go, or what is no file
        of ours to read (a link, or too large) and is a problem there. What comes out in turn is looked at
        again."""
        if label not in self._tree.labels():
            return None
        try:
            self._tree.exchange(label, path)
        except NotFound:
            self._entered(label, path)
        return path

    def _object(self, name: ObjectId) -> bytes | None:
        try:
            return None if name == _NO_OBJECT else self._read_object(name)
        except Failure:
            return None


def _together(path: WorkspacePath, base: bytes | None, current: bytes, out: bytes) -> Merged | None:
    """What was only appended is appended, to the byte; everything else is merged. Where both have set a key
    of the front matter the value stands that a person wrote a moment ago."""
    if base is not None and out.startswith(base) and (base.endswith(b"\n") or not base):
        joint = b"" if current.endswith(b"\n") or not current else b"\n"
        return Merged(current + joint + out[len(base) :])
    return merge(path, base, current, out, later="theirs")
