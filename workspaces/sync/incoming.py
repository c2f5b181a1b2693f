"""What comes in: fetched, met with what is here, put into the tree, and then into the baseline."""

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
from workspaces.sync.outbox import Outbox
from workspaces.sync.recency import changed_at, decides
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
"""What is fetched before it is put into the tree, and so how long the writer lock is held at once."""

IncomingAction = Pull | PullDeletion | Compare | DropBaseline


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """What was read there, and where it lies aside."""

    blob: Blob
    base: SyncedFile | None
    """What was agreed on before it was read: what is there, and what is here, came after it."""
    staged: Staged | None = None


class Incoming:
    def __init__(
        self,
        workspace: Workspace,
        there: CountedStore,
        baseline: Baseline,
        crowd: ThreadPool,
        outbox: Outbox,
    ) -> None:
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._crowd = crowd
        self._outbox = outbox

    def take(
        self,
        actions: Sequence[IncomingAction],
        survey: Survey,
        report: SyncReport,
        done: Callable[[int], None],
        theirs: Callable[[], Theirs | None] | None = None,
    ) -> list[WorkspacePath]:
        """A batch at a time, deletions first: what comes may need their place. With their history, which is
        waited for at the latest when the files are here, all comes at once: only then is it told as they
        told it."""
        base = survey.base
        again: list[WorkspacePath] = []
        in_order = sorted(actions, key=lambda action: not isinstance(action, PullDeletion))
        groups = _batches(in_order) if theirs is None else iter([in_order])
        fetched: dict[WorkspacePath, FetchedFile] = {}
        at_hand = self._at_hand(actions, survey.there, theirs)
        with self._workspace.staging() as stage:

            def fetch(action: IncomingAction) -> FetchedFile | None:
                agreed = base.get(action.path)
                blob = at_hand.pop(action.path, None)
                return self._fetched(action, agreed) if blob is None else FetchedFile(blob, agreed)

            def come(action: IncomingAction, one: FetchedFile | None) -> None:
                if one is not None:
                    aside = stage(one.blob.data) if isinstance(action, Pull) else None
                    fetched[action.path] = replace(one, staged=aside)

            with closing(self._crowd.ahead(fetch, groups, come)) as batches:
                for batch, _ in batches:
                    followed = theirs() if theirs is not None else None
                    for part in _batches(batch) if followed is None else [batch]:
                        again += self.put(part, fetched, base, report, followed)
                        done(len(part))
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
        """Into the tree, what was read there."""
        arrivals: list[IncomingChange] = []
        steps: dict[WorkspacePath, BaselineChange] = {}
        again: list[WorkspacePath] = []
        same: dict[WorkspacePath, ObjectId | None] = {}
        told = SyncReport()
        pulled = {one.path for one in actions if isinstance(one, Pull) and one.path in fetched}
        is_as_agreed = self._agreement(actions, fetched, base)
        for action in actions:
            come = fetched.get(action.path)
            if not is_as_agreed(action.path):
                again.append(action.path)
            elif isinstance(action, PullDeletion):
                arrivals.append(IncomingChange(action.path, None, action.expect))
                steps[action.path] = BaselineChange(action.path, base.get(action.path), None)
                told.pulled.append(action.path)
            elif isinstance(action, DropBaseline):
                same[action.path] = None
                steps[action.path] = BaselineChange(action.path, base.get(action.path), None)
            elif come is None:
                again.append(action.path)  # gone since it was listed
            elif isinstance(action, Pull):
                data, staged = come.blob.data, come.staged
                arrivals.append(IncomingChange(action.path, data, action.expect, staged=staged))
                steps[action.path] = _step(action.path, come)
                told.pulled.append(action.path)
            elif self._meet(action.path, come, pulled, arrivals, same, told):
                steps[action.path] = _step(action.path, come)
            else:
                again.append(action.path)
        for path in same.keys() - self._workspace.staying(same):
            del steps[path], same[path]
            again.append(path)
        if again:  # not all that theirs speaks of: the next round follows it
            theirs = None
        return again + self._brought(arrivals, steps, same, told, report, theirs)

    def _agreement(
        self,
        actions: Sequence[IncomingAction],
        fetched: Mapping[WorkspacePath, FetchedFile],
        base: Mapping[WorkspacePath, SyncedFile],
    ) -> Callable[[WorkspacePath], bool]:
        """Whether a path is still agreed on as it was before it was looked at. Somebody here may have written
        there what others have built on since: once he has told of it its row says so."""
        self._outbox.wait()
        self._workspace.wait_for_writers()
        agreed = self._baseline.among([action.path for action in actions])

        def is_as_agreed(path: WorkspacePath) -> bool:
            return agreed(path) == (fetched[path].base if path in fetched else base.get(path))

        return is_as_agreed

    def _meet(
        self,
        path: WorkspacePath,
        come: FetchedFile,
        pulled: Collection[WorkspacePath],
        arrivals: list[IncomingChange],
        same: dict[WorkspacePath, ObjectId | None],
        told: SyncReport,
    ) -> bool:
        """What becomes of a path that both sides changed; False when it is gone here meanwhile. `pulled`
        comes as it is there: a second file, too, which somebody has kept of the same bytes and changed."""
        try:
            here = self._workspace.read(path).data
        except NotFound:
            return False
        there = come.blob.data
        base = self._bytes_of(come.base) if come.base and not come.base.is_going else None
        result = merge_versions(path, base, here, there, later=self._later(path, here, come.blob))
        match result:
            case SameVersions():
                same[path] = blob_id(here)
            case MergedVersions(data, overlaps, clashes):
                seam = describe_merge(overlaps, clashes)
                expect = version_of(here)
                arrivals.append(
                    IncomingChange(path, data, expect, beside=there, merge_summary=seam)
                )
                told.merged.append(path)
            case KeepBoth(beside):
                if beside not in pulled:
                    arrivals.append(IncomingChange(beside, here, None))
                arrivals.append(IncomingChange(path, there, version_of(here)))
                told.conflicts.append(beside)
            case _:
                assert_never(result)
        return True

    def _brought(
        self,
        arrivals: Sequence[IncomingChange],
        steps: Mapping[WorkspacePath, BaselineChange],
        same: Mapping[WorkspacePath, ObjectId | None],
        told: SyncReport,
        report: SyncReport,
        theirs: Theirs | None,
    ) -> list[WorkspacePath]:
        """Into the tree, and then into the baseline. What was merged here must still go out. What both sides
        have come to by themselves is made a revision, where nobody has told of it."""
        if arrivals or theirs is not None:
            brought = self._workspace.bring(arrivals, by=SYNC, theirs=theirs)
            report.refused += brought.refused
            report.unfollowed = report.unfollowed or brought.unfollowed
            out = {*brought.left, *(problem.path for problem in brought.refused)}
            unsent = brought.merged_saves
        else:
            out, unsent = set[str](), set[WorkspacePath]()
        if same:
            out.update(same.keys() - self._workspace.committed(same)[0])
        self._baseline.take(step for path, step in steps.items() if path not in out)
        report.pulled += [path for path in told.pulled if path not in out]
        report.merged += [path for path in told.merged if path not in out]
        report.conflicts += [path for path in told.conflicts if path not in out]
        left = [path for path in steps if path in out and path not in _paths(report.refused)]
        unfinished = {*unsent, *map(WorkspacePath, (*told.merged, *told.conflicts))}
        return [*left, *(path for path in unfinished if path not in out)]

    def _at_hand(
        self,
        actions: Sequence[IncomingAction],
        there: Mapping[WorkspacePath, Token],
        theirs: Callable[[], Theirs | None] | None,
    ) -> dict[WorkspacePath, Blob]:
        """What need not be fetched: their history has it, and its token can only be that of those bytes. A
        few files are fetched sooner than it."""
        if theirs is None:
            return {}
        pulled = (one.path for one in actions if isinstance(one, Pull))
        wanted = {path for path in pulled if may_say_more(there[path])}
        if len(wanted) <= self._crowd.threads:
            return {}
        followed = theirs()
        if followed is None:
            return {}
        at_hand: dict[WorkspacePath, Blob] = {}
        read = followed.quarantine.files
        with suppress(Unavailable), closing(read(followed.tip, wanted)) as files:
            for path, data in files:
                if is_surely_of(there[path], data):
                    at_hand[path] = Blob(path, data, there[path])
        return at_hand

    def _fetched(self, action: IncomingAction, base: SyncedFile | None) -> FetchedFile | None:
        """What both sides changed has its base from now: since the survey others may have agreed on
        something, and a merge with what was before it takes what they replaced for a change."""
        if isinstance(action, PullDeletion | DropBaseline):
            return None
        if isinstance(action, Compare):
            base = self._baseline.find(action.path)
        try:
            return FetchedFile(self._there.read(action.path), base)
        except NotFound:
            return None

    def _bytes_of(self, base: SyncedFile) -> bytes | None:
        """Of the base of a merge; without them nothing is known to be old, and everything is kept."""
        try:
            return self._workspace.history.read(base.object_id)
        except Failure:
            return None

    def _later(self, path: WorkspacePath, here: bytes, blob: Blob) -> Literal["here", "there"]:
        """Whose change of one key of the front matter is the later one; equal on every machine."""
        if not decides(here):
            return "here"
        self._workspace.committed(
            {path: blob_id(here)}
        )  # before, what was done by hand has no stamp
        mine = (changed_at(self._workspace.history, path), here)
        return "here" if mine > (blob.meta.get("stamp", ""), blob.data) else "there"


def _step(path: WorkspacePath, come: FetchedFile) -> BaselineChange:
    blob = come.blob
    return BaselineChange(path, come.base, SyncedFile(blob.version, blob_id(blob.data), blob.token))


def _paths(problems: Iterable[Problem]) -> set[str]:
    return {problem.path for problem in problems}


def _batches(actions: Iterable[IncomingAction]) -> Iterator[list[IncomingAction]]:
    rest = iter(actions)
    while batch := list(islice(rest, BATCH_FILES)):
        yield batch
