"""Apply incoming changes: fetch, merge with the files here, write into the tree, then update the baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, assert_never

from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import SYNC
from workspaces.storage.blobs import Blob, Token, is_surely_of, may_say_more
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile
from workspaces.sync.counted_store import CountedStore
from workspaces.sync.object_origin import may_have_front_matter, origin_in, origins_of
from workspaces.sync.outbox import Outbox
from workspaces.sync.reconcile import (
    Compare,
    DropBaseline,
    KeepBoth,
    MergedVersions,
    Pull,
    PullDeletion,
    SameVersions,
    merge_versions,
)
from workspaces.sync.report import SyncReport
from workspaces.sync.survey import Survey
from workspaces.sync.thread_pool import ThreadPool
from workspaces.tree.merge_marks import describe_merge
from workspaces.tree.port import Staged
from workspaces.workspace.incoming_changes import IncomingChange, Theirs
from workspaces.workspace.workspace import Workspace

BATCH_FILES = 256
"""Files fetched before they are put into the tree. This limits how long the writer lock is held at a time."""

IncomingAction = Pull | PullDeletion | Compare | DropBaseline


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file read from the store, and the place where its bytes are staged."""

    blob: Blob
    base: SyncedFile | None
    """The baseline row from before the read. The versions read there and here are therefore not older
    than it."""
    staged: Staged | None = None


class Incoming:
    def __init__(
        self,
        workspace: Workspace,
        there: CountedStore,
        baseline: Baseline,
        pool: ThreadPool,
        outbox: Outbox,
    ) -> None:
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._pool = pool
        self._outbox = outbox

    def take(
        self,
        actions: Sequence[IncomingAction],
        survey: Survey,
        report: SyncReport,
        on_done: Callable[[int], None],
        theirs: Callable[[], Theirs | None] | None = None,
    ) -> list[WorkspacePath]:
        """Fetch and apply the actions one batch at a time, and return the paths that must be planned
        again.

        Deletions go first, because incoming files may need their place. With `theirs`, the history of
        the other machines, all actions are applied at once. Only then do the changes appear in the
        history as the other machines recorded them. The caller's thread waits for that history at the
        latest when the files are here.
        """
        base = survey.base
        again: list[WorkspacePath] = []
        in_order = sorted(actions, key=lambda action: not isinstance(action, PullDeletion))
        groups = _batches(in_order) if theirs is None else iter([in_order])
        fetched: dict[WorkspacePath, FetchedFile] = {}
        from_history = self._files_in_history(actions, survey.there, theirs)
        with self._workspace.staging() as stage:

            def fetch(action: IncomingAction) -> FetchedFile | None:
                agreed = base.get(action.path)
                blob = from_history.pop(action.path, None)
                return self._fetch(action, agreed) if blob is None else FetchedFile(blob, agreed)

            def on_fetched(action: IncomingAction, file: FetchedFile | None) -> None:
                if file is not None:
                    staged = stage(file.blob.data) if isinstance(action, Pull) else None
                    fetched[action.path] = replace(file, staged=staged)

            with closing(self._pool.map_batches(fetch, groups, on_fetched)) as batches:
                for batch, _ in batches:
                    their_history = theirs() if theirs is not None else None
                    for part in _batches(batch) if their_history is None else [batch]:
                        again += self.put(part, fetched, base, report, their_history)
                        on_done(len(part))
                    fetched.clear()
        return again

    def put(
        self,
        actions: Sequence[IncomingAction],
        fetched: Mapping[WorkspacePath, FetchedFile],
        base: Mapping[WorkspacePath, SyncedFile],
        report: SyncReport,
        theirs: Theirs | None = None,
    ) -> list[WorkspacePath]:
        """Apply the fetched files to the tree, and return the paths that must be planned again."""
        changes: list[IncomingChange] = []
        baseline_changes: dict[WorkspacePath, BaselineChange] = {}
        again: list[WorkspacePath] = []
        same: dict[WorkspacePath, ObjectId | None] = {}
        planned = SyncReport()
        pulled = {
            action.path for action in actions if isinstance(action, Pull) and action.path in fetched
        }
        is_unchanged = self._unchanged_check(actions, fetched, base)
        for action in actions:
            fetched_file = fetched.get(action.path)
            if not is_unchanged(action.path):
                again.append(action.path)  # the baseline row has changed since the survey
            elif isinstance(action, PullDeletion):
                changes.append(IncomingChange(action.path, None, action.expect))
                baseline_changes[action.path] = BaselineChange(
                    action.path, base.get(action.path), None
                )
                planned.pulled.append(action.path)
            elif isinstance(action, DropBaseline):
                same[action.path] = None
                baseline_changes[action.path] = BaselineChange(
                    action.path, base.get(action.path), None
                )
            elif fetched_file is None:
                again.append(action.path)  # deleted there since the listing
            elif isinstance(action, Pull):
                data, staged = fetched_file.blob.data, fetched_file.staged
                origin = origin_in(fetched_file.blob.meta)
                changes.append(
                    IncomingChange(action.path, data, action.expect, staged=staged, origin=origin)
                )
                baseline_changes[action.path] = _baseline_change(action.path, fetched_file)
                planned.pulled.append(action.path)
            elif self._merge(action.path, fetched_file, pulled, changes, same, planned):
                baseline_changes[action.path] = _baseline_change(action.path, fetched_file)
            else:
                again.append(action.path)  # deleted here since the survey
        # Equal on both sides when compared: keep only files that have not changed since.
        for path in same.keys() - self._workspace.staying(same):
            del baseline_changes[path], same[path]
            again.append(path)
        if again:  # some files of their revision are missing here: follow it in the next round
            theirs = None
        return again + self._apply(changes, baseline_changes, same, planned, report, theirs)

    def _unchanged_check(
        self,
        actions: Sequence[IncomingAction],
        fetched: Mapping[WorkspacePath, FetchedFile],
        base: Mapping[WorkspacePath, SyncedFile],
    ) -> Callable[[WorkspacePath], bool]:
        """Return a check that a path's baseline row is still the row from before the path was read.

        A process here may have written to the store, and other machines may already have built on that
        write. The row shows the write once that process has recorded it. So this waits for all senders
        and writers first.
        """
        self._outbox.wait()
        self._workspace.wait_for_writers()
        agreed = self._baseline.among([action.path for action in actions])

        def is_unchanged(path: WorkspacePath) -> bool:
            return agreed(path) == (fetched[path].base if path in fetched else base.get(path))

        return is_unchanged

    def _merge(
        self,
        path: WorkspacePath,
        fetched_file: FetchedFile,
        pulled: Collection[WorkspacePath],
        changes: list[IncomingChange],
        same: dict[WorkspacePath, ObjectId | None],
        planned: SyncReport,
    ) -> bool:
        """Plan the outcome for a path that both sides changed. Return False if the file here has been
        deleted since.

        A path in `pulled` keeps the version from the store. That includes a second file that another
        machine kept of the same bytes and then changed.
        """
        try:
            here = self._workspace.read(path).data
        except NotFound:
            return False
        there = fetched_file.blob.data
        agreed = fetched_file.base
        base = self._base_bytes(agreed) if agreed and not agreed.is_being_deleted else None
        later = self._later_side(path, here, fetched_file.blob)
        result = merge_versions(path, base, here, there, later=later)
        origin = origin_in(fetched_file.blob.meta)
        match result:
            case SameVersions():
                same[path] = blob_id(here)
            case MergedVersions(data, overlaps, clashes):
                mark = describe_merge(overlaps, clashes)
                expect = version_of(here)
                changes.append(
                    IncomingChange(
                        path, data, expect, beside=there, merge_summary=mark, origin=origin
                    )
                )
                planned.merged.append(path)
            case KeepBoth(beside):
                if beside not in pulled:
                    changes.append(IncomingChange(beside, here, None))
                changes.append(IncomingChange(path, there, version_of(here), origin=origin))
                planned.conflicts.append(beside)
            case _:
                assert_never(result)
        return True

    def _apply(
        self,
        changes: Sequence[IncomingChange],
        baseline_changes: Mapping[WorkspacePath, BaselineChange],
        same: Mapping[WorkspacePath, ObjectId | None],
        planned: SyncReport,
        report: SyncReport,
        theirs: Theirs | None,
    ) -> list[WorkspacePath]:
        """Write the changes into the tree, then into the baseline, and return the paths that must be
        planned again.

        A text that was merged here must still be sent. A state that both sides reached independently
        becomes a revision, if no revision has recorded it yet.
        """
        if changes or theirs is not None:
            result = self._workspace.incoming.apply(changes, by=SYNC, theirs=theirs)
            report.refused += result.refused
            report.unfollowed = report.unfollowed or result.unfollowed
            not_applied = {*result.left, *(problem.path for problem in result.refused)}
            unsent = result.merged_saves | result.mended
        else:
            not_applied, unsent = set[str](), set[WorkspacePath]()
        if same:
            not_applied.update(same.keys() - self._workspace.edits.committed(same)[0])
        self._baseline.take(
            change for path, change in baseline_changes.items() if path not in not_applied
        )
        report.pulled += [path for path in planned.pulled if path not in not_applied]
        report.merged += [path for path in planned.merged if path not in not_applied]
        report.conflicts += [path for path in planned.conflicts if path not in not_applied]
        left = [
            path
            for path in baseline_changes
            if path in not_applied and path not in _paths(report.refused)
        ]
        unfinished = {*unsent, *map(WorkspacePath, (*planned.merged, *planned.conflicts))}
        return [*left, *(path for path in unfinished if path not in not_applied)]

    def _files_in_history(
        self,
        actions: Sequence[IncomingAction],
        there: Mapping[WorkspacePath, Token],
        theirs: Callable[[], Theirs | None] | None,
    ) -> dict[WorkspacePath, Blob]:
        """Return the files that need not be fetched. Their history contains them, and their tokens can
        only belong to those bytes.

        Fetching a few files takes less time than waiting for that history, so a few files are always
        fetched.
        """
        if theirs is None:
            return {}
        pulled = (action.path for action in actions if isinstance(action, Pull))
        paths = {path for path in pulled if may_say_more(there[path])}
        if len(paths) <= self._pool.threads:
            return {}
        their_history = theirs()
        if their_history is None:
            return {}
        from_history: dict[WorkspacePath, Blob] = {}
        read = their_history.quarantine.files
        with suppress(Unavailable), closing(read(their_history.tip, paths)) as files:
            for path, data in files:
                if is_surely_of(there[path], data):
                    from_history[path] = Blob(path, data, there[path])
        return from_history

    def _fetch(self, action: IncomingAction, base: SyncedFile | None) -> FetchedFile | None:
        """Read one file from the store, with the baseline row to merge on. Return None if the object is
        gone.

        Where both sides changed, the row is read now. Since the survey, others may have agreed on a new
        state. A merge on the older row would take the text they replaced for a change.
        """
        if isinstance(action, PullDeletion | DropBaseline):
            return None
        if isinstance(action, Compare):
            base = self._baseline.find(action.path)
        try:
            return FetchedFile(self._there.read(action.path), base)
        except NotFound:
            return None

    def _base_bytes(self, base: SyncedFile) -> bytes | None:
        """Return the bytes of the merge base, or None if they cannot be read. Without them no text
        counts as old, and the merge keeps everything."""
        try:
            return self._workspace.history.read(base.object_id)
        except Failure:
            return None

    def _later_side(self, path: WorkspacePath, here: bytes, blob: Blob) -> Literal["here", "there"]:
        """Return the side that changed the front matter later. The answer is the same on every machine."""
        if not may_have_front_matter(here):
            return "here"
        # A manual edit has no stamp until it is committed.
        self._workspace.edits.committed({path: blob_id(here)})
        origin = origins_of(self._workspace.history, [path]).get(path)
        local = (origin.stamp if origin else "", here)
        return "here" if local > (blob.meta.get("stamp", ""), blob.data) else "there"


def _baseline_change(path: WorkspacePath, fetched_file: FetchedFile) -> BaselineChange:
    blob = fetched_file.blob
    return BaselineChange(
        path, fetched_file.base, SyncedFile(blob.version, blob_id(blob.data), blob.token)
    )


def _paths(problems: Iterable[Problem]) -> set[str]:
    return {problem.path for problem in problems}


def _batches(actions: Iterable[IncomingAction]) -> Iterator[list[IncomingAction]]:
    rest = iter(actions)
    while batch := list(islice(rest, BATCH_FILES)):
        yield batch
