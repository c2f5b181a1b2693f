"""Sending a history as bundles and receiving the bundles into another history."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from tests.workspaces.history.git.test_quarantine import Stranger
from workspaces.clock import ManualClock
from workspaces.errors import Failure, NotFound, OverLimit, Refused
from workspaces.history.git import quarantine_stage
from workspaces.history.git.bundle import parse_bundle
from workspaces.history.git.program import open_git_session, run_git
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


def test_a_history_received_from_bundles_equals_the_original(
    ours: History, theirs: History
) -> None:
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


def test_a_bundle_holds_only_objects_missing_on_the_other_side(theirs: History) -> None:
    data = random.Random(1).randbytes(100_000)
    first = theirs.record({NOTE: data}, AGENT)
    second = theirs.record({MEMORY: b"small\n"}, AGENT)
    (whole,) = [data for _, data in theirs.bundles(second, [])]
    (rest,) = [data for _, data in theirs.bundles(second, [first])]
    assert len(whole) > 100_000 > 2_000 > len(rest)


def test_any_git_client_can_read_a_bundle(theirs: History, tmp_path: Path) -> None:
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


def test_a_history_too_large_for_a_single_bundle_is_split(ours: History, theirs: History) -> None:
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


def test_many_received_objects_stay_in_their_pack(ours: History, theirs: History) -> None:
    for number in range(60):
        theirs.record({MEMORY: b"%d\n" % number}, AGENT)
    received(ours, theirs, [])
    objects = ours._directory / "objects"
    assert len(list(objects.glob("pack/*.pack"))) == 1
    assert not list(objects.glob("[0-9a-f][0-9a-f]/*"))
    assert not list(ours._directory.glob("incoming-*"))
    assert ours.log(limit=100) == theirs.log(limit=100)
    assert ours.read(ours.tree(ours.tip())[MEMORY]) == b"59\n"


def test_two_diverged_histories_get_the_same_merge_revision_on_every_machine(
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


def test_files_that_differ_from_a_received_history_become_a_revision_on_top(
    ours: History, theirs: History
) -> None:
    yours = theirs.record({MEMORY: b"yours\n"}, AGENT)
    received(ours, theirs, [], **{NOTE: b"more\n"})
    (top, below) = ours.log()
    assert (below.id, top.parents) == (yours, (yours,))
    assert (top.paths, top.trailers["Source"]) == ((NOTE,), "sync")


def test_differences_list_the_files_that_two_revisions_do_not_share(ours: History) -> None:
    first = ours.record({MEMORY: b"1\n", NOTE: b"n\n", WorkspacePath("x"): b"x\n"}, AGENT)
    second = ours.record(
        {MEMORY: b"2\n", WorkspacePath("x"): None, WorkspacePath("x/y"): b"y\n"}, AGENT
    )
    before, after = ours.tree(first), ours.tree(second)
    paths = (MEMORY, WorkspacePath("x"), WorkspacePath("x/y"))
    assert ours.differences(first, second) == {p: (before.get(p), after.get(p)) for p in paths}
    assert ours.differences(second, second) == {}
    assert set(ours.differences(None, second)) == set(after)


def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What git is asked to do by the quarantine."""
    commands: list[str] = []

    def counted(*arguments: str, **how: Any) -> Any:
        commands.append(next(one for one in arguments if one in {"index-pack", "cat-file"}))
        return (run_git if "stdin" in how else open_git_session)(*arguments, **how)

    monkeypatch.setattr(quarantine_stage, "run_git", counted)
    monkeypatch.setattr(quarantine_stage, "open_git_session", counted)
    return commands


def test_consecutive_bundles_are_unpacked_with_a_pack_each(
    ours: History, theirs: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = starts(monkeypatch)
    parts: list[bytes] = []
    known: list[RevisionId] = []
    for number in range(60):
        tip = theirs.record({MEMORY: b"line\n" * number, NOTE: b"%d\n" % number}, AGENT)
        if number % 20 == 19:
            parts += [data for _, data in theirs.bundles(tip, known)]
            known = [tip]
    with ours.quarantine() as quarantine:
        for data in parts:
            quarantine.take(data)
        quarantine.check()
        ours.receive(quarantine, tip)
    ours.follow(tip, {}, SYNC)
    assert asked.count("index-pack") == len(parts) == 3
    assert len(list((ours._directory / "objects" / "pack").glob("*.pack"))) == 3
    assert ours.log() == theirs.log()
    assert fsck(ours) == ""


def in_parts(source: History, revisions: int, parts: int) -> tuple[RevisionId, list[bytes]]:
    """A history, and the bundles that it was pushed as."""
    made: list[bytes] = []
    known: list[RevisionId] = []
    for number in range(revisions):
        tip = source.record({MEMORY: b"line\n" * number, NOTE: b"%d\n" % number}, AGENT)
        if (number + 1) % (revisions // parts) == 0:
            made += [data for _, data in source.bundles(tip, known)]
            known = [tip]
    return known[0], made


def test_a_whole_history_in_several_bundles_is_self_contained(
    ours: History, theirs: History
) -> None:
    tip, parts = in_parts(theirs, 60, 6)
    with ours.quarantine() as quarantine:
        for data in parts:
            quarantine.take(data)
        quarantine.check()
        assert quarantine.is_self_contained(tip)
        ours.receive(quarantine, tip)
    ours.follow(tip, {}, SYNC)
    assert ours.log(limit=100) == theirs.log(limit=100)
    assert fsck(ours) == ""


@pytest.mark.parametrize("bad", range(6))
def test_a_long_history_with_a_damaged_part_is_refused_as_a_whole(
    ours: History, theirs: History, bad: int
) -> None:
    tip, parts = in_parts(theirs, 60, 6)
    parts[bad] = parts[bad][:-25] + bytes([parts[bad][-25] ^ 1]) + parts[bad][-24:]
    with ours.quarantine() as quarantine, pytest.raises(Refused):
        for data in parts:
            quarantine.take(data)
        quarantine.check()
    assert not ours.has(tip)
    assert not list(ours._directory.glob("incoming-*"))


def test_every_version_can_be_read_from_bundles_that_build_on_each_other(
    ours: History, theirs: History
) -> None:
    """A thin pack's deltas name what they build on, which is itself a delta in the pack before it."""
    paths = [WorkspacePath(f"notes/{number}.md") for number in range(3)]
    texts = {path: b"".join(b"%s %d\n" % (path.encode(), n) for n in range(200)) for path in paths}
    made: list[tuple[RevisionId, dict[WorkspacePath, bytes]]] = []
    parts: list[bytes] = []
    known: list[RevisionId] = []
    for number in range(90):
        path = paths[number % 3]
        texts[path] = b"%d\n" % number + texts[path][:-10] + b"%d\n" % number
        tip = theirs.record({path: texts[path]}, AGENT)
        made.append((tip, dict(texts)))
        if number % 15 == 14:
            parts += [data for _, data in theirs.bundles(tip, known)]
            known = [tip]
    with ours.quarantine() as quarantine:
        for data in parts:
            quarantine.take(data)
        quarantine.check()
        ours.receive(quarantine, tip)
    ours.follow(tip, {}, SYNC)
    for history in (ours, History(ours._directory, ManualClock())):
        for revision, then in made:
            tree = history.tree(revision)
            assert {path: history.read(tree[path]) for path in tree} == {
                path: then[path] for path in tree
            }


def test_an_object_in_two_bundles_is_received_once(
    ours: History, theirs: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file was put back to what it had been before the bundle in between."""
    asked = starts(monkeypatch)
    first = theirs.record({MEMORY: b"as it was\n"}, AGENT)
    second = theirs.record({MEMORY: b"another\n"}, AGENT)
    third = theirs.record({MEMORY: b"as it was\n"}, AGENT)
    parts = [
        data
        for tip, known in ((first, []), (second, [first]), (third, [second]))
        for _, data in theirs.bundles(tip, known)
    ]
    with ours.quarantine() as quarantine:
        for data in parts:
            quarantine.take(data)
        quarantine.check()
        ours.receive(quarantine, third)
    ours.follow(third, {}, SYNC)
    assert asked.count("index-pack") == 3
    assert ours.log() == theirs.log()
    assert fsck(ours) == ""


def test_several_bundles_with_a_damaged_bundle_are_refused_as_a_whole(
    ours: History, theirs: History
) -> None:
    first = theirs.record({MEMORY: b"1\n"}, AGENT)
    second = theirs.record({MEMORY: b"2\n"}, AGENT)
    ((_, good),) = theirs.bundles(first, [])
    ((_, bad),) = theirs.bundles(second, [first])
    for data in (bad[:-1] + bytes([bad[-1] ^ 1]), bad[:-30], bad + b"x"):
        with ours.quarantine() as quarantine, pytest.raises(Refused):
            quarantine.take(good)
            quarantine.take(data)
            quarantine.check()
    assert ours.tip() is None
    assert not ours.has(first)


def test_an_unchecked_bundle_is_checked_before_admission(ours: History, theirs: History) -> None:
    tip = theirs.record({MEMORY: b"1\n"}, AGENT)
    ((_, data),) = theirs.bundles(tip, [])
    with ours.quarantine() as quarantine, pytest.raises(Refused):
        quarantine.take(data[:-1])
        quarantine.admit()
    assert not ours.has(tip)


# What strangers make.


def test_a_bundle_without_its_predecessor_is_refused(ours: History, theirs: History) -> None:
    first = theirs.record({MEMORY: b"1\n"}, AGENT)
    second = theirs.record({MEMORY: b"2\n"}, AGENT)
    ((_, data),) = theirs.bundles(second, [first])
    with ours.quarantine() as quarantine, pytest.raises(NotFound):
        quarantine.take(data)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_a_truncated_or_altered_bundle_is_refused(ours: History, theirs: History, at: int) -> None:
    tip = theirs.record({MEMORY: b"1\n", NOTE: b"n\n"}, AGENT)
    ((_, data),) = theirs.bundles(tip, [])
    place = len(data) * at // 100
    for bad in (data[:place], data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]):
        with ours.quarantine() as quarantine, pytest.raises((Refused, NotFound)):
            quarantine.take(bad)
            quarantine.check()
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
def test_a_malformed_bundle_header_is_refused(head: bytes) -> None:
    with pytest.raises(Refused):
        parse_bundle(head + b"PACK")


def test_a_history_with_a_missing_object_is_not_received(ours: History, theirs: History) -> None:
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


def test_packing_loses_no_object_that_waits_in_quarantine(ours: History, theirs: History) -> None:
    for number in range(80):
        first = ours.record({MEMORY: b"%d\n" % number}, AGENT)
    received(theirs, ours, [])
    tip = theirs.record({NOTE: b"theirs\n"}, CALLER)
    ((_, data),) = theirs.bundles(tip, [first])
    with ours.quarantine() as quarantine:
        quarantine.take(data)
        ours.pack()
        quarantine.check()
        ours.pack()
        ours.receive(quarantine, tip)
        ours.follow(tip, {}, SYNC)
    ours.pack()
    assert ours.log() == theirs.log()
    assert fsck(ours) == ""


def test_a_bundle_that_builds_on_objects_removed_by_packing_is_refused(
    ours: History, theirs: History
) -> None:
    """An interrupted writer's pack: a bundle counts on it, and then nothing is followed but fetched anew."""
    ours.record({MEMORY: b"ours\n"}, AGENT)
    first = theirs.record({WorkspacePath(f"{n}.md"): b"%d\n" % n for n in range(80)}, AGENT)
    ((_, before),) = theirs.bundles(first, [])
    tip = theirs.record({NOTE: b"theirs\n"}, AGENT)
    ((_, after),) = theirs.bundles(tip, [first])
    with ours.quarantine() as interrupted:
        interrupted.take(before)
        ours.receive(interrupted, first)  # and it died before it could follow
    assert ours.has(first)
    with ours.quarantine() as quarantine:
        quarantine.take(after)
        quarantine.check()
        ours.pack()
        assert not History(ours._directory, ManualClock()).has(first)
        with pytest.raises(Failure):
            ours.receive(quarantine, tip)
    with ours.quarantine() as quarantine:
        quarantine.take(before)
        quarantine.take(after)
        ours.receive(quarantine, tip)
        ours.follow(tip, {}, SYNC)
    assert {one.id for one in theirs.log()} < {one.id for one in ours.log()}
    assert fsck(ours) == ""


def test_a_bundle_that_builds_on_an_incomplete_local_tree_is_refused(
    ours: History, tmp_path: Path
) -> None:
    """A bundle that says it builds on nothing, and has a tree only because that lies here, which lacks a
    file: nothing reaches it, and its file was thrown away."""
    stranger = Stranger(tmp_path / "stranger.git")
    tree = stranger.tree(("100644", b"a.md", stranger.file))
    tip = stranger.commit(tree)
    there = ours._directory / "objects" / tree[:2] / tree[2:]
    there.parent.mkdir()
    there.write_bytes((stranger.directory / "objects" / tree[:2] / tree[2:]).read_bytes())
    pack = subprocess.run(
        ["git", f"--git-dir={stranger.directory}", "pack-objects", "--stdout", "-q"],
        input=f"{tip}\n".encode(), capture_output=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    with ours.quarantine() as quarantine:
        quarantine.take(f"# v2 git bundle\n{tip} refs/heads/main\n\n".encode() + pack)
        quarantine.check()
        with pytest.raises(Failure):
            ours.receive(quarantine, RevisionId(tip))
