"""Reconcile: the whole truth table of baseline, here and there; mass deletion; merged versions."""

from __future__ import annotations

from itertools import product

import pytest

from workspaces.conditions import ABSENT
from workspaces.history.git.objects import ObjectId
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Token
from workspaces.sync.baseline import SyncedFile
from workspaces.sync.reconcile import (
    Compare,
    DropBaseline,
    KeepBoth,
    MergedVersions,
    Pull,
    PullDeletion,
    Push,
    PushDeletion,
    SameVersions,
    SyncAction,
    action_for,
    merge_versions,
    reconcile,
)

P = WorkspacePath("notes/a.md")
B, H = Version("b" * 64), Version("c" * 64)
T0, T1 = Token("t0"), Token("t1")
BASE = SyncedFile(B, ObjectId("0" * 40), T0)
GOING = BASE.being_deleted

TABLE: dict[tuple[SyncedFile | None, Version | None, Token | None], SyncAction | None] = {
    (BASE, B, T0): None,
    (BASE, H, T0): Push(P, H, T0),
    (BASE, None, T0): PushDeletion(P, T0),
    (BASE, B, T1): Pull(P, B),
    (BASE, B, None): PullDeletion(P, B),
    (BASE, H, T1): Compare(P),
    (BASE, None, T1): Pull(P, None),
    (BASE, H, None): Push(P, H, ABSENT),
    (BASE, None, None): DropBaseline(P),
    (GOING, B, T0): Push(P, B, T0),
    (GOING, H, T0): Push(P, H, T0),
    (GOING, None, T0): PushDeletion(P, T0),
    (GOING, B, T1): Compare(P),
    (GOING, B, None): Push(P, B, ABSENT),
    (GOING, H, T1): Compare(P),
    (GOING, None, T1): Pull(P, None),
    (GOING, H, None): Push(P, H, ABSENT),
    (GOING, None, None): DropBaseline(P),
    (None, B, T0): Compare(P),
    (None, H, T0): Compare(P),
    (None, B, T1): Compare(P),
    (None, H, T1): Compare(P),
    (None, B, None): Push(P, B, ABSENT),
    (None, H, None): Push(P, H, ABSENT),
    (None, None, T0): Pull(P, None),
    (None, None, T1): Pull(P, None),
    (None, None, None): None,
}


def test_the_truth_table_of_reconcile_covers_every_state() -> None:
    assert set(TABLE) == set(product((BASE, GOING, None), (B, H, None), (T0, T1, None)))


@pytest.mark.parametrize(("state", "action"), list(TABLE.items()))
def test_each_state_of_baseline_here_and_there_has_its_sync_action(
    state: tuple[SyncedFile | None, Version | None, Token | None], action: SyncAction | None
) -> None:
    assert action_for(P, *state) == action


@pytest.mark.parametrize("state", list(TABLE))
def test_each_sync_action_expects_the_state_that_was_planned_for(
    state: tuple[SyncedFile | None, Version | None, Token | None],
) -> None:
    """The condition of an action is the very state it was decided on."""
    _, here, there = state
    match action_for(P, *state):
        case Push(_, version, expect):
            assert (version, expect) == (here, ABSENT if there is None else there)
        case PushDeletion(_, expect):
            assert expect == there
        case Pull(_, expect) | PullDeletion(_, expect):
            assert expect == here
        case Compare(_) | DropBaseline(_) | None:
            pass


def planned(
    base: dict[str, int], here: dict[str, int], there: dict[str, int], held: tuple[str, ...] = ()
) -> tuple[list[SyncAction], list[str], str | None]:
    """Versions are numbers; a token is its version's."""
    plan = reconcile(
        {
            WorkspacePath(p): SyncedFile(_version(n), ObjectId(""), Token(f"t{n}"))
            for p, n in base.items()
        },
        {WorkspacePath(p): _version(n) for p, n in here.items()},
        {WorkspacePath(p): Token(f"t{n}") for p, n in there.items()},
        held=held,
    )
    alarm = plan.alarm.reason if plan.alarm else None
    return list(plan.actions), [problem.path for problem in plan.refused], alarm


def _version(number: int) -> Version:
    return version_of(b"%d" % number)


def test_a_sync_plan_sends_memory_md_last() -> None:
    actions, _, _ = planned({}, {"MEMORY.md": 1, "notes/z.md": 2, "a.md": 3}, {})
    assert [action.path for action in actions] == ["a.md", "notes/z.md", "MEMORY.md"]


def test_a_file_that_cannot_be_stored_here_does_not_count_as_deleted() -> None:
    assert planned({"a.md": 1}, {}, {"a.md": 1}, held=("a.md",)) == ([], [], None)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({"Notes.md": 1}, {"notes.md": 2}),
        ({"notes/a.md": 1}, {"Notes/b.md": 2}),
        ({"a": 1}, {"a/b.md": 2}),
        ({"a/b.md": 1}, {"a": 2}),
    ],
)
def test_a_remote_name_that_collides_with_a_local_file_is_refused_and_listed(
    here: dict[str, int], there: dict[str, int]
) -> None:
    actions, refused, _ = planned({}, here, there)
    assert refused == list(there)
    assert [action.path for action in actions] == list(here)


def test_only_the_first_of_two_new_remote_names_that_differ_in_case_is_pulled() -> None:
    actions, refused, _ = planned({}, {}, {"a.md": 1, "A.md": 2})
    assert ([action.path for action in actions], refused) == (["A.md"], ["a.md"])


def test_a_rename_that_changes_only_case_is_pushed_and_pulled() -> None:
    actions, refused, _ = planned({"a.md": 1, "b": 2}, {"A.md": 1, "b": 2}, {"a.md": 1, "b": 2})
    assert refused == []
    assert actions == [
        Push(WorkspacePath("A.md"), _version(1), ABSENT),
        PushDeletion(WorkspacePath("a.md"), Token("t1")),
    ]
    actions, refused, _ = planned({"a.md": 1, "b": 2}, {"a.md": 1, "b": 2}, {"A.md": 1, "b": 2})
    assert refused == []
    assert {type(action) for action in actions} == {Pull, PullDeletion}


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize(
    ("known", "left", "alarms"),
    [
        (1, 0, True),
        (2, 0, True),
        (2, 1, False),
        (3, 1, False),
        (4, 2, False),
        (4, 1, True),
        (5, 3, False),
        (6, 3, False),
        (6, 2, True),
        (100, 50, False),
        (100, 49, True),
    ],
)
def test_a_sync_plan_raises_the_alarm_if_over_half_or_all_files_are_missing(
    side: str, known: int, left: int, alarms: bool
) -> None:
    whole = {f"{n}.md": n for n in range(known)}
    part = {f"{n}.md": n for n in range(left)}
    sides = (part, whole) if side == "here" else (whole, part)
    assert (planned(whole, *sides)[2] is not None) == alarms


def test_files_missing_on_both_sides_raise_no_alarm() -> None:
    whole = {f"{n}.md": n for n in range(10)}
    assert planned(whole, {}, {})[2] is None


def test_two_versions_are_merged_into_a_single_text_or_a_conflict_copy() -> None:
    def meet(here: bytes, there: bytes, path: WorkspacePath = P) -> object:
        return merge_versions(path, b"a\n", here, there, later="here")

    assert meet(b"x\n", b"x\n") == SameVersions()
    assert meet(b"a\nours\n", b"a\ntheirs\n") == MergedVersions(b"a\ntheirs\nours\n", 1, ())
    apart = meet(b"ours", b"theirs", WorkspacePath("decisions/d.md"))
    hex12 = version_of(b"ours")[:12]
    assert apart == KeepBoth(WorkspacePath(f"decisions/d.conflict-{hex12}.md"))


def test_two_machines_merge_the_same_versions_to_equal_bytes() -> None:
    one = merge_versions(P, b"a\n", b"a\nfirst\n", b"a\nsecond\n", later="here")
    assert isinstance(one, MergedVersions)
    assert merge_versions(P, b"a\n", b"a\nsecond\n", one.data, later="here") == MergedVersions(
        one.data, 1, ()
    )
