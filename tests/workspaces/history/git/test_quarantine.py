"""The quarantine of received bundles: hostile objects are refused, good objects are admitted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT
from workspaces.clock import ManualClock
from workspaces.errors import OverLimit, Refused, Unavailable
from workspaces.history.git import object_view
from workspaces.history.git import quarantine as room
from workspaces.history.git.quarantine_stage import ObjectListing, QuarantineStage
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

GOOD = "At: 2026-01-01T00:00:00.000001Z"
B = WorkspacePath("notes/b.md")
WHO = "author x <x@y> 1700000000 +0000\ncommitter x <x@y> 1700000000 +0000"


class Stranger:
    """Makes whatever git's plumbing lets one make."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        subprocess.run(["git", "init", "-q", "--bare", str(directory)], check=True, timeout=60)
        self.file = self.git("hash-object", "-w", "--stdin", told=b"x\n")

    def git(self, *arguments: str, told: bytes = b"") -> str:
        done = subprocess.run(
            ["git", f"--git-dir={self.directory}", *arguments],
            input=told,
            capture_output=True,
            check=True,
            timeout=120,
        )
        return done.stdout.decode().strip()

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Of mode, name and object, written as they are, in git's order."""
        ordered = sorted(entries, key=lambda one: one[1] + (b"/" if one[0] == "40000" else b""))
        data = b"".join(m.encode() + b" " + n + b"\0" + bytes.fromhex(o) for m, n, o in ordered)
        return self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", told=data)

    def commit(self, tree: str, told: str = GOOD, head: str = WHO) -> str:
        data = f"tree {tree}\n{head}\n\nsubject\n\n{told}\n".encode()
        return self.git("hash-object", "-w", "-t", "commit", "--literally", "--stdin", told=data)

    def bundle(self, tip: str, *more: str, named: str | None = None) -> bytes:
        """`more`: the other objects, where git itself cannot walk to them."""
        how = () if more else ("--revs",)
        pack = subprocess.run(
            ["git", f"--git-dir={self.directory}", "pack-objects", *how, "--stdout", "-q"],
            input="".join(f"{one}\n" for one in (tip, *more)).encode(),
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        return f"# v2 git bundle\n{named or tip} refs/heads/main\n\n".encode() + pack


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path / "stranger.git")


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History.create(tmp_path / "ours.git", ManualClock())
    history.record({WorkspacePath("MEMORY.md"): b"ours\n"}, AGENT)
    return history


def content(directory: Path) -> set[str]:
    return {file.relative_to(directory).as_posix() for file in directory.rglob("*")}


def assert_refused(history: History, data: bytes, says: str = ".") -> None:
    before = content(history._directory)
    with (
        pytest.raises((Refused, OverLimit), match=says),
        history.quarantine() as quarantine,
    ):
        quarantine.take(data)
        quarantine.check()
    assert content(history._directory) == before


def test_a_good_bundle_is_admitted(history: History, stranger: Stranger) -> None:
    tip = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)))
    with history.quarantine() as quarantine:
        assert quarantine.take(stranger.bundle(tip)) == tip
        quarantine.check()
        assert not history.has(RevisionId(tip))
        quarantine.admit()
    assert history.has(RevisionId(tip))


@pytest.mark.parametrize("mode", ["120000", "160000", "100755", "100600", "0100644"])
def test_only_regular_files_are_admitted(history: History, stranger: Stranger, mode: str) -> None:
    """No link, no submodule, no program."""
    of = stranger.commit(stranger.tree()) if mode == "160000" else stranger.file
    tip = stranger.commit(stranger.tree((mode, b"a.md", of)))
    assert_refused(history, stranger.bundle(tip))


@pytest.mark.parametrize(
    "name",
    [
        b"..",
        b".",
        b".git",
        b".GIT",
        b".g\xe2\x80\x8cit",
        b"git~1",
        b".gitattributes",
        b".gitmodules",
        b"a:b",
        b"a\\b",
        b"-rf",
        b"con.md",
        b"a.",
        b"\xff.md",
        b"a\nb",
        b"\xe2\x80\xaea.md",
        b"e\xcc\x81.md",
        b"x" * 201,
    ],
)
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_only_valid_workspace_names_are_admitted(
    history: History, stranger: Stranger, name: bytes, kind: str
) -> None:
    inner = stranger.tree(("100644", b"a.md", stranger.file))
    entry = ("100644", name, stranger.file) if kind == "file" else ("40000", name, inner)
    assert_refused(history, stranger.bundle(stranger.commit(stranger.tree(entry))))


@pytest.mark.parametrize("name", [b"", b"a/b"])
def test_a_tree_entry_name_that_is_empty_or_has_a_slash_is_refused(
    history: History, stranger: Stranger, name: bytes
) -> None:
    tree = stranger.tree(("100644", name, stranger.file))
    assert_refused(history, stranger.bundle(stranger.commit(tree), tree, stranger.file))


def test_tree_entries_out_of_order_or_duplicated_are_refused(
    history: History, stranger: Stranger
) -> None:
    one = b"100644 a.md\0" + bytes.fromhex(stranger.file)
    other = b"100644 b.md\0" + bytes.fromhex(stranger.file)
    for data in (one + one, other + one):
        tree = stranger.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", told=data)
        assert_refused(history, stranger.bundle(stranger.commit(tree)))


def test_a_bad_tree_as_long_as_a_good_tree_is_refused(history: History, stranger: Stranger) -> None:
    """A tree that differs from another in nothing but ids is not taken apart."""
    good = stranger.tree(("100644", b"a.md", stranger.file))
    for mode, name in (("120000", b"a.md"), ("100644", b"a:md"), ("100755", b"a.md")):
        bad = stranger.tree((mode, name, stranger.file))
        both = stranger.tree(("40000", b"x", good), ("40000", b"y", bad))
        assert_refused(history, stranger.bundle(stranger.commit(both)))
        other = stranger.tree(("40000", b"x", bad), ("40000", b"y", good))
        assert_refused(history, stranger.bundle(stranger.commit(other)))


def nested(stranger: Stranger, names: list[bytes]) -> str:
    tree = stranger.tree(("100644", b"a.md", stranger.file))
    for name in names:
        tree = stranger.tree(("40000", name, tree))
    return tree


def test_a_path_that_is_too_deep_or_too_long_is_refused(
    history: History, stranger: Stranger
) -> None:
    assert_refused(
        history, stranger.bundle(stranger.commit(nested(stranger, [b"d"] * 20))), "parts"
    )
    long = nested(stranger, [b"d" * 200] * 6)
    assert_refused(history, stranger.bundle(stranger.commit(long)), "longer than")
    both = stranger.tree(
        ("40000", b"x", nested(stranger, [b"d"] * 5)),
        ("40000", b"y", nested(stranger, [b"d"] * 19)),
    )
    assert_refused(history, stranger.bundle(stranger.commit(both)), "parts")


def test_path_limits_count_directories_across_all_bundles(
    history: History, stranger: Stranger
) -> None:
    deep = nested(stranger, [b"d" * 60] * 15)
    first = stranger.commit(deep)
    for more, rule in (
        ([b"d"] * 4, None),
        ([b"d"] * 5, "parts"),
        ([b"d" * 30] * 4, "longer than"),
    ):
        trees = [deep]
        for name in more:
            trees.append(stranger.tree(("40000", name, trees[-1])))
        second = stranger.commit(trees[-1])
        parts = [stranger.bundle(first), stranger.bundle(second, *trees[1:])]
        with history.quarantine() as quarantine:
            for data in parts:
                quarantine.take(data)
            if rule is None:
                quarantine.check()
                assert len(quarantine._stages) == 2
            else:
                with pytest.raises(Refused, match=rule):
                    quarantine.check()


def test_a_tree_that_expands_to_too_many_files_is_refused(
    history: History, stranger: Stranger
) -> None:
    tree = stranger.tree(("100644", b"a.md", stranger.file))
    for _ in range(15):
        tree = stranger.tree(*[("40000", b"d%02d" % n, tree) for n in range(40)])
    data = stranger.bundle(stranger.commit(tree))
    assert len(data) < 20_000
    assert_refused(history, data, "files of a revision")


def test_an_object_that_unpacks_over_the_size_limit_is_refused(
    history: History, stranger: Stranger
) -> None:
    large = stranger.git("hash-object", "-w", "--stdin", told=bytes(200 * 2**20))
    data = stranger.bundle(stranger.commit(stranger.tree(("100644", b"a.md", large))))
    assert len(data) < 2**20
    assert_refused(history, data, "size of a blob")


def test_memory_is_limited_while_a_bundle_is_unpacked(
    history: History, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree is read whole by git itself, however large it is."""
    monkeypatch.setattr(
        "workspaces.history.git.program._WITHIN_LIMITS", 'ulimit -v 60000; exec "$@"'
    )
    entries = [("100644", b"%040d" % n, stranger.file) for n in range(1_000_000)]
    data = stranger.bundle(stranger.commit(stranger.tree(*entries)))
    assert_refused(history, data, "is damaged")


@pytest.mark.parametrize(
    "told",
    [
        "At: yesterday",
        "At: 9999-12-31T23:59:59.999999Z",
        "At: 2026-13-01T00:00:00.000001Z",
        "At: 2026-01-01T00:00:00.000001Z\nAt: x",
        "At: 0001-01-01T00:00:00.000001Z",
        "At: ٢٠٢٦-01-01T00:00:00.000001Z",
    ],
)
def test_an_invalid_stamp_is_refused(history: History, stranger: Stranger, told: str) -> None:
    tip = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)), told)
    assert_refused(history, stranger.bundle(tip), "stamp")


@pytest.mark.parametrize(
    "head",
    [
        "committer x <x@y> 1700000000 +0000",
        f"parent {'a' * 40}\n{WHO}",
        "author x 1700000000 +0000\ncommitter x <x@y> 1700000000 +0000",
        "author x <x@y> 99999999999999999999 +0000\ncommitter x <x@y> 1 +0000",
    ],
)
def test_a_malformed_revision_is_refused(history: History, stranger: Stranger, head: str) -> None:
    good = stranger.tree(("100644", b"a.md", stranger.file))
    tip = stranger.commit(good, head=head)
    assert_refused(history, stranger.bundle(tip, good, stranger.file))


def test_an_oversized_revision_message_is_refused(history: History, stranger: Stranger) -> None:
    good = stranger.tree(("100644", b"a.md", stranger.file))
    tip = stranger.commit(good, "x\n" * 100_000 + "\n" + GOOD)
    assert_refused(history, stranger.bundle(tip), "size of a commit")


def test_a_bundle_tip_that_is_no_revision_is_refused(history: History, stranger: Stranger) -> None:
    tree = stranger.tree(("100644", b"a.md", stranger.file))
    tip = stranger.commit(tree)
    data = f"object {tip}\ntype commit\ntag v\ntagger x <x@y> 1 +0000\n\nx\n".encode()
    tag = stranger.git("hash-object", "-w", "-t", "tag", "--literally", "--stdin", told=data)
    for other in (tag, tree, "f" * 40):
        assert_refused(history, stranger.bundle(tip, named=other))
    assert_refused(history, stranger.bundle(tag, named=tip))


def test_a_bundle_with_too_many_objects_is_refused(
    history: History, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "OBJECTS_MAX", 2)
    tip = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)))
    assert_refused(history, stranger.bundle(tip), "objects of a bundle")


def test_the_object_limit_counts_all_bundles_together(
    history: History, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)))
    tree = stranger.tree(("100644", b"b.md", stranger.file))
    parts = [stranger.bundle(first), stranger.bundle(stranger.commit(tree), tree)]
    for most in (5, 4):
        monkeypatch.setattr(room, "OBJECTS_MAX", most)
        with history.quarantine() as quarantine:
            for data in parts:
                quarantine.take(data)
            if most == 5:
                quarantine.check()
                continue
            with pytest.raises(OverLimit, match="objects of a bundle"):
                quarantine.check()


def test_an_object_that_differs_from_its_listing_is_not_checked(
    history: History, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that rots between two looks."""
    tip = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)))
    listing = QuarantineStage.listing

    def other(self: QuarantineStage) -> Iterator[ObjectListing]:
        for kinds, ids, sizes in listing(self):
            yield ObjectListing(kinds, ids, [size + 1 for size in sizes])

    monkeypatch.setattr(QuarantineStage, "listing", other)
    with history.quarantine() as quarantine:
        quarantine.take(stranger.bundle(tip))
        with pytest.raises(Unavailable, match="as listed"):
            quarantine.check()


def test_an_old_quarantine_of_a_killed_process_is_removed_by_packing(history: History) -> None:
    left = history.quarantine()
    history.pack()
    assert left._directory.exists(), "it may still be at work"
    os.utime(left._directory, (1, 1))
    history.pack()
    assert not left._directory.exists()


# Read before it is admitted.


def test_quarantined_files_are_read_from_all_bundles_and_the_local_history(
    history: History, stranger: Stranger
) -> None:
    here = subprocess.run(
        ["git", f"--git-dir={stranger.directory}", "hash-object", "-w", "--stdin"],
        input=b"ours\n",
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout.decode()
    first = stranger.commit(stranger.tree(("100644", b"a.md", stranger.file)))
    notes = stranger.tree(
        ("100644", b"b.md", here.strip()), ("100644", "ä b.md".encode(), stranger.file)
    )
    root = stranger.tree(("40000", b"notes", notes))
    second = stranger.commit(root)
    with history.quarantine() as quarantine:
        quarantine.take(stranger.bundle(first))
        quarantine.check()
        head = b"# v2 git bundle\n"
        on_ours = head + f"-{history.tip()} ours\n".encode()
        quarantine.take(stranger.bundle(second, root, notes).replace(head, on_ours))
        quarantine.check()
        wanted = {WorkspacePath("notes/b.md"), WorkspacePath("notes/ä b.md"), WorkspacePath("x.md")}
        for _ in range(2):
            files = dict(quarantine.files(RevisionId(second), wanted))
            assert files == {"notes/b.md": b"ours\n", "notes/ä b.md": b"x\n"}
        assert dict(quarantine.files(RevisionId(first), {WorkspacePath("a.md")})) == {
            "a.md": b"x\n"
        }
        assert dict(quarantine.files(RevisionId(first), set())) == {}


def test_reading_quarantined_files_stops_at_the_memory_limit(
    history: History, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_view, "READ_BYTES_MAX", 1000)
    large = stranger.git("hash-object", "-w", "--stdin", told=b"x" * 999)
    tip = stranger.commit(stranger.tree(*(("100644", name, large) for name in (b"a.md", b"b.md"))))
    with history.quarantine() as quarantine:
        quarantine.take(stranger.bundle(tip))
        quarantine.check()
        wanted = {WorkspacePath("a.md"), WorkspacePath("b.md")}
        assert [path for path, _ in quarantine.files(RevisionId(tip), wanted)] == ["a.md"]


def test_a_quarantined_file_with_a_damaged_local_object_is_left_out(
    history: History, stranger: Stranger
) -> None:
    """A pack brings a directory of ours under another name, and one of its files is not whole any more."""
    ours = history.record({WorkspacePath("notes/a.md"): b"damaged\n", B: b"whole\n"}, AGENT)
    git = [
        "git",
        f"--git-dir={history._directory}",
        "rev-parse",
        f"{ours}:notes",
        f"{ours}:notes/a.md",
    ]
    names = subprocess.run(git, capture_output=True, check=True, timeout=60).stdout.decode().split()
    root = stranger.tree(("40000", b"moved", names[0]))
    tip = stranger.commit(root)
    head = b"# v2 git bundle\n"
    data = stranger.bundle(tip, root).replace(head, head + f"-{ours} ours\n".encode())
    (history._directory / "objects" / names[1][:2] / names[1][2:]).unlink()
    with history.quarantine() as quarantine:
        quarantine.take(data)
        quarantine.check()
        wanted = {WorkspacePath("moved/a.md"), WorkspacePath("moved/b.md")}
        assert dict(quarantine.files(RevisionId(tip), wanted)) == {"moved/b.md": b"whole\n"}
