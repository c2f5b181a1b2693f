"""Histories that travel: as bundles, into another history."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import Failure, NotFound, OverLimit, Refused
from workspaces.history.bundle import parse_bundle
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId

MEMORY, NOTE = WorkspacePath("MEMORY.md"), WorkspacePath("notes/a.md")
SYNC = Author("sync", "sync", "sync")


def made(directory: Path, name: str) -> History:
    return History.create(directory / f"{name}.git", ManualClock())


@pytest.fixture
def ours(tmp_path: Path) -> History:
    return made(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> History:
    return made(tmp_path, "theirs")


def fsck(history: History) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={history._directory}", "fsck", "--strict", "--full"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def received(to: History, source: History, known: list[RevisionId], **differing: object) -> None:
    """All that a history has and the other lacks."""
    tip = source.tip()
    assert tip is not None
    with to.quarantine() as quarantine:
        for _, data in source.bundles(tip, known):
            quarantine.take(data)
        quarantine.check()
        to.receive(quarantine, tip)
    to.follow(tip, {WorkspacePath(path): data for path, data in differing.items()}, SYNC)  # type: ignore[misc]


def test_a_history_arrives_as_it_was_made(ours: History, theirs: History) -> None:
    for number in range(5):
        theirs.record({MEMORY: b"%d\n" % number}, AGENT)
    received(ours, theirs, [])
    assert ours.tip() == theirs.tip()
    assert ours.log() == theirs.log()
    assert fsck(ours) == ""
    first = ours.tip()
    assert first is not None
    theirs.record({NOTE: b"deep\n"}, CALLER)
    received(ours, theirs, [first])
    assert ours.log() == theirs.log()
    assert fsck(ours) == ""


def test_a_bundle_holds_only_what_the_other_lacks(theirs: History) -> None:
    data = random.Random(1).randbytes(100_000)
    first = theirs.record({NOTE: data}, AGENT)
    second = theirs.record({MEMORY: b"small\n"}, AGENT)
    (whole,) = [data for _, data in theirs.bundles(second, [])]
    (rest,) = [data for _, data in theirs.bundles(second, [first])]
    assert len(whole) > 100_000 > 2_000 > len(rest)


def test_any_git_can_read_one(theirs: History, tmp_path: Path) -> None:
    theirs.record({MEMORY: b"one\n"}, AGENT)
    tip = theirs.record({MEMORY: b"two\n"}, AGENT)
    ((_, data),) = theirs.bundles(tip, [])
    (tmp_path / "b.bundle").write_bytes(data)
    subprocess.run(
        ["git", "clone", "-q", "-b", "main", "b.bundle", "clone"],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    assert (tmp_path / "clone" / MEMORY).read_bytes() == b"two\n"


def test_a_history_too_large_for_one_travels_in_several(ours: History, theirs: History) -> None:
    randomly = random.Random(1)
    for number in range(9):
        theirs.record({WorkspacePath(f"{number}.bin"): randomly.randbytes(10_000)}, AGENT)
    tip = theirs.tip()
    assert tip is not None
    parts = list(theirs.bundles(tip, [], bytes_max=35_000))
    assert len(parts) > 2
    assert all(len(data) <= 35_000 for _, data in parts)
    with ours.quarantine() as quarantine:
        assert [quarantine.take(data) for _, data in parts] == [one for one, _ in parts]
        quarantine.check()
        quarantine.admit()
    ours.follow(tip, {}, SYNC)
    assert ours.log() == theirs.log()
    with pytest.raises(OverLimit):
        list(theirs.bundles(tip, [], bytes_max=5_000))


def test_many_objects_stay_in_their_pack(ours: History, theirs: History) -> None:
    for number in range(60):
        theirs.record({MEMORY: b"%d\n" % number}, AGENT)
    received(ours, theirs, [])
    objects = ours._directory / "objects"
    assert len(list(objects.glob("pack/*.pack"))) == 1
    assert not list(objects.glob("[0-9a-f][0-9a-f]/*"))
    assert not list(ours._directory.glob("incoming-*"))
    assert ours.log(limit=100) == theirs.log(limit=100)
    assert ours.read(ours.tree(ours.tip())[MEMORY]) == b"59\n"


def test_two_lines_of_history_meet_in_the_same_revision_on_every_machine(
    ours: History, theirs: History, tmp_path: Path
) -> None:
    base = theirs.record({MEMORY: b"base\n"}, AGENT)
    received(ours, theirs, [])
    mine = ours.record({NOTE: b"mine\n"}, CALLER)
    yours = theirs.record({MEMORY: b"yours\n"}, AGENT)
    other = made(tmp_path, "other")
    received(other, theirs, [])
    clock = ours._clock
    assert isinstance(clock, ManualClock)
    clock.advance(1000)
    with theirs.quarantine() as quarantine:
        for _, data in ours.bundles(mine, [base]):
            quarantine.take(data)
        quarantine.check()
        quarantine.admit()
    here = theirs.follow(mine, {MEMORY: b"yours\n"}, SYNC)
    received(ours, other, [base], **{NOTE: b"mine\n"})
    assert ours.tip() == here
    told = ours.log(limit=1)[0]
    assert told.parents == tuple(sorted([mine, yours]))
    assert told.at == max(ours.commit(mine).at, ours.commit(yours).at)
    assert (told.author, told.trailers) == ("sync", {"Source": "sync"})
    assert set(ours.tree(here)) == {MEMORY, NOTE}
    assert fsck(ours) == fsck(theirs) == ""


def test_what_differs_from_theirs_is_a_revision_on_top(ours: History, theirs: History) -> None:
    yours = theirs.record({MEMORY: b"yours\n"}, AGENT)
    received(ours, theirs, [], **{NOTE: b"more\n"})
    (top, below) = ours.log()
    assert (below.id, top.parents) == (yours, (yours,))
    assert (top.paths, top.trailers["Source"]) == ((NOTE,), "sync")


def test_differences_name_what_two_revisions_do_not_share(ours: History) -> None:
    first = ours.record({MEMORY: b"1\n", NOTE: b"n\n", WorkspacePath("x"): b"x\n"}, AGENT)
    second = ours.record(
        {MEMORY: b"2\n", WorkspacePath("x"): None, WorkspacePath("x/y"): b"y\n"}, AGENT
    )
    before, after = ours.tree(first), ours.tree(second)
    paths = (MEMORY, WorkspacePath("x"), WorkspacePath("x/y"))
    assert ours.differences(first, second) == {p: (before.get(p), after.get(p)) for p in paths}
    assert ours.differences(second, second) == {}
    assert set(ours.differences(None, second)) == set(after)


# What strangers make.


def test_a_bundle_without_the_one_before_it_is_not_taken(ours: History, theirs: History) -> None:
    first = theirs.record({MEMORY: b"1\n"}, AGENT)
    second = theirs.record({MEMORY: b"2\n"}, AGENT)
    ((_, data),) = theirs.bundles(second, [first])
    with ours.quarantine() as quarantine, pytest.raises(NotFound):
        quarantine.take(data)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_a_bundle_that_was_cut_or_changed_is_refused(
    ours: History, theirs: History, at: int
) -> None:
    tip = theirs.record({MEMORY: b"1\n", NOTE: b"n\n"}, AGENT)
    ((_, data),) = theirs.bundles(tip, [])
    place = len(data) * at // 100
    for bad in (data[:place], data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]):
        with ours.quarantine() as quarantine, pytest.raises((Refused, NotFound)):
            quarantine.take(bad)
    assert not list(ours._directory.glob("incoming-*"))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"# v3 git bundle\n@object-format=sha256\n\n",
        b"# v2 git bundle\n\n",
        b"# v2 git bundle\n--upload-pack=x\n%s refs/heads/main\n\n" % (b"a" * 40),
        b"# v2 git bundle\n%s refs/heads/other\n\n" % (b"a" * 40),
        b"# v2 git bundle\n%s refs/heads/main\n%s refs/heads/main\n\n" % (b"a" * 40, b"b" * 40),
        b"# v2 git bundle\n"
        + b"-%s\n" % (b"a" * 40) * 2000
        + b"%s refs/heads/main\n\n" % (b"a" * 40),
    ],
)
def test_what_is_not_made_here_is_no_bundle(head: bytes) -> None:
    with pytest.raises(Refused):
        parse_bundle(head + b"PACK")


def test_a_history_follows_nothing_that_is_not_whole(ours: History, theirs: History) -> None:
    tip = theirs.record({MEMORY: b"1\n"}, AGENT)
    blob = theirs.tree(tip)[MEMORY]
    (theirs._directory / "objects" / blob[:2] / blob[2:]).unlink()
    objects = theirs._directory / "objects"
    for file in objects.glob("[0-9a-f][0-9a-f]/*"):
        there = ours._directory / file.relative_to(theirs._directory)
        there.parent.mkdir(exist_ok=True)
        there.write_bytes(file.read_bytes())
    assert ours.has(tip)
    with ours.quarantine() as quarantine, pytest.raises(Failure):
        ours.receive(quarantine, tip)
