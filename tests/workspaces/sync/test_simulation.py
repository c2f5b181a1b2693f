"""Simulated interleavings of several machines with every fault; mutants that the simulation must catch."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import md5
from typing import Any

import pytest

from tests.workspaces import simulated
from tests.workspaces.forgetting_world import ForgettingWorld, HeldBackWorld, forbidden_in
from tests.workspaces.simulated import Process
from tests.workspaces.simulation import FrontWorld, World, simulate
from workspaces.conditions import ANY
from workspaces.history.git.objects import blob_id
from workspaces.revision import SYNC
from workspaces.storage.blobs import Blob, Token
from workspaces.sync import history_head, incoming, replication, survey
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile
from workspaces.sync.history_sync import HistorySync
from workspaces.sync.incoming import Incoming
from workspaces.sync.reconcile import MergedVersions, PullDeletion, Push, SyncPlan
from workspaces.tree import merge, safe_replace, scan
from workspaces.tree.safe_replace import Replacement, SafeReplace
from workspaces.workspace import incoming_changes
from workspaces.workspace.incoming_changes import IncomingChanges
from workspaces.workspace.manual_edits import ManualEdits

SOAK = bool(os.environ.get("SOAK"))
SHARDS = 8
INTERLEAVINGS = (1_000_000 if SOAK else 9_000) // SHARDS
FRONTS = INTERLEAVINGS // 5
FORGETTINGS = INTERLEAVINGS // 20
MUTANT_INTERLEAVINGS_MAX = 3_000


@pytest.mark.parametrize("shard", range(SHARDS))
def test_simulated_machines_lose_no_change_and_converge(shard: int) -> None:
    _lived(World, INTERLEAVINGS)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_simulated_machines_never_restore_a_replaced_value(shard: int) -> None:
    _lived(FrontWorld, FRONTS)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_simulated_machines_forget_a_line_everywhere_and_lose_no_other(shard: int) -> None:
    first = None if SOAK else shard * FORGETTINGS  # new worlds in a soak, the same ones in each run
    _lived(ForgettingWorld, FORGETTINGS, first)


def _lived(world: type[World], count: int, first: int | None = None) -> None:
    first = random.randrange(2**40) if first is None else first
    print(f"seeds from {first}")
    for seed in range(first, first + count):
        try:
            simulate(seed, world)
        except BaseException:
            print(f"seed {seed}")
            raise


Patch = Callable[[pytest.MonkeyPatch], None]


def blind_put(patch: pytest.MonkeyPatch) -> None:
    plain = simulated.Store.write

    def write(self: Any, name: str, data: bytes, *, expect: Any, meta: Any = None) -> Token:
        return plain(self, name, data, expect=ANY, meta=meta)

    patch.setattr(simulated.Store, "write", write)


def plain_replace(patch: pytest.MonkeyPatch) -> None:
    def moved(self: Any, safe_replace: Any, label: Any, _swapped: Any) -> bool:
        self._tree.discard(label)
        if safe_replace.data is None:
            self._tree.delete(safe_replace.path, expect=ANY)
        else:
            self._tree.write(safe_replace.path, safe_replace.data, expect=ANY)
        return True

    patch.setattr(SafeReplace, "_replace", moved)


def replacing_entry(patch: pytest.MonkeyPatch) -> None:
    """What is new goes in without asking whether something is there by now."""

    plain = simulated.Tree.enter

    def enter(self: Any, label: Any, path: Any) -> None:
        if label in self.staged:
            self.files[path] = self.staged.pop(label)
        else:
            plain(self, label, path)

    patch.setattr(simulated.Tree, "enter", enter)


def no_recovery(patch: pytest.MonkeyPatch) -> None:
    plain = Process.start

    def start(self: Any) -> None:
        self.machine.tree.aside.clear()
        plain(self)

    patch.setattr(Process, "start", start)


def local_wins(patch: pytest.MonkeyPatch) -> None:
    def met(path: Any, base: Any, here: bytes, there: bytes, *, later: Any) -> MergedVersions:
        return MergedVersions(here, 0, ())

    patch.setattr(incoming, "merge_versions", met)


def mtime_compare(patch: pytest.MonkeyPatch) -> None:
    """A file whose size and time are the same is taken for unchanged, however young it is."""
    patch.setattr(scan, "YOUNG_S", -1e9)


def no_baseline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulated.Rows, "tree", lambda self: {})
    patch.setattr(simulated.Rows, "find", lambda self, path: None)


def immediate_unlink(patch: pytest.MonkeyPatch) -> None:
    plain = SafeReplace.put

    def put(self: Any, swaps: Any) -> Any:
        swapped = plain(self, swaps)
        self._tree.aside.clear()
        return swapped

    patch.setattr(SafeReplace, "put", put)


def token_taken_for_md5(patch: pytest.MonkeyPatch) -> None:
    """After a write it is not the store's answer that is kept, but what the ETag surely is."""
    plain = simulated.Store.write

    def write(self: Any, name: str, data: bytes, *, expect: Any, meta: Any = None) -> Token:
        plain(self, name, data, expect=expect, meta=meta)
        return Token(f'"{md5(data, usedforsecurity=False).hexdigest()}"')

    patch.setattr(simulated.Store, "write", write)


def baseline_before_the_effect(patch: pytest.MonkeyPatch) -> None:
    plain = IncomingChanges.apply

    def apply(self: Any, arrivals: Any, *, by: Any, theirs: Any = None) -> Any:
        remote = self._edits.remote
        rows = remote._baseline
        for arrival in arrivals:
            try:
                blob = remote._there.read(arrival.path)
            except Exception:
                continue
            agreed = SyncedFile(blob.version, blob_id(blob.data), blob.token)
            Baseline.take(rows, [BaselineChange(arrival.path, rows.find(arrival.path), agreed)])
        return plain(self, arrivals, by=by, theirs=theirs)

    patch.setattr(IncomingChanges, "apply", apply)


def unsettled(patch: pytest.MonkeyPatch) -> None:
    """What is pushed and replaced was never made a revision."""

    def committed(self: Any, expected: Any) -> Any:
        return set(expected), self._history.tip()

    patch.setattr(ManualEdits, "committed", committed)


def agreed_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """What both sides have come to by themselves is in no revision."""
    plain = Incoming._apply

    def brought(self: Any, arrivals: Any, steps: Any, same: Any, *more: Any) -> Any:
        return plain(self, arrivals, steps, {}, *more)

    patch.setattr(Incoming, "_apply", brought)


def first_look_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulated.Machine, "pause", lambda self, seconds: None)


def a_deletion_wins(patch: pytest.MonkeyPatch) -> None:
    plain = survey.reconcile

    def reconcile(base: Any, here: Any, there: Any, *, held: Any = ()) -> Any:
        plan = plain(base, here, there, held=held)
        actions = tuple(
            PullDeletion(a.path, a.version)
            if isinstance(a, Push) and a.path in base and a.path not in there
            else a
            for a in plan.actions
        )
        return SyncPlan(actions, plan.refused, plan.alarm)

    patch.setattr(survey, "reconcile", reconcile)


def head_without_its_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HistorySync, "_unsent_files", lambda self, tip: {})


def blind_head(patch: pytest.MonkeyPatch) -> None:
    plain = simulated.Store.write

    def write(self: Any, name: str, data: bytes, *, expect: Any, meta: Any = None) -> Token:
        return plain(self, name, data, expect=ANY if name == "head.json" else expect, meta=meta)

    patch.setattr(simulated.Store, "write", write)


def theirs_instead_of_ours(patch: pytest.MonkeyPatch) -> None:
    """A history that is followed although ours is not in it."""

    def follow(self: Any, theirs: str, differing: Any, author: Any, **sides: Any) -> str:
        return self._moved(theirs)

    patch.setattr(simulated.History, "follow", follow)


def followed_too_early(patch: pytest.MonkeyPatch) -> None:
    """Before all the files that it speaks of have come."""
    whole = Incoming.put

    def put(
        self: Any, actions: Any, fetched: Any, base: Any, report: Any, theirs: Any = None
    ) -> Any:
        if theirs is not None:
            self._workspace.incoming.apply([], by=SYNC, theirs=theirs)
        return whole(self, actions, fetched, base, report)

    patch.setattr(Incoming, "put", put)


def head_moved_off_the_line(patch: pytest.MonkeyPatch) -> None:
    """A head that is not asked whether it is in what is pushed."""
    patch.setattr(simulated.MemoryHistory, "descends", lambda self, revision, ancestor: True)


def beside_forgotten(patch: pytest.MonkeyPatch) -> None:
    for name in ("record", "follow"):
        plain = getattr(simulated.History, name)

        def told(self: Any, *args: Any, plain: Any = plain, **sides: Any) -> str:
            return plain(self, *args)

        patch.setattr(simulated.History, name, told)


def front_matter_of_one_side(patch: pytest.MonkeyPatch) -> None:
    def merge_front(fronts: Any, later: Any) -> Any:
        _, _, theirs = fronts
        return [line for lines in theirs.values() for line in lines], ()

    patch.setattr(merge, "_merge_front", merge_front)


def no_lock(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def hold(self: Any, who: str, *, wait_s: float = 0.0) -> Generator[Any]:
        yield self
        self._noted(None)

    patch.setattr(simulated.Lock, "hold", hold)


def folded_onto_nothing(patch: pytest.MonkeyPatch) -> None:
    """Packs that build on what the new head names no more."""
    patch.setattr(
        replication, "fold_from", lambda packs: 1 if len(packs) > history_head.PACKS_MAX else None
    )
    plain = replication.Replication._move_head

    def moved(self: Any, there: Any, seen: Any) -> bool:
        is_folded = seen is not None and len(there.packs) < len(seen.head.packs)
        return plain(self, replace(there, packs=there.packs[1:]) if is_folded else there, seen)

    patch.setattr(replication.Replication, "_move_head", moved)


def not_given_back(patch: pytest.MonkeyPatch) -> None:
    """What was saved in the moment of a swap, and what is written to it later."""
    plain = SafeReplace.put

    def put(self: Any, swaps: Any) -> Any:
        swapped = plain(self, swaps)
        for one in swapped.concurrent_saves.values():
            self._tree.discard(one.label)
        swapped.concurrent_saves.clear()
        return swapped

    patch.setattr(SafeReplace, "put", put)


def held_back_is_sent(patch: pytest.MonkeyPatch) -> None:
    """A commit of manual edits that does not ask what is forbidden."""
    patch.setattr(ManualEdits, "_leave_out_forbidden", lambda self, changes, current: None)


def held_back_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """An incoming change that takes the place of a file that is held back."""
    leave_out, planned = ManualEdits._leave_out_forbidden, incoming_changes._replacement_for

    def unseen(self: Any, changes: Any, current: Any) -> None:
        files = dict(current)
        leave_out(self, changes, current)
        current.update(files)

    def replacement(change: Any, current: Any, result: Any) -> Any:
        if isinstance(current, Blob) and forbidden_in([current.data]):
            return Replacement(change.path, change.data, current.data)
        return planned(change, current, result)

    patch.setattr(ManualEdits, "_leave_out_forbidden", unseen)
    patch.setattr(incoming_changes, "_replacement_for", replacement)


HELD_BACK_MUTANTS: list[Patch] = [held_back_is_sent, held_back_is_replaced]

MUTANTS: list[Patch] = [
    front_matter_of_one_side,
    not_given_back,
    no_lock,
    folded_onto_nothing,
    head_without_its_files,
    blind_head,
    theirs_instead_of_ours,
    followed_too_early,
    head_moved_off_the_line,
    beside_forgotten,
    blind_put,
    plain_replace,
    replacing_entry,
    no_recovery,
    local_wins,
    mtime_compare,
    no_baseline,
    immediate_unlink,
    token_taken_for_md5,
    baseline_before_the_effect,
    unsettled,
    agreed_without_a_word,
    first_look_only,
    a_deletion_wins,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_detects_each_mutant_of_sync(
    mutant: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    _caught(mutant, World, monkeypatch)


@pytest.mark.parametrize("mutant", HELD_BACK_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_detects_each_mutant_of_what_is_held_back(
    mutant: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    _caught(mutant, HeldBackWorld, monkeypatch)


def _caught(mutant: Patch, world: type[World], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in range(MUTANT_INTERLEAVINGS_MAX):
        try:
            simulate(seed, world)
        except AssertionError as error:
            print(f"seed {seed}: {str(error).splitlines()[0]}")
            return
        except (KeyError, ValueError) as error:
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail("it was not caught")


def test_the_late_write_check_waits_long_enough_for_a_shell() -> None:
    assert safe_replace.SECOND_LOOK_S >= 0.25
