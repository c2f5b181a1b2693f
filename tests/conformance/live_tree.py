"""The conformance tests of a live tree, beyond those of a blob store: files held aside, and the moves."""

from __future__ import annotations

from stat import S_ISREG

import pytest

from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.history.git.objects import blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.tree.port import Label, LiveTree, displaced_by, label_of

A = WorkspacePath("notes/a.md")


def label(number: int, path: WorkspacePath = A) -> Label:
    return label_of(path, blob_id(b"old"), version_of(b"new"), f"{number:08x}")


class LiveTreeConformance:
    def test_a_prepared_file_is_held_aside_and_not_in_the_live_tree(self, tree: LiveTree) -> None:
        tree.prepare({label(1): b"new"})
        assert tree.look(label(1)) == b"new"
        assert tree.labels() == [label(1)]
        assert list(tree.scan()) == []

    def test_the_live_tree_finds_files_below_a_directory_by_name(self, tree: LiveTree) -> None:
        names = ("a.md", "n/a.md", "n/b.txt", "n/m/a.md", "nn/a.md")
        for name in names:
            tree.write(name, b"x", expect=ABSENT)
        assert {stat.name for stat in tree.find("", lambda name: True)} == set(names)
        found = {stat.name: stat.size for stat in tree.find("n", lambda n: n.endswith(".md"))}
        assert found == {"n/a.md": 1, "n/m/a.md": 1}
        assert list(tree.find("missing", lambda name: True)) == []

    def test_a_walk_of_the_live_tree_yields_each_directory_before_its_files(
        self, tree: LiveTree
    ) -> None:
        for name in ("a.md", "n/a.md", "n/m/b.md", "nn/a.md"):
            tree.write(name, b"x", expect=ABSENT)
        walked = dict(tree.walk())
        files = [name for name, status in walked.items() if S_ISREG(status.st_mode)]
        assert files == ["a.md", "n/a.md", "n/m/b.md", "nn/a.md"]
        order = list(walked)
        for name in set(walked) - set(files):
            below = [one for one in files if one.startswith(f"{name}/") or not name]
            assert all(order.index(name) < order.index(one) for one in below)

    def test_the_stats_of_named_files_equal_those_of_a_walk(self, tree: LiveTree) -> None:
        for name in ("a.md", "n/a.md", "n/m/b.md"):
            tree.write(name, b"x", expect=ABSENT)
        walked = dict(tree.walk())
        asked = [*walked, "missing.md", "n/missing.md", "missing/a.md", "a.md/b"]
        found = tree.stats(asked)
        assert found.keys() == walked.keys()
        for name, status in found.items():
            of = walked[name]
            assert (status.st_ino, status.st_ctime_ns) == (of.st_ino, of.st_ctime_ns)

    def test_the_stats_of_examined_files_equal_those_of_a_walk(self, tree: LiveTree) -> None:
        names = ("a.md", "n/a.md", "n/b.md", "n/m/b.md", "nn/a.md", "z.md")
        for name in names:
            tree.write(name, name.encode(), expect=ABSENT)
        walked = dict(tree.walk())
        with tree.examining() as examine:
            for name in names:
                data, status = examine(name)
                assert data == name.encode()
                of = walked[name]
                assert (status.st_size, status.st_ino) == (len(data), of.st_ino)
                assert (status.st_mtime_ns, status.st_ctime_ns) == (of.st_mtime_ns, of.st_ctime_ns)
                with pytest.raises(NotFound):
                    examine(f"{name}.missing")
                with pytest.raises(NotFound):
                    examine("missing/a.md")

    def test_mending_the_live_tree_changes_no_byte(self, tree: LiveTree) -> None:
        tree.write(A, b"x", expect=ABSENT)
        assert tree.mend().bytes >= 1
        assert tree.read(A).data == b"x"

    def test_an_exchange_in_the_live_tree_loses_neither_file(self, tree: LiveTree) -> None:
        tree.write(A, b"old", expect=ABSENT)
        tree.prepare({label(1): b"new"})
        tree.exchange(label(1), A)
        assert (tree.read(A).data, tree.look(label(1))) == (b"new", b"old")
        tree.exchange(label(1), A)
        assert (tree.read(A).data, tree.look(label(1))) == (b"old", b"new")

    def test_exchanging_or_taking_a_missing_file_is_not_found(self, tree: LiveTree) -> None:
        tree.prepare({label(1): b"new"})
        with pytest.raises(NotFound):
            tree.exchange(label(1), A)
        with pytest.raises(NotFound):
            tree.take(A, label(2))
        assert tree.labels() == [label(1)]

    def test_entering_a_file_into_the_live_tree_replaces_no_file(self, tree: LiveTree) -> None:
        tree.prepare({label(1): b"new"})
        tree.enter(label(1), A)
        assert (tree.read(A).data, tree.labels()) == (b"new", [])
        tree.prepare({label(2): b"newer"})
        with pytest.raises(AlreadyExists):
            tree.enter(label(2), A)
        assert (tree.read(A).data, tree.look(label(2))) == (b"new", b"newer")

    def test_entering_a_file_creates_its_missing_directories(self, tree: LiveTree) -> None:
        path = WorkspacePath("a/b/c/d.md")
        tree.prepare({label(1, path): b"deep"})
        tree.enter(label(1, path), path)
        assert tree.read(path).data == b"deep"

    def test_entering_a_file_below_another_file_is_refused(self, tree: LiveTree) -> None:
        tree.write("notes", b"a file", expect=ABSENT)
        tree.prepare({label(1): b"new"})
        with pytest.raises(Refused):
            tree.enter(label(1), A)
        assert tree.look(label(1)) == b"new"

    def test_a_file_taken_from_the_live_tree_is_held_aside(self, tree: LiveTree) -> None:
        tree.write(A, b"old", expect=ABSENT)
        tree.take(A, label(1))
        assert tree.look(label(1)) == b"old"
        with pytest.raises(NotFound):
            tree.read(A)

    def test_discarding_a_label_twice_is_no_error(self, tree: LiveTree) -> None:
        tree.prepare({label(1): b"new"})
        tree.discard(label(1))
        tree.discard(label(1))
        assert tree.look(label(1)) is None
        assert tree.labels() == []

    def test_a_file_held_aside_can_be_relabelled(self, tree: LiveTree) -> None:
        tree.prepare({label(1): b"new"})
        tree.relabel(label(1), label(2))
        assert tree.labels() == [label(2)]
        assert tree.look(label(2)) == b"new"

    @pytest.mark.parametrize("path", ["a.md", "notes/ä/b c.md", "x/" * 19 + "y", "n" * 200])
    def test_a_label_identifies_its_path_and_versions(self, tree: LiveTree, path: str) -> None:
        of = WorkspacePath(path)
        tree.prepare({label(7, of): b"new"})
        (found,) = tree.labels()
        told = displaced_by(found)
        assert told is not None
        assert told.is_of(of)
        assert not told.is_of(WorkspacePath("other.md"))
        assert told.expected == blob_id(b"old")
        assert version_of(b"new").startswith(told.went_in)

    def test_many_files_are_prepared_and_entered_together(self, tree: LiveTree) -> None:
        paths = [WorkspacePath(f"d{n % 20}/{n}.md") for n in range(50)]
        files = {label(n, path): b"%d" % n for n, path in enumerate(paths)}
        tree.prepare(files)
        for of, path in zip(files, paths, strict=True):
            tree.enter(of, path)
        tree.flush(paths)
        assert {stat.name for stat in tree.scan()} == set(paths)

    def test_a_staged_file_has_no_label_and_can_enter_the_tree_after_confirm(
        self, tree: LiveTree
    ) -> None:
        staged = [tree.stage(b"%d" % number) for number in range(20)]
        assert tree.labels() == []
        assert list(tree.scan()) == []
        tree.confirm(staged)
        assert tree.labels() == []
        for number, one in enumerate(staged):
            tree.enter(one, WorkspacePath(f"d/{number}.md"))
        assert tree.read("d/7.md").data == b"7"
        assert len(list(tree.scan())) == 20

    def test_a_staged_file_can_be_exchanged_under_a_label(self, tree: LiveTree) -> None:
        tree.write(A, b"old", expect=ABSENT)
        tree.prepare({label(1): tree.stage(b"new")})
        tree.exchange(label(1), A)
        assert (tree.read(A).data, tree.look(label(1))) == (b"new", b"old")

    def test_a_staged_file_replaces_no_file(self, tree: LiveTree) -> None:
        tree.write(A, b"old", expect=ABSENT)
        staged = tree.stage(b"new")
        tree.confirm([staged])
        with pytest.raises(AlreadyExists):
            tree.enter(staged, A)
        tree.discard(staged)
        assert tree.read(A).data == b"old"

    def test_unstaging_removes_only_staged_files_that_did_not_enter_the_tree(
        self, tree: LiveTree
    ) -> None:
        tree.prepare({label(1): b"labelled"})
        came, _ = tree.stage(b"came"), tree.stage(b"left")
        tree.confirm([came])
        tree.enter(came, A)
        tree.unstage()
        tree.unstage()
        assert (tree.read(A).data, tree.look(label(1))) == (b"came", b"labelled")

    def test_unstaging_keeps_a_confirmed_file_that_was_never_staged(self, tree: LiveTree) -> None:
        [aside] = tree.confirm([b"told"])
        tree.unstage()
        assert tree.labels() == []
        tree.enter(aside, A)
        assert tree.read(A).data == b"told"

    def test_the_identity_of_the_live_tree_is_stable(self, tree: LiveTree) -> None:
        assert tree.identity() == tree.identity() != ""
