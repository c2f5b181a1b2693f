"""The verified swap, with a second look: how a file that somebody may be writing is replaced.

    prepare aside → exchange → look at what came out → (250 ms later) look at it again → discard

What came out is what was expected, or somebody saved between the last look and the exchange. Then it is
*given back* as soon as the swap has been told: merged with what came in, with what was expected as the base
of both, or kept as a second file. It does not go back to where it was: what came in has been in the tree,
if for a moment, and whoever opened or saved the file since has built on it; his changes are the later ones.
(What goes back is what met a deletion, for the edit wins, and what is no file of ours to read.)

And a shell that had opened the file before the exchange appends to what came out, after it. So it is looked
at once more, and what somebody wrote to it meanwhile is given back too.

Whoever dies in the middle, or finds the disk full, leaves what came out aside, under a label that says what
it should be. So start-up recovery is the second look, and needs no journal. Giving back twice, because the
first time somebody died in the middle of it, keeps a line twice at worst.

Only under the writer lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from workspaces.errors import AlreadyExists, Failure, NotFound, OverLimit, Refused
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Blob
from workspaces.tree.conflict_copy import conflict_path
from workspaces.tree.merge import MergeResult, Side, merge
from workspaces.tree.port import (
    Displaced,
    Label,
    LiveTree,
    Staged,
    displaced_by,
    label_of,
    mark_replaced,
)

SECOND_LOOK_S = 0.25
"""A shell's `echo x >> file` opens, writes and closes within a millisecond; a loaded machine takes longer."""

TRIES_MAX = 20
"""Somebody who saves faster than he can be given back what he saved, twenty times in a row, is no editor."""

Resolve = Callable[[Displaced], WorkspacePath | None]
"""The path of which a label says only the hash."""

OnMerge = Callable[[WorkspacePath, MergeResult, bytes], object]
"""Make a revision of what a file is now that it was merged with something that had come out of it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    path: WorkspacePath
    data: bytes | None
    """None: it goes."""
    seen: bytes | None
    """None: there must be nothing."""
    staged: Staged | None = None
    """`data`, where it lies aside already."""


@dataclass(frozen=True, slots=True)
class ConcurrentSave:
    """What came out though something else was seen: a save."""

    label: Label
    came_in: bytes
    is_again: bool = False
    """What came in was itself a save that was given back: the same bytes are then no news of it, but one more
    append."""


@dataclass(frozen=True, slots=True)
class Replaced:
    done: set[WorkspacePath]
    refused: dict[WorkspacePath, Failure]
    """There is no place for it. Where it is neither done nor refused somebody was faster: theirs is there."""
    overtaken: dict[WorkspacePath, ConcurrentSave]
    """Where it was done all the same: to be given back once the swap is told."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What was given back."""

    path: WorkspacePath
    overtaken: tuple[ConcurrentSave, ...] = ()
    """By that."""
    is_merged: bool = False
    """It still lies aside itself."""


class SafeReplace:
    def __init__(
        self,
        tree: LiveTree,
        read_object: Callable[[ObjectId], bytes],
        keep_object: Callable[[bytes], ObjectId],
        nonce: Callable[[], str],
        resolve: Resolve,
        settled: Callable[[WorkspacePath], Blob | None],
        tell: OnMerge,
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

    def put(self, swaps: Sequence[Replacement]) -> Replaced:
        labels, new = self._prepared(swaps)
        swapped = Replaced(set(), {}, {})
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
        self, swaps: Sequence[Replacement]
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

    def _moved(self, swap: Replacement, label: Label, swapped: Replaced) -> bool:
        try:
            if swap.data is None:
                self._tree.take(swap.path, label)
            else:
                self._tree.exchange(label, swap.path)
        except (NotFound, Refused):
            self._tree.discard(label)  # it never was in the tree
            raise
        out = self._tree.look(label)
        if swap.data is None or out is None:
            if out == swap.seen:
                return True
            self._put_back(label, swap.path)
            return False
        label = self._certainly_out(label)
        if out != swap.seen:
            swapped.overtaken[swap.path] = ConcurrentSave(label, swap.data)
        return True

    def _certainly_out(self, label: Label) -> Label:
        """What lies there was in the tree, though it be the same as what went in."""
        certain = mark_replaced(label)
        try:
            self._tree.relabel(label, certain)
        except Failure:
            return label
        return certain

    def _label(self, swap: Replacement) -> Label:
        expected = blob_id(swap.seen or b"")  # what is new has no label
        went_in = None if swap.data is None else version_of(swap.data)
        return label_of(swap.path, expected, went_in, self._nonce())

    def restore(self, overtaken: Iterable[ConcurrentSave]) -> None:
        """What was saved in the moment of a swap. Where it cannot be it lies aside until the second look."""
        waiting = list(overtaken)
        for _ in range(len(waiting) + TRIES_MAX):
            if not waiting:
                return
            with suppress(Failure):
                waiting += self._given_at_once(waiting.pop())

    def _given_at_once(self, one: ConcurrentSave) -> Sequence[ConcurrentSave]:
        """What is to be given back now. Whoever has the save still open writes to what lies aside: it stays
        there, as what is expected by then."""
        label, out = one.label, self._tree.look(one.label)
        told, path = displaced_by(label), self.path_of(label)
        if told is None or path is None or out is None:
            return ()
        base = self._object(told.expected)

        def together(current: bytes) -> MergeResult | None:
            if out == one.came_in and not one.is_again:
                return MergeResult(current)
            appended = _appended(base, current, out)
            if out == current and not (appended and current.startswith(one.came_in)):
                return MergeResult(current)  # saved once more
            both = merge(path, base, one.came_in, out, later="theirs")
            if both is None:
                return None
            return appended or _on_top(path, one.came_in, both, current)

        given = self._given_back(label, path, out, together)
        if given is None:
            return (one,)
        if given.is_merged:
            kept = label_of(path, self._keep_object(out), None, self._nonce())
            self._tree.relabel(label, kept)
        return given.overtaken

    def check_late_writes(self, label: Label) -> WorkspacePath | None:
        """The second look. What somebody wrote goes back into the tree, at the path that is returned; None
        when there was nothing of anyone's. What is saved in that moment waits for the next look."""
        path = self.path_of(label)
        told = displaced_by(label)
        if told is None or path is None:
            return None
        base = self._object(told.expected)
        for _ in range(TRIES_MAX):
            out = self._tree.look(label)
            if out is None:
                return self._put_back(label, path)
            is_what_goes_in = version_of(out).startswith(told.went_in)
            is_news = told.has_come_out and _is_append(base, out)
            if blob_id(out) == told.expected or (is_what_goes_in and not is_news):
                self._tree.discard(label)
                return None

            def together(current: bytes, out: bytes = out) -> MergeResult | None:
                is_as_it_came_in = version_of(current).startswith(told.went_in)
                later: Side = "theirs" if is_as_it_came_in else "ours"
                return _appended(base, current, out) or merge(path, base, current, out, later=later)

            given = self._given_back(label, path, out, together)
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
        self,
        label: Label,
        path: WorkspacePath,
        out: bytes,
        together: Callable[[bytes], MergeResult | None],
    ) -> _Given | None:
        """`together` with what is there. None when somebody was faster."""
        try:
            blob = self._settled(path)
            if blob is None:
                at = self._entered(label, path)
                return None if at is None else _Given(at)
            merged = together(blob.data)
            if merged is not None:
                return self._merged(path, merged, blob.data, out)
        except (Refused, OverLimit):
            pass  # there is no place for a file any more
        at = self._put_beside(label, path, out)
        return None if at is None else _Given(at)

    def _merged(
        self, path: WorkspacePath, merged: MergeResult, current: bytes, out: bytes
    ) -> _Given | None:
        if merged.data == current:
            return _Given(path, is_merged=True)
        swapped = self.put([Replacement(path, merged.data, current)])
        if path in swapped.refused:
            raise swapped.refused[path]
        if path not in swapped.done:
            return None
        self._tell(path, merged, out)
        overtaken = tuple(replace(one, is_again=True) for one in swapped.overtaken.values())
        return _Given(path, overtaken, is_merged=True)

    def _put_beside(self, label: Label, path: WorkspacePath, out: bytes) -> WorkspacePath | None:
        """As a second file; in the root, where its directory is none any more; under another name, where that
        one is taken by something else."""
        version = version_of(out)
        for _ in range(TRIES_MAX):
            beside = conflict_path(path, version)
            try:
                if self._entered(label, beside) or self._holds(beside, out):
                    return beside
                version = version_of(version.encode())
            except Refused:
                path = WorkspacePath(path.name)
        return None

    def _holds(self, path: WorkspacePath, data: bytes) -> bool:
        try:
            return self._tree.read(path).data == data
        except Failure:
            return False

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
        told = displaced_by(label)
        if told is not None and told.has_come_out:
            uncertain = mark_replaced(label, is_certain=False)
            self._tree.relabel(label, uncertain)
            label = uncertain
        try:
            self._tree.exchange(label, path)
        except NotFound:
            self._entered(label, path)
        return path

    def _object(self, name: ObjectId) -> bytes | None:
        try:
            return self._read_object(name)
        except Failure:
            return None


def _appended(base: bytes | None, current: bytes, out: bytes) -> MergeResult | None:
    """What a shell has only appended is appended, to the byte: to a merge the same line twice is one."""
    if base is None or not _is_append(base, out):
        return None
    joint = b"" if current.endswith(b"\n") or not current else b"\n"
    return MergeResult(current + joint + out[len(base) :])


def _is_append(base: bytes | None, out: bytes) -> bool:
    return bool(base) and base.endswith(b"\n") and out.startswith(base)


def _on_top(
    path: WorkspacePath, came_in: bytes, both: MergeResult, current: bytes
) -> MergeResult | None:
    """What was changed since it came in."""
    later = _appended(came_in, both.data, current)
    if later is None:
        later = merge(path, came_in, both.data, current, later="theirs")
    if later is None:
        return None
    clashes = tuple(dict.fromkeys((*both.clashes, *later.clashes)))
    return MergeResult(later.data, both.overlaps + later.overlaps, clashes)
