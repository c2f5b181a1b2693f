"""Replace a file that another program may be writing, without losing what that program saves.

    prepare the new file aside → exchange the two files → read the replaced file
    → (250 ms later) check the replaced file for late writes → discard it

An editor or a shell saves without taking any lock. So a person can save a file after we read it and before
we exchange it. The exchange then takes the person's save out of the tree. Such a *concurrent save* is merged
back into the file.

Why merge it back, and not keep it as a conflict file? Conflict files would be worse for people. A person
who saves a note expects to find the text in that note. With a conflict file the text would be in a second
file that the person did not make, has to find, compare and remove, and that no agent reads as memory. Most
such saves add a line that a merge can place without any question. So a conflict file is the last resort,
for what cannot be merged.

The merge happens after the caller has recorded the replacement. It has three sides: the version the caller
expected is the base, and the replacement and the concurrent save are the two changes. The saved file does
not simply go back to its path. The replacement has been in the tree, if only for a moment. A program that
opened or saved the file since then has built on it, and its changes are the later ones. Only two things
go back to their path: a save that meets a deletion, because the edit wins, and anything that is not a
file we can read.

A shell that opened the file before the exchange still appends to the replaced file after the exchange. So
the replaced file is read once more, 250 ms later. What was written to it since is merged back too.

If the process dies in between, or the disk is full, the replaced file stays aside. Its label says what it
should be. So recovery at start-up is the same check for late writes and needs no journal. A process that
dies during the merge can cause it to happen twice. In the worst case a line is then in the file twice.

All of this needs the writer lock.
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
"""Seconds until the check for late writes. A shell's `echo x >> file` opens, writes and closes within a
millisecond. A loaded machine takes longer."""

TRIES_MAX = 20
"""Limit of attempts to merge a save back. A program that saves faster than that, twenty times in a row, is
not an editor."""

Resolve = Callable[[Displaced], WorkspacePath | None]
"""Find the path of a label that contains only the path's hash."""

OnMerge = Callable[[WorkspacePath, MergeResult, bytes], object]
"""Make a revision of a file's new content, after it was merged with a replaced file."""


@dataclass(frozen=True, slots=True)
class Replacement:
    path: WorkspacePath
    data: bytes | None
    """The new content. None: the file is deleted."""
    seen: bytes | None
    """The content the caller expects to replace. None: there must be no file."""
    staged: Staged | None = None
    """The staged file that already holds `data`."""


@dataclass(frozen=True, slots=True)
class ConcurrentSave:
    """A replaced file whose content is not the expected one: another program saved it."""

    label: Label
    came_in: bytes
    is_again: bool = False
    """True if the replacement was itself a concurrent save being merged back. A replaced file with the same
    bytes is then another append, not a copy of the replacement."""


@dataclass(frozen=True, slots=True)
class Replaced:
    done: set[WorkspacePath]
    refused: dict[WorkspacePath, Failure]
    """Paths where no file can be. A path in neither `done` nor `refused` was changed by another program
    first: that program's file is there."""
    concurrent_saves: dict[WorkspacePath, ConcurrentSave]
    """The replacements that were done although another program had saved. The caller passes them to `restore`
    once the replacement is recorded."""


@dataclass(frozen=True, slots=True)
class _MergedBack:
    """The result of merging a replaced file back."""

    path: WorkspacePath
    concurrent_saves: tuple[ConcurrentSave, ...] = ()
    """Concurrent saves that this merge itself replaced."""
    is_merged: bool = False
    """True if the content was merged and the replaced file still lies aside."""


class SafeReplace:
    def __init__(
        self,
        tree: LiveTree,
        read_object: Callable[[ObjectId], bytes],
        store_object: Callable[[bytes], ObjectId],
        nonce: Callable[[], str],
        resolve: Resolve,
        committed_file: Callable[[WorkspacePath], Blob | None],
        on_merge: OnMerge,
    ) -> None:
        """`committed_file` returns a file after its manual edits are committed. Without that commit, the
        later check of a replaced file would have no base. `store_object` stores bytes that are in no
        revision."""
        self._tree = tree
        self._read_object = read_object
        self._store_object = store_object
        self._nonce = nonce
        self._resolve = resolve
        self._committed_file = committed_file
        self._on_merge = on_merge

    def put(self, replacements: Sequence[Replacement]) -> Replaced:
        labels, new = self._prepare(replacements)
        replaced = Replaced(set(), {}, {})
        try:
            for change in replacements:
                try:
                    staged = new.get(change.path)
                    if staged is not None:
                        self._tree.enter(staged, change.path)
                    elif not self._replace(change, labels[change.path], replaced):
                        continue
                    replaced.done.add(change.path)
                except (AlreadyExists, NotFound):
                    continue  # another program changed the path first: its file stays
                except Refused as error:
                    replaced.refused[change.path] = error
        finally:
            for path in new.keys() - replaced.done:
                self._tree.discard(new[path])
            self._tree.flush(replaced.done)
        return replaced

    def _prepare(
        self, replacements: Sequence[Replacement]
    ) -> tuple[dict[WorkspacePath, Label], dict[WorkspacePath, Staged]]:
        """Make the new content durable. Return the label for each file to be replaced, and the staged file
        for each new path."""
        labels: dict[WorkspacePath, Label] = {}
        over: dict[Label, bytes | Staged] = {}
        new: dict[WorkspacePath, bytes | Staged] = {}
        for change in replacements:
            data = change.staged or change.data
            if change.seen is None and data is not None:
                new[change.path] = data
                continue
            labels[change.path] = label = self._label(change)
            if data is not None:
                over[label] = data
        self._tree.prepare(over)
        return labels, dict(zip(new, self._tree.confirm(list(new.values())), strict=True))

    def _replace(self, change: Replacement, label: Label, replaced: Replaced) -> bool:
        try:
            if change.data is None:
                self._tree.take(change.path, label)
            else:
                self._tree.exchange(label, change.path)
        except (NotFound, Refused):
            self._tree.discard(label)  # the new file never was in the tree
            raise
        out = self._tree.look(label)
        if change.data is None or out is None:
            if out == change.seen:
                return True  # deleted, and nothing was saved meanwhile
            self._put_back(label, change.path)  # a save meets a deletion, or it is no readable file
            return False
        label = self._mark_replaced(label)
        if out != change.seen:  # another program saved between our read and the exchange
            replaced.concurrent_saves[change.path] = ConcurrentSave(label, change.data)
        return True

    def _mark_replaced(self, label: Label) -> Label:
        """Mark that the file under this label was in the tree, even if it equals the replacement."""
        marked = mark_replaced(label)
        try:
            self._tree.relabel(label, marked)
        except Failure:
            return label
        return marked

    def _label(self, change: Replacement) -> Label:
        expected = blob_id(change.seen or b"")  # a new file gets no label
        went_in = None if change.data is None else version_of(change.data)
        return label_of(change.path, expected, went_in, self._nonce())

    def restore(self, concurrent_saves: Iterable[ConcurrentSave]) -> None:
        """Merge back the concurrent saves. A save that cannot be merged now lies aside until the check for
        late writes."""
        waiting = list(concurrent_saves)
        for _ in range(len(waiting) + TRIES_MAX):
            if not waiting:
                return
            with suppress(Failure):
                waiting += self._restore_one(waiting.pop())

    def _restore_one(self, save: ConcurrentSave) -> Sequence[ConcurrentSave]:
        """Merge one concurrent save back. Return the saves that remain to be merged.
        The program that saved may still have the file open and write to it. So the replaced file stays aside,
        labelled with its present content as the expected one."""
        label, out = save.label, self._tree.look(save.label)
        displaced, path = displaced_by(label), self.path_of(label)
        if displaced is None or path is None or out is None:
            return ()
        base = self._object(displaced.expected)

        def merge_with(current: bytes) -> MergeResult | None:
            if out == save.came_in and not save.is_again:
                return MergeResult(current)  # the other program saved the same bytes
            appended = _appended(base, current, out)
            if out == current and not (appended and current.startswith(save.came_in)):
                return MergeResult(current)  # the present file already has this save
            combined = merge(path, base, save.came_in, out, later="theirs")
            if combined is None:
                return None
            return appended or _apply_later_changes(path, save.came_in, combined, current)

        merged_back = self._merge_back(label, path, out, merge_with)
        if merged_back is None:  # the file changed again: try once more
            return (save,)
        if merged_back.is_merged:
            relabelled = label_of(path, self._store_object(out), None, self._nonce())
            self._tree.relabel(label, relabelled)
        return merged_back.concurrent_saves

    def check_late_writes(self, label: Label) -> WorkspacePath | None:
        """Merge back what another program wrote to a replaced file after the exchange. Return the path where
        it now is. Return None if there was nothing to merge.
        A save that arrives during this check waits for the next one."""
        path = self.path_of(label)
        displaced = displaced_by(label)
        if displaced is None or path is None:
            return None
        base = self._object(displaced.expected)
        for _ in range(TRIES_MAX):
            out = self._tree.look(label)
            if out is None:
                return self._put_back(label, path)
            is_replacement = version_of(out).startswith(displaced.went_in)
            is_late_append = displaced.has_come_out and _is_append(base, out)
            if blob_id(out) == displaced.expected or (is_replacement and not is_late_append):
                # nothing was written to the replaced file after the exchange
                self._tree.discard(label)
                return None

            def merge_with(current: bytes, out: bytes = out) -> MergeResult | None:
                is_unchanged = version_of(current).startswith(displaced.went_in)
                later: Side = "theirs" if is_unchanged else "ours"
                return _appended(base, current, out) or merge(path, base, current, out, later=later)

            merged_back = self._merge_back(label, path, out, merge_with)
            if merged_back is not None:
                self._tree.discard(label)
                return merged_back.path
        return None  # stays aside until the next check

    def path_of(self, label: Label) -> WorkspacePath | None:
        displaced = displaced_by(label)
        if displaced is None:
            return None
        return (
            self._resolve(displaced)
            if displaced.path.startswith("#")
            else WorkspacePath(displaced.path)
        )

    def _merge_back(
        self,
        label: Label,
        path: WorkspacePath,
        out: bytes,
        merge_with: Callable[[bytes], MergeResult | None],
    ) -> _MergedBack | None:
        """Merge a replaced file with the present file by calling `merge_with`. Return None if another program
        changed the present file first."""
        try:
            blob = self._committed_file(path)
            if blob is None:  # there is no file at the path: the replaced file goes back
                at = self._enter(label, path)
                return None if at is None else _MergedBack(at)
            merged = merge_with(blob.data)
            if merged is not None:
                return self._write_merge(path, merged, blob.data, out)
        except (Refused, OverLimit):
            pass  # no file can be at this path any more: keep a conflict file
        at = self._put_beside(label, path, out)
        return None if at is None else _MergedBack(at)

    def _write_merge(
        self, path: WorkspacePath, merged: MergeResult, current: bytes, out: bytes
    ) -> _MergedBack | None:
        if merged.data == current:
            return _MergedBack(path, is_merged=True)
        replaced = self.put([Replacement(path, merged.data, current)])
        if path in replaced.refused:
            raise replaced.refused[path]
        if path not in replaced.done:
            return None
        self._on_merge(path, merged, out)
        concurrent_saves = tuple(
            replace(save, is_again=True) for save in replaced.concurrent_saves.values()
        )
        return _MergedBack(path, concurrent_saves, is_merged=True)

    def _put_beside(self, label: Label, path: WorkspacePath, out: bytes) -> WorkspacePath | None:
        """Keep the replaced file as a conflict file. If its directory no longer exists, use the root. If
        another file has the name, use another name."""
        version = version_of(out)
        for _ in range(TRIES_MAX):
            beside = conflict_path(path, version)
            try:
                if self._enter(label, beside) or self._has_content(beside, out):
                    return beside
                version = version_of(version.encode())
            except Refused:
                path = WorkspacePath(path.name)
        return None

    def _has_content(self, path: WorkspacePath, data: bytes) -> bool:
        try:
            return self._tree.read(path).data == data
        except Failure:
            return False

    def _enter(self, label: Label, path: WorkspacePath) -> WorkspacePath | None:
        try:
            self._tree.enter(label, path)
        except AlreadyExists:
            return None
        self._tree.flush([path])
        return path

    def _put_back(self, label: Label, path: WorkspacePath) -> WorkspacePath | None:
        """Move a replaced file back to its path. This is for a save in place of a file to be deleted. It is
        also for an entry we cannot read (a link, or too large), which is a problem at its path.
        The file that this move takes out is checked for late writes in its turn."""
        if label not in self._tree.labels():
            return None
        displaced = displaced_by(label)
        if displaced is not None and displaced.has_come_out:
            uncertain = mark_replaced(label, is_certain=False)
            self._tree.relabel(label, uncertain)
            label = uncertain
        try:
            self._tree.exchange(label, path)
        except NotFound:
            self._enter(label, path)
        return path

    def _object(self, name: ObjectId) -> bytes | None:
        try:
            return self._read_object(name)
        except Failure:
            return None


def _appended(base: bytes | None, current: bytes, out: bytes) -> MergeResult | None:
    """Append to `current`, byte for byte, the lines that a shell only appended to `base`. Return None if
    `out` is not such an append.
    A merge is not used here, because it would keep the same line only once."""
    if base is None or not _is_append(base, out):
        return None
    joint = b"" if current.endswith(b"\n") or not current else b"\n"
    return MergeResult(current + joint + out[len(base) :])


def _is_append(base: bytes | None, out: bytes) -> bool:
    return bool(base) and base.endswith(b"\n") and out.startswith(base)


def _apply_later_changes(
    path: WorkspacePath, came_in: bytes, combined: MergeResult, current: bytes
) -> MergeResult | None:
    """Apply the changes made to the file since the replacement came in."""
    later = _appended(came_in, combined.data, current)
    if later is None:
        later = merge(path, came_in, combined.data, current, later="theirs")
    if later is None:
        return None
    clashes = tuple(dict.fromkeys((*combined.clashes, *later.clashes)))
    return MergeResult(later.data, combined.overlaps + later.overlaps, clashes)
