"""Looking at both sides at once: the tree here, the listing there, what was agreed on; and the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.history.git.objects import blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.problem import Problem
from workspaces.storage.blobs import Stat, Token
from workspaces.sync.baseline import Baseline, SyncedFile
from workspaces.sync.counted_store import CountedStore
from workspaces.sync.read_cache import ReadCache
from workspaces.sync.reconcile import SyncPlan, reconcile
from workspaces.tree.scan import FileState, Known, Tree
from workspaces.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Survey:
    """Both sides, as they were found."""

    base: Mapping[WorkspacePath, SyncedFile]
    here: Mapping[WorkspacePath, FileState]
    there: Mapping[WorkspacePath, Token]
    plan: SyncPlan
    held: Collection[str]
    """What is on one side and cannot be kept on this one."""
    in_hand: ReadCache
    """Of what is here, as far as it was read."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a survey was made of: of the same it is the same."""

    tree: Tree
    stats: Sequence[Stat]
    base: Mapping[WorkspacePath, SyncedFile]
    survey: Survey

    def is_of(
        self, tree: Tree, stats: Sequence[Stat], base: Mapping[WorkspacePath, SyncedFile]
    ) -> bool:
        """Who has found nothing new gives what he gave before."""
        return self.tree is tree and self.base is base and self.stats == stats


class Surveyor:
    """Reading only, but for the stat cache, which is kept from one process to the next."""

    def __init__(
        self,
        workspace: Workspace,
        there: CountedStore,
        baseline: Baseline,
        *,
        place: Callable[[], str],
        at_once: bool,
    ) -> None:
        """`at_once`: the tree is scanned while the store is listing."""
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._place = place
        self._at_once = at_once
        self._saved: Known = {}
        self._last: _Seen | None = None
        """None where there was something to be done."""

    def remember(self) -> None:
        """What a scan need not repeat, from the last process."""
        if not self._workspace.stat_cache:
            self._saved = self._workspace.stat_cache = self._baseline.known()

    def survey(self) -> Survey:
        in_hand = ReadCache()
        # Before the listing: what another process pushes meanwhile would look like deleted there.
        base = self._baseline.tree()
        tree, stats = self._both(sorted(base), in_hand)
        if self._last is not None and self._last.is_of(tree, stats, base):
            return replace(self._last.survey, in_hand=in_hand)
        survey = self._surveyed(tree, stats, base, in_hand)
        seen = _Seen(tree, stats, base, replace(survey, in_hand=ReadCache()))
        self._last = None if survey.plan.actions else seen
        return survey

    def _surveyed(
        self,
        tree: Tree,
        stats: Sequence[Stat],
        base: Mapping[WorkspacePath, SyncedFile],
        in_hand: ReadCache,
    ) -> Survey:
        there, refused = self._listed(stats, tree, base)
        held = _held(tree) | {problem.path for problem in refused}
        here = {path: state.version for path, state in tree.files.items()}
        plan = reconcile(base, here, there, held=held)
        plan = SyncPlan(plan.actions, (*refused, *plan.refused), plan.alarm)
        held.update(problem.path for problem in plan.refused)
        return Survey(base, tree.files, there, plan, held, in_hand)

    def dirty(self) -> list[WorkspacePath]:
        """What differs here from what was last agreed."""
        base = self._baseline.tree()
        tree = self._scan(ReadCache())
        held = _held(tree)
        changed = [path for path, state in tree.files.items() if _differs(base.get(path), state)]
        gone = [path for path in base if path not in tree.files and path not in held]
        return [*changed, *gone]

    def read(self, path: WorkspacePath) -> tuple[FileState, bytes] | None:
        """One file here. None too for what cannot be kept: whoever asks looks at the whole tree then."""
        try:
            data = self._workspace.read(path).data
        except (NotFound, Refused, OverLimit):
            return None
        return FileState(version_of(data), blob_id(data), len(data)), data

    def _both(self, known: Sequence[str], in_hand: ReadCache) -> tuple[Tree, Sequence[Stat]]:
        if not self._at_once:
            return self._scan(in_hand), self._there.list(known)
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(self._there.list, known)
            return self._scan(in_hand), listing.result()

    def _scan(self, in_hand: ReadCache) -> Tree:
        tree = self._workspace.scan(in_hand.keep)
        known = self._workspace.stat_cache
        if known != self._saved:
            self._baseline.keep_known(self._saved, known)
            self._saved = known
        return tree

    def _listed(
        self, stats: Sequence[Stat], tree: Tree, base: Mapping[WorkspacePath, SyncedFile]
    ) -> tuple[dict[WorkspacePath, Token], list[Problem]]:
        """Good names and their tokens; what can be no file here, and why."""
        quota = self._workspace.record.config.quota
        good: dict[str, WorkspacePath] = {path: path for path in (*base, *tree.files)}
        there: dict[WorkspacePath, Token] = {}
        refused: list[Problem] = []
        files, size = len(tree.files), tree.bytes
        for stat in stats:
            path = good.get(stat.name)
            if path is None:
                rule = broken_rule(stat.name)
                if rule is not None:
                    refused.append(Problem(stat.name, "bad_name", f"in the store: {rule}"))
                    continue
                path = WorkspacePath(stat.name)
            is_new = path not in tree.files
            if is_new:
                files, size = files + 1, size + stat.size
            if stat.size > quota.file_bytes or (
                is_new and (files > quota.files or size > quota.bytes)
            ):
                refused.append(Problem(path, "over_quota", "in the store: is beyond the quota"))
            if stat.token is None:
                raise Refused("store", self._place(), "lists no tokens, which sync needs")
            there[path] = stat.token
        return there, refused


def _differs(agreed: SyncedFile | None, state: FileState) -> bool:
    return agreed is None or agreed.version != state.version


def _held(tree: Tree) -> set[str]:
    """What is there and cannot be kept: not to be taken for deleted."""
    return {problem.path for problem in tree.problems if problem.kind != "conflict"}
