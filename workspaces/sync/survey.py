"""Look at both sides at once (the tree here, the listing there, the baseline) and make the plan."""

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
    """The state of both sides, as observed at one time."""

    base: Mapping[WorkspacePath, SyncedFile]
    here: Mapping[WorkspacePath, FileState]
    there: Mapping[WorkspacePath, Token]
    plan: SyncPlan
    held: Collection[str]
    """Paths that exist on one side and cannot be kept here."""
    read_cache: ReadCache
    """Contents of the files here, as far as the scan has read them."""


@dataclass(frozen=True, slots=True)
class _LastSurvey:
    """The inputs of the last survey. If they have not changed, the cached survey is still valid."""

    tree: Tree
    stats: Sequence[Stat]
    base: Mapping[WorkspacePath, SyncedFile]
    survey: Survey

    def is_unchanged(
        self, tree: Tree, stats: Sequence[Stat], base: Mapping[WorkspacePath, SyncedFile]
    ) -> bool:
        """Return True if tree, listing and baseline are unchanged since the last survey."""
        return self.tree is tree and self.base is base and self.stats == stats


class Surveyor:
    """The reader of both sides. It writes only the stat cache, which it keeps from one process to the
    next."""

    def __init__(
        self,
        workspace: Workspace,
        there: CountedStore,
        baseline: Baseline,
        *,
        place: Callable[[], str],
        is_parallel: bool,
    ) -> None:
        """Scan the tree while the store is listing, if `is_parallel`."""
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._place = place
        self._is_parallel = is_parallel
        self._saved: Known = {}
        self._last: _LastSurvey | None = None
        """None if the last survey planned any action."""

    def load_stat_cache(self) -> None:
        """Load the stat cache that the last process saved, so that a scan need not hash unchanged files
        again."""
        if not self._workspace.tree.known:
            self._saved = self._workspace.tree.known = self._baseline.known()

    def survey(self) -> Survey:
        read_cache = ReadCache()
        # Read before the listing: else a file pushed in between would look deleted there.
        base = self._baseline.tree()
        tree, stats = self._read_both(len(base), read_cache)
        if self._last is not None and self._last.is_unchanged(tree, stats, base):
            return replace(self._last.survey, read_cache=read_cache)
        survey = self._make_survey(tree, stats, base, read_cache)
        last = _LastSurvey(tree, stats, base, replace(survey, read_cache=ReadCache()))
        self._last = None if survey.plan.actions else last
        return survey

    def _make_survey(
        self,
        tree: Tree,
        stats: Sequence[Stat],
        base: Mapping[WorkspacePath, SyncedFile],
        read_cache: ReadCache,
    ) -> Survey:
        there, refused = self._check_listing(stats, tree, base)
        held = _held_paths(tree) | {problem.path for problem in refused}
        here = {path: state.version for path, state in tree.files.items()}
        plan = reconcile(base, here, there, held=held)
        plan = SyncPlan(plan.actions, (*refused, *plan.refused), plan.alarm)
        held.update(problem.path for problem in plan.refused)
        return Survey(base, tree.files, there, plan, held, read_cache)

    def dirty(self) -> list[WorkspacePath]:
        """Return the paths that differ here from the baseline."""
        base = self._baseline.tree()
        tree = self._scan(ReadCache())
        held = _held_paths(tree)
        changed = [path for path, state in tree.files.items() if _differs(base.get(path), state)]
        gone = [path for path in base if path not in tree.files and path not in held]
        return [*changed, *gone]

    def read(self, path: WorkspacePath) -> tuple[FileState, bytes] | None:
        """Return the state and bytes of one file here. Return None for a missing file, or one that
        cannot be kept: then the caller must survey the whole tree."""
        try:
            data = self._workspace.read(path).data
        except (NotFound, Refused, OverLimit):
            return None
        return FileState(version_of(data), blob_id(data), len(data)), data

    def _read_both(self, expected: int, read_cache: ReadCache) -> tuple[Tree, Sequence[Stat]]:
        if not self._is_parallel:
            return self._scan(read_cache), self._there.list(expected)
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(self._there.list, expected)
            return self._scan(read_cache), listing.result()

    def _scan(self, read_cache: ReadCache) -> Tree:
        tree = self._workspace.tree.scan(read_cache.keep)
        known = self._workspace.tree.known
        if known != self._saved:
            self._baseline.keep_known(self._saved, known)
            self._saved = known
        return tree

    def _check_listing(
        self, stats: Sequence[Stat], tree: Tree, base: Mapping[WorkspacePath, SyncedFile]
    ) -> tuple[dict[WorkspacePath, Token], list[Problem]]:
        """Return the tokens of valid names, and the problems of the objects that cannot be files here."""
        quota = self._workspace.record.config.quota
        good: dict[str, WorkspacePath] = {path: path for path in (*base, *tree.files)}
        there: dict[WorkspacePath, Token] = {}
        refused: list[Problem] = []
        files, size = len(tree.files), tree.bytes
        for stat in stats:
            path = good.get(stat.name)
            if path is None:  # a name that is new to this machine
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
                refused.append(Problem(path, "over_quota", "in the store: exceeds the quota"))
            if stat.token is None:
                raise Refused(
                    "store", self._place(), "lists objects without an ETag, which sync needs"
                )
            there[path] = stat.token
        return there, refused


def _differs(agreed: SyncedFile | None, state: FileState) -> bool:
    return agreed is None or agreed.version != state.version


def _held_paths(tree: Tree) -> set[str]:
    """Return the paths that exist here and cannot be kept. They must not pass for deleted files."""
    return {problem.path for problem in tree.problems if problem.kind != "conflict"}
