"""Sync: the files here and the objects there become one, and nothing that anyone wrote is lost.

**The theory.** Two sides change without asking each other, and neither can be stopped: here an editor
saves at any moment, there other machines write. What both last agreed on stands in the `baseline`. From
it, from a scan of the tree and a listing of the store, `reconcile` decides for each path what is to be
done, and this file does it. Nothing is done to what was not looked at:

    there   a write or delete carries the token of the state it was decided on, and the store refuses it
            when that is not its state any more (`If-Match`, `If-None-Match: *`)
    here    a file is replaced by the verified swap (`swap`), which looks at what came out, twice

and what is looked at is first made a revision, so that every version that is replaced, here or there,
stays in the history. A refusal of either kind is no error. It means: plan again.

**What makes it safe to die anywhere.** The baseline is written after the effect. Whoever dies in between
leaves both sides equal and a baseline that is behind; the next plan meets the path, reads both, finds
them the same and writes the row. There is no journal to replay, and none that could be wrong. A swap that
was interrupted leaves what came out aside under a label that says what it should be: it is looked at
before anything else. The same holds for an answer that was lost: whether the write happened is found out
by the next plan, as for anybody else's write.

**What makes it converge.** Both sides changed: the two are merged (`met`), what is there first, and the
merge is taken for a change made here on top of what is there: the swap puts it here, the row says that
*theirs* was agreed on, and it is pushed like every other change, under theirs' token. Another machine that
was faster makes that push fail; then its version is met in turn. Merges of the same two versions are the
same bytes whoever makes them, and conflict files have the same name.

**Order.** Revisions before pushes; notes before MEMORY.md; the row last.

Deliberately absent: clocks (no time of any kind decides anything; mtimes save hashing in `tree`, and a
stamp breaks the tie when both sides set one key of a front matter), locks on the store (conditions are
enough; but see `deletion`), and deletion on a suspicion: see `Alarm`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeVar, assert_never

from workspaces.baseline import Agreed, Baseline, Step
from workspaces.blobs import Blob, BlobStore, Meta, Stat, Token
from workspaces.errors import (
    Conflict,
    Failure,
    MassDeletion,
    NotFound,
    OverLimit,
    Refused,
)
from workspaces.expect import ABSENT, Wildcard
from workspaces.history.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.problem import Problem
from workspaces.reconcile import (
    Apart,
    Forget,
    Meet,
    Merged,
    Plan,
    Pull,
    PullDeletion,
    Push,
    PushDeletion,
    Same,
    action_for,
    met,
    reconcile,
)
from workspaces.revision import Author
from workspaces.swap import SECOND_LOOK_S
from workspaces.tree import FileState, Known, Tree
from workspaces.workspace import Arrival, Workspace

SYNC = Author("sync", "sync", "sync")

ROUNDS_MAX = 10
"""How often a path that others keep changing is planned again before it is left to the next sync."""

THREADS = 32
"""Requests in flight: more does not make a store on one machine faster, and hides 50 ms of distance."""

BATCH_FILES = 256
BATCH_BYTES = 32 * 2**20
"""What is fetched before it is put into the tree, and so how long the writer lock is held at once."""

ROWS_AT_ONCE = 100
"""Each commit of the baseline waits for the disk once."""

PAGE_KEYS = 1000
"""What one request of a listing brings."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Tell = Callable[[int, int], None]
"""How many of how many are done."""


@dataclass(slots=True)
class Report:
    """What a sync did."""

    pushed: list[str] = field(default_factory=list[str])
    pulled: list[str] = field(default_factory=list[str])
    """Deletions are among both."""
    merged: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    """The second files that were made."""
    refused: list[Problem] = field(default_factory=list[Problem])
    pending: list[str] = field(default_factory=list[str])
    """What others changed faster than it could be carried out: the next sync goes on."""
    requests: int = 0

    @property
    def is_durable(self) -> bool:
        """Whether all that is here is there."""
        return not self.pending


@dataclass(frozen=True, slots=True)
class _Survey:
    """Both sides, as they were found."""

    base: Mapping[WorkspacePath, Agreed]
    here: Mapping[WorkspacePath, FileState]
    there: Mapping[WorkspacePath, Token]
    plan: Plan


class Sync:
    """One workspace and one store. Threads may share it; processes have each their own."""

    def __init__(
        self,
        workspace: Workspace,
        there: BlobStore,
        baseline: Baseline,
        *,
        place: Callable[[], str],
        check: Callable[[], None] = lambda: None,
        listing: Callable[[], Iterator[Stat]] | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        pause: Callable[[float], None] = time.sleep,
        threads: int = THREADS,
    ) -> None:
        """`place` names the store, once it can be asked: a baseline made with another one is not this
        one's. `check` refuses a store that cannot be relied on. `listing`: every object, under a good
        name or not. `alone` keeps others from syncing this tree at the same time."""
        self._workspace = workspace
        self._there = _Counted(there, listing or there.scan)
        self._baseline = baseline
        self._place = place
        self._check = check
        self._alone = alone
        self._pause = pause
        self._threads = threads
        self._is_ready = False
        self._saved: Known = {}

    # What is asked of it: a whole sync, its plan, a push of what is known to be dirty, one path.

    def run(
        self, *, accept_deletions: bool = False, tell: Tell = lambda _done, _of: None
    ) -> Report:
        """Make both sides one. MassDeletion, before anything was done; Unavailable in the middle, and
        then what was done is done."""
        before = self._there.requests
        report = Report()
        with self._alone():
            self._get_ready()
            self._second_look()  # what somebody who died left aside
            for _ in range(ROUNDS_MAX):
                survey = self._survey(accept_deletions=accept_deletions)
                report.refused = list(survey.plan.refused)
                again = {*self._carry_out(survey, report, tell), *self._second_look()}
                report.pending = sorted(again)
                if not again:
                    break
            self._baseline.keep_problems(report.refused)
        report.requests = self._there.requests - before
        return report

    def plan(self) -> Plan:
        """What `run` would do now. What it would ask first is in the plan."""
        with self._alone():
            self._get_ready()
            return self._look().plan

    def push(self, paths: Iterable[WorkspacePath]) -> Report:
        """What is known to be dirty goes out: one conditional write each, and no listing.

        Deletions take the long way, past the guards, and so does a directory that is not the one of the
        last sync."""
        before = self._there.requests
        report = Report()
        self._get_ready()
        if self._baseline.fact("root") != self._workspace.identity():
            return self.run()
        waiting = sorted(set(paths))
        for _ in range(ROUNDS_MAX):
            found = {path: self._state(path) for path in waiting}
            base = {path: self._baseline.find(path) for path in waiting}
            if any(base[path] and state is None for path, state in found.items()):
                return self.run()
            actions = [
                Push(path, state.version, agreed.token if agreed else ABSENT)
                for path, state in found.items()
                if state is not None
                and ((agreed := base[path]) is None or agreed.version != state.version)
            ]
            here = {path: state for path, state in found.items() if state is not None}
            known = {path: agreed for path, agreed in base.items() if agreed is not None}
            waiting = self._outgoing(actions, known, here, report)
            if not waiting:
                break
            for path in waiting:
                self.refresh(path)
        report.pending = list(waiting)
        report.requests = self._there.requests - before
        return report

    def push_dirty(self) -> Report:
        """What differs here from what was last agreed goes out; no listing."""
        base = self._baseline.tree()
        tree = self._scan()
        held = _held(tree)
        changed = [path for path, state in tree.files.items() if _differs(base.get(path), state)]
        gone = [path for path in base if path not in tree.files and path not in held]
        return self.push([*changed, *gone])

    def refresh(self, path: WorkspacePath) -> None:
        """Bring what is there at one path."""
        with self._alone():
            self._get_ready()
            try:
                blob = self._there.read(path)
            except NotFound:
                blob = None
            base = self._baseline.find(path)
            state = self._state(path)
            token = blob.token if blob else None
            action = action_for(path, base, state.version if state else None, token)
            if isinstance(action, Pull | PullDeletion | Meet):
                known = {} if base is None else {path: base}
                self._incoming([action], {path: blob}, known, Report())

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        """Part of `Remote`: the condition is the store's."""
        self._get_ready()
        base = self._baseline.find(path)
        expect = base.token if base else ABSENT
        if data is None:
            self._there.delete(path, expect=expect)
            agreed = None
        else:
            version = version_of(data)
            meta = {**self._meta(), "version": version}
            token = self._there.write(path, data, expect=expect, meta=meta)
            agreed = Agreed(version, blob_id(data), token)
        return lambda: self._baseline.take([Step(path, base, agreed)], wait=False)

    def problems(self) -> list[Problem]:
        """What is there and could not be brought here."""
        return self._baseline.problems()

    def close(self) -> None:
        self._baseline.close()

    # Looking: both sides at once, and what is to be done about them.

    def _get_ready(self) -> None:
        if self._is_ready:
            return
        self._check()
        place = self._place()
        if self._baseline.fact("place") != place:
            self._baseline.begin_anew()
            self._baseline.note("place", place)
        if not self._workspace.stat_cache:
            self._saved = self._workspace.stat_cache = self._baseline.known()
        self._is_ready = True

    def _survey(self, *, accept_deletions: bool) -> _Survey:
        survey = self._look()
        if not accept_deletions and survey.plan.alarm is not None:
            raise MassDeletion(survey.plan.alarm.reason)
        identity = self._workspace.identity()
        if identity is None:
            raise MassDeletion(f"the directory {self._workspace.root} is missing or was replaced")
        if self._baseline.fact("root") != identity:
            self._ask_about_the_root(survey, accept_deletions=accept_deletions)
            self._baseline.note("root", identity)
        return survey

    def _ask_about_the_root(self, survey: _Survey, *, accept_deletions: bool) -> None:
        """Another directory than the one that was agreed about. One that holds exactly what was agreed
        on (a restored disk, a moved home) can stand for it; with any other a person must say so."""
        if not survey.base or accept_deletions:
            return
        here = {path: state.version for path, state in survey.here.items()}
        if here != {path: agreed.version for path, agreed in survey.base.items()}:
            raise MassDeletion(
                f"{self._workspace.root} is not the directory of the last sync, and holds other files"
            )

    def _look(self) -> _Survey:
        tree, stats = self._both_sides()
        base = self._baseline.tree()
        there, refused = self._listed(stats, tree)
        held = _held(tree) | {problem.path for problem in refused}
        here = {path: state.version for path, state in tree.files.items()}
        plan = reconcile(base, here, there, held=held)
        plan = Plan(plan.actions, (*refused, *plan.refused), plan.alarm)
        return _Survey(base, tree.files, there, plan)

    def _both_sides(self) -> tuple[Tree, Sequence[Stat]]:
        if self._threads == 1:
            return self._scan(), self._there.list()
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(self._there.list)
            return self._scan(), listing.result()

    def _scan(self) -> Tree:
        tree = self._workspace.scan()
        known = self._workspace.stat_cache
        if known != self._saved:
            self._baseline.keep_known(self._saved, known)
            self._saved = known
        return tree

    def _listed(
        self, stats: Sequence[Stat], tree: Tree
    ) -> tuple[dict[WorkspacePath, Token], list[Problem]]:
        """Good names and their tokens; what can be no file here, and why."""
        quota = self._workspace.record.config.quota
        there: dict[WorkspacePath, Token] = {}
        refused: list[Problem] = []
        files, size = len(tree.files), tree.bytes
        for stat in stats:
            rule = broken_rule(stat.name)
            if rule is not None:
                refused.append(Problem(stat.name, "bad_name", f"in the store: {rule}"))
                continue
            path = WorkspacePath(stat.name)
            if path not in tree.files:
                files, size = files + 1, size + stat.size
            if stat.size > quota.file_bytes or (
                path not in tree.files and (files > quota.files or size > quota.bytes)
            ):
                refused.append(Problem(path, "over_quota", "in the store: is beyond the quota"))
            if stat.token is None:
                raise Refused("store", self._place(), "lists no tokens, which sync needs")
            there[path] = stat.token
        return there, refused

    def _state(self, path: WorkspacePath) -> FileState | None:
        """None too for what cannot be kept: whoever asks looks at the whole tree then."""
        try:
            data = self._workspace.read(path).data
        except (NotFound, Refused, OverLimit):
            return None
        return FileState(version_of(data), blob_id(data), len(data))

    # Doing: what comes in, then what goes out. Each returns what must be planned again.

    def _carry_out(self, survey: _Survey, report: Report, tell: Tell) -> list[WorkspacePath]:
        coming: list[Pull | PullDeletion | Meet] = []
        going: list[Push | PushDeletion] = []
        forgotten: list[Step] = []
        for action in survey.plan.actions:
            match action:
                case Pull() | PullDeletion() | Meet():
                    coming.append(action)
                case Push() | PushDeletion():
                    going.append(action)
                case Forget(path):
                    forgotten.append(Step(path, survey.base[path], None))
                case _:
                    assert_never(action)
        progress = _Progress(tell, len(coming) + len(going))
        self._take(forgotten)
        again: list[WorkspacePath] = []
        coming.sort(key=lambda action: not isinstance(action, PullDeletion))
        for batch in _batches(coming):
            again += self._incoming(batch, None, survey.base, report)
            progress.done(len(batch))
        again += self._outgoing(going, survey.base, survey.here, report, progress)
        return again

    def _incoming(
        self,
        actions: Sequence[Pull | PullDeletion | Meet],
        fetched: Mapping[WorkspacePath, Blob | None] | None,
        base: Mapping[WorkspacePath, Agreed],
        report: Report,
    ) -> list[WorkspacePath]:
        """`fetched`: what has been read there already."""
        if fetched is None:
            wanted = [one.path for one in actions if not isinstance(one, PullDeletion)]
            fetched = dict(zip(wanted, self._all(self._fetch, wanted), strict=True))
        arrivals: list[Arrival] = []
        agreed: dict[WorkspacePath, Agreed | None] = {}
        again: list[WorkspacePath] = []
        told = Report()
        for action in actions:
            blob = fetched.get(action.path)
            if isinstance(action, PullDeletion):
                arrivals.append(Arrival(action.path, None, action.expect))
                agreed[action.path] = None
                told.pulled.append(action.path)
            elif blob is None:
                again.append(action.path)  # gone since it was listed
            elif isinstance(action, Pull):
                arrivals.append(Arrival(action.path, blob.data, action.expect))
                agreed[action.path] = _agreed(blob)
                told.pulled.append(action.path)
            elif self._meet(action.path, blob, base.get(action.path), arrivals, told):
                agreed[action.path] = _agreed(blob)
            else:
                again.append(action.path)
        return again + self._brought(arrivals, agreed, base, told, report)

    def _meet(
        self,
        path: WorkspacePath,
        blob: Blob,
        base: Agreed | None,
        arrivals: list[Arrival],
        told: Report,
    ) -> bool:
        """What becomes of a path that both sides changed; False when it is gone here meanwhile."""
        try:
            here = self._workspace.read(path).data
        except NotFound:
            return False
        known = self._bytes_of(base) if base else None
        result = met(path, known, here, blob.data, later=self._later(path, here, blob))
        match result:
            case Same():
                pass
            case Merged(data):
                arrivals.append(Arrival(path, data, version_of(here), beside=blob.data))
                told.merged.append(path)
            case Apart(beside):
                arrivals.append(Arrival(beside, here, None))
                arrivals.append(Arrival(path, blob.data, version_of(here)))
                told.conflicts.append(beside)
            case _:
                assert_never(result)
        return True

    def _brought(
        self,
        arrivals: Sequence[Arrival],
        agreed: Mapping[WorkspacePath, Agreed | None],
        base: Mapping[WorkspacePath, Agreed],
        told: Report,
        report: Report,
    ) -> list[WorkspacePath]:
        """Into the tree, and then into the baseline. What was merged here must still go out."""
        if arrivals:
            brought = self._workspace.bring(arrivals, by=SYNC)
            report.refused += brought.refused
            out = {*brought.left, *(problem.path for problem in brought.refused)}
        else:
            out = set[str]()
        self._take(
            Step(path, base.get(path), after) for path, after in agreed.items() if path not in out
        )
        report.pulled += [path for path in told.pulled if path not in out]
        report.merged += [path for path in told.merged if path not in out]
        report.conflicts += [path for path in told.conflicts if path not in out]
        left = [path for path in agreed if path in out and path not in _paths(report.refused)]
        unfinished = [WorkspacePath(path) for path in (*told.merged, *told.conflicts)]
        return [*left, *(path for path in unfinished if path not in out)]

    def _outgoing(
        self,
        actions: Sequence[Push | PushDeletion],
        base: Mapping[WorkspacePath, Agreed],
        here: Mapping[WorkspacePath, FileState],
        report: Report,
        progress: _Progress | None = None,
    ) -> list[WorkspacePath]:
        """`progress` None: a push of a few files, whose caller waits for them and not for the rows."""
        if not actions:
            return []
        found: dict[WorkspacePath, ObjectId | None] = {
            one.path: here[one.path].object_id if isinstance(one, Push) else None for one in actions
        }
        settled = self._workspace.settled(found)
        again = [action.path for action in actions if action.path not in settled]
        ready = [action for action in actions if action.path in settled]
        # MEMORY.md is the last one; the others need not wait for each other.
        last = [action for action in ready if action.path == "MEMORY.md"]
        first = [action for action in ready if action.path != "MEMORY.md"]
        for group in (first, last):
            again += self._send(group, base, report, progress)
        return again

    def _send(
        self,
        actions: Sequence[Push | PushDeletion],
        base: Mapping[WorkspacePath, Agreed],
        report: Report,
        progress: _Progress | None,
    ) -> list[WorkspacePath]:
        """All at the same time. Whatever fails, what has been done stands in the baseline."""
        meta = self._meta() if actions else {}
        again: list[WorkspacePath] = []
        steps: list[Step] = []
        failure: Failure | None = None
        for path, outcome in self._all(lambda a: self._sent(a, base.get(a.path), meta), actions):
            if isinstance(outcome, Step):
                steps.append(outcome)
                report.pushed.append(path)
            elif isinstance(outcome, Refused | OverLimit):
                report.refused.append(Problem(path, "unreadable", str(outcome)))
            elif outcome is None:
                again.append(path)
            else:
                failure = failure or outcome
            if len(steps) == ROWS_AT_ONCE:
                self._take(steps)
                steps.clear()
            if progress is not None:
                progress.done(1)
        self._take(steps, wait=progress is not None)
        if failure is not None:
            raise failure
        return again

    def _sent(self, action: Push | PushDeletion, base: Agreed | None, meta: Meta) -> _Sent:
        path = action.path
        try:
            if isinstance(action, PushDeletion):
                self._there.delete(path, expect=action.expect)
                return path, Step(path, base, None)
            data = self._workspace.read(path).data
            if version_of(data) != action.version:
                return path, None
            told = {**meta, "version": action.version}
            token = self._there.write(path, data, expect=action.expect, meta=told)
            return path, Step(path, base, Agreed(action.version, blob_id(data), token))
        except (Conflict, NotFound):
            return path, None
        except Failure as failure:
            return path, failure

    def _take(self, steps: Iterable[Step], *, wait: bool = True) -> None:
        taken = list(steps)
        if taken:
            self._baseline.take(taken, wait=wait)

    def _fetch(self, path: WorkspacePath) -> Blob | None:
        try:
            return self._there.read(path)
        except NotFound:
            return None

    def _second_look(self) -> list[WorkspacePath]:
        """At what swaps have displaced, once those who had it open had the time to write."""
        if not self._workspace.has_displaced:
            return []
        self._pause(SECOND_LOOK_S)
        return self._workspace.look_again()

    def _bytes_of(self, base: Agreed) -> bytes | None:
        """Of the base of a merge; without them nothing is known to be old, and everything is kept."""
        try:
            return self._workspace.history.read(base.object_id)
        except Failure:
            return None

    def _later(self, path: WorkspacePath, here: bytes, blob: Blob) -> Literal["here", "there"]:
        """Whose change of one key of the front matter is the later one; equal on every machine."""
        if not here.startswith(b"---"):
            return "here"
        newest = self._workspace.log(path, limit=1)
        mine = (str(newest[0].at) if newest else "", here)
        return "here" if mine > (blob.meta.get("stamp", ""), blob.data) else "there"

    def _meta(self) -> dict[str, str]:
        """What a person who looks into the bucket is told of where a file came from."""
        tip = self._workspace.tip()
        if tip is None:
            return {}
        return {"revision": tip, "stamp": self._workspace.history.commit(tip).at}

    def _all(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """In their order, and several at the same time where there are several."""
        threads = min(self._threads, len(items))
        if threads <= 1:
            yield from map(do, items)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(do, items)


_Sent = tuple[WorkspacePath, Step | Failure | None]
"""None: somebody was faster, on either side."""


class _Counted:
    """The store, and how often it was asked."""

    def __init__(self, store: BlobStore, listing: Callable[[], Iterator[Stat]]) -> None:
        self._store = store
        self._listing = listing
        self.requests = 0
        self._lock = threading.Lock()

    def _count(self, requests: int = 1) -> None:
        with self._lock:
            self.requests += requests

    def read(self, path: WorkspacePath) -> Blob:
        self._count()
        return self._store.read(path)

    def write(
        self, path: WorkspacePath, data: bytes, *, expect: Token | Wildcard, meta: Meta
    ) -> Token:
        self._count()
        return self._store.write(path, data, expect=expect, meta=meta)

    def delete(self, path: WorkspacePath, *, expect: Token | Wildcard) -> None:
        self._count()
        self._store.delete(path, expect=expect)

    def list(self) -> Sequence[Stat]:
        stats = list(self._listing())
        self._count(1 + max(0, len(stats) - 1) // PAGE_KEYS)
        return stats


class _Progress:
    def __init__(self, tell: Tell, total: int) -> None:
        self._tell = tell
        self._total = total
        self._done = 0

    def done(self, count: int) -> None:
        self._done += count
        self._tell(self._done, self._total)


def _agreed(blob: Blob) -> Agreed:
    return Agreed(blob.version, blob_id(blob.data), blob.token)


def _differs(agreed: Agreed | None, state: FileState) -> bool:
    return agreed is None or agreed.version != state.version


def _held(tree: Tree) -> set[str]:
    """What is there and cannot be kept: not to be taken for deleted."""
    return {problem.path for problem in tree.problems if problem.kind != "conflict"}


def _paths(problems: Iterable[Problem]) -> set[str]:
    return {problem.path for problem in problems}


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH_FILES)):
        yield batch
