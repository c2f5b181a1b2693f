from __future__ import annotations

import os
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import LinesChanged, NotFound, Refused
from workspaces.history.history import History
from workspaces.history.line_identity import text_lines
from workspaces.history.revert import undo_changes
from workspaces.paths import WorkspacePath
from workspaces.revision import SYNC, RevisionId
from workspaces.tree.merge import merge
from workspaces.workspace.workspace import Workspace


def test_restoring_a_file_creates_a_revision_with_a_restored_trailer(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    workspace.write("MEMORY.md", "two\n", by=AGENT)
    assert first is not None
    workspace.restore("MEMORY.md", first[:8], by=CALLER)
    assert workspace.read("MEMORY.md").text == "one\n"
    newest = workspace.log()[0]
    assert (newest.author, newest.trailers["Restored"]) == ("caller", first)
    assert workspace.restore("MEMORY.md", first, by=CALLER).revision is None


def test_restoring_a_file_from_before_its_creation_removes_the_file(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    workspace.write("notes/a.md", "new\n", by=AGENT)
    assert first is not None
    workspace.restore("notes/a.md", first, by=CALLER)
    assert workspace.files() == ["MEMORY.md"]
    with pytest.raises(NotFound):
        workspace.restore("notes/a.md", first, by=CALLER)


def test_a_deleted_file_can_be_restored(workspace: Workspace) -> None:
    first = workspace.write("notes/a.md", b"\x00\xff", by=AGENT).revision
    workspace.delete("notes/a.md", by=AGENT)
    assert first is not None
    workspace.restore("notes/a.md", first, by=CALLER)
    assert workspace.read("notes/a.md").data == b"\x00\xff"


def test_a_manual_edit_is_committed_before_a_restore(workspace: Workspace, root: Path) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    (root / "MEMORY.md").write_text("by hand\n")
    assert first is not None
    workspace.restore("MEMORY.md", first, by=CALLER)
    edit = workspace.log()[1]
    assert workspace.read("MEMORY.md", view=edit.id).text == "by hand\n"


def test_reverting_a_revision_leaves_later_changes_alone(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "a\nb\nc\nd\ne\n", by=AGENT)
    bad = workspace.write("MEMORY.md", "a\nB\nc\nd\ne\n", by=AGENT).revision
    workspace.write("MEMORY.md", "zero\na\nB\nc\nd\ne\nlast\n", by=AGENT)
    assert bad is not None
    made = workspace.revert(bad, by=CALLER)
    assert workspace.read("MEMORY.md").text == "zero\na\nb\nc\nd\ne\nlast\n"
    newest = workspace.log()[0]
    assert (newest.id, newest.trailers["Reverted"]) == (made, bad)
    assert workspace.revert(bad, by=CALLER) is None


def test_reverting_a_revision_of_several_files_creates_a_single_revision(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("keep.md", "keep\n", by=AGENT)
    workspace.write("gone.md", "gone\n", by=AGENT)
    (root / "keep.md").write_text("changed\n")
    (root / "gone.md").unlink()
    (root / "new.md").write_text("new\n")
    edit = workspace.edits.commit()
    assert edit is not None
    made = workspace.revert(edit, by=CALLER)
    assert workspace.files() == ["gone.md", "keep.md"]
    assert workspace.read("keep.md").text == "keep\n"
    newest = workspace.log()[0]
    assert (newest.id, set(newest.paths)) == (made, {"gone.md", "keep.md", "new.md"})
    assert workspace.revert(edit, by=CALLER) is None


def test_the_first_revision_can_be_reverted(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    assert first is not None
    workspace.revert(first, by=CALLER)
    assert workspace.files() == []


def test_a_revert_of_lines_changed_later_is_refused_and_writes_nothing(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "a\nb\n", by=AGENT)
    workspace.write("TASKS.md", "1\n", by=AGENT)
    (root / "MEMORY.md").write_text("a\nB\n")
    (root / "TASKS.md").write_text("2\n")
    bad = workspace.edits.commit()
    tip = workspace.write("TASKS.md", "3\n", by=AGENT).revision
    assert bad is not None
    with pytest.raises(LinesChanged) as caught:
        workspace.revert(bad, by=CALLER)
    refusal = f"Cannot undo {bad[:7]}: its lines in TASKS.md were rewritten since."
    assert str(caught.value) == refusal
    assert [line.as_json() for line in caught.value.lines] == [
        {"path": "TASKS.md", "line": 1, "text": "3"}
    ]
    assert "harness restore" in (caught.value.remedy or "")
    assert workspace.history.tip() == tip
    assert workspace.read("MEMORY.md").text == "a\nB\n"


@pytest.mark.parametrize("view", ["main", "--all", "0123456789"])
def test_an_invalid_revision_is_neither_restored_nor_reverted(
    workspace: Workspace, view: str
) -> None:
    workspace.write("MEMORY.md", "one\n", by=AGENT)
    for act in (workspace.revert, partial(workspace.restore, "MEMORY.md")):
        with pytest.raises((Refused, NotFound)):
            act(view, by=CALLER)


MEMORY = WorkspacePath("MEMORY.md")
HEADING = b"# Memory\n\n"


class Notebook:
    """One history, written the way agents, people and other machines write it."""

    def __init__(self, place: Path, first: bytes, newline: bytes) -> None:
        self.history = History.create(place / "ours.git", ManualClock())
        self.other = History.create(place / "theirs.git", ManualClock())
        self.newline = newline
        self.history.record({MEMORY: first}, CALLER)

    @property
    def data(self) -> bytes:
        return self.read(self.history)

    def read(self, history: History) -> bytes:
        blob = history.find(history.tip(), MEMORY)
        return history.read(blob) if blob else b""

    def tell(self, fact: bytes, history: History | None = None) -> RevisionId:
        """Append a fact. Without a newline at the end the last line has to get one first."""
        place = history or self.history
        now = self.read(place)
        start = now if now.endswith(b"\n") or not now else now + b"\n"
        return place.record({MEMORY: start + b"- " + fact + self.newline}, AGENT)

    def reorder(self, key: int) -> None:
        lines = sorted(
            text_lines(self.data), key=lambda line: sha256(b"%d %s" % (key, line)).digest()
        )
        data = b"\n".join(lines) + self.newline
        if data != self.data:
            self.history.record({MEMORY: data}, AGENT)

    def merge(self, ours: bytes, theirs: bytes) -> tuple[RevisionId, RevisionId]:
        """Tell one fact here and one on another machine, and merge the two."""
        base = self.data
        _send(self.history, self.other)
        told_there = self.tell(theirs, self.other)
        told_here = self.tell(ours)
        merged = merge(MEMORY, base, self.data, self.read(self.other))
        assert merged is not None
        _send(self.other, self.history, {MEMORY: merged.data})
        return told_here, told_there

    def undo(self, revision: RevisionId) -> RevisionId | None:
        changes = undo_changes(self.history, revision, {MEMORY: self.data})
        by = CALLER.saying("Reverted", revision)
        return self.history.record(changes, by) if changes else None


def _send(
    source: History, to: History, differing: dict[WorkspacePath, bytes] | None = None
) -> None:
    tip = source.tip()
    assert tip
    known = to.tip()
    with to.quarantine() as quarantine:
        for _, bundle in source.bundles(tip, [known] if known and source.has(known) else []):
            quarantine.take(bundle)
        quarantine.check()
        to.receive(quarantine, tip)
        to.follow(tip, differing or {}, SYNC)


FACTS = st.lists(st.integers(0, 9), min_size=1, max_size=7)  # some are told twice
SOAK = bool(os.environ.get("SOAK"))
FIRST = st.sampled_from([b"", HEADING, HEADING + b"- old", b"- 3\n"])
NEWLINE = st.sampled_from([b"\n", b""])


@given(first=FIRST, newline=NEWLINE, facts=FACTS, data=st.data())
@settings(max_examples=40, deadline=None)
def test_undoing_any_facts_in_any_order_leaves_the_others_byte_for_byte(
    first: bytes, newline: bytes, facts: list[int], data: st.DataObject
) -> None:
    undone = data.draw(st.permutations(range(len(facts))))
    undone = undone[: data.draw(st.integers(1, len(facts)))]
    with TemporaryDirectory() as place:
        book = Notebook(Path(place), first, newline)
        told = [book.tell(b"%d" % fact) for fact in facts]
        for index in undone:
            assert book.undo(told[index]) is not None
            assert book.undo(told[index]) is None
        kept = [b"- %d" % fact for index, fact in enumerate(facts) if index not in undone]
        assert text_lines(book.data) == [*text_lines(first), *kept]
        if kept:
            assert book.data.endswith(b"\n") == (newline == b"\n")


class Deed(NamedTuple):
    kind: str
    one: int
    two: int


DEEDS = st.lists(
    st.builds(
        Deed,
        st.sampled_from(["tell", "tell", "undo", "undo", "reorder", "merge"]),
        st.integers(0, 5),
        st.integers(6, 12),
    ),
    min_size=2,
    max_size=9,
)


@example(  # a fact is undone and told again, and then the undo is undone
    first=b"",
    newline=b"\n",
    deeds=[Deed("tell", 0, 6), Deed("undo", 0, 6), Deed("tell", 0, 6), Deed("undo", 1, 6)],
)
@example(  # of two equal facts the first is undone behind a merge, and then the second
    first=b"",
    newline=b"",
    deeds=[Deed("tell", 0, 6), Deed("merge", 0, 6), Deed("undo", 0, 6), Deed("undo", 1, 6)],
)
@given(first=FIRST, newline=NEWLINE, deeds=DEEDS)
@settings(max_examples=50, deadline=None, derandomize=not SOAK)
def test_undos_keep_every_other_fact_after_undone_undos_merges_and_reordering(
    first: bytes, newline: bytes, deeds: list[Deed]
) -> None:
    with TemporaryDirectory() as place:
        book = Notebook(Path(place), first, newline)
        expected = Counter(filter(None, text_lines(first)))
        done: list[tuple[RevisionId, bytes, int]] = []  # what it added (+1) or took out (-1)
        undone: dict[RevisionId, bool] = {}
        for kind, one, two in deeds:
            if kind == "tell":
                done.append((book.tell(b"%d" % one), b"- %d" % one, 1))
                expected[b"- %d" % one] += 1
            elif kind == "reorder":
                book.reorder(one)
            elif kind == "merge":
                for revision, fact in zip(
                    book.merge(b"%d" % one, b"%d" % two), (one, two), strict=True
                ):
                    done.append((revision, b"- %d" % fact, 1))
                    expected[b"- %d" % fact] += 1
            elif done:
                revision, line, change = done[one % len(done)]
                made = book.undo(revision)
                assert (made is None) == undone.get(revision, False)
                if made is not None:
                    undone[made] = False
                    _note_undo(undone, book.history, revision)
                    expected[line] -= change
                    done.append((made, line, -change))
            assert Counter(filter(None, text_lines(book.data))) == +expected


def _note_undo(undone: dict[RevisionId, bool], history: History, revision: RevisionId) -> None:
    """Note that a revision is undone. If it was an undo itself, what it undid is done again, and so on. What
    undid it before is in effect again, and what undid that is not."""
    chain = [revision, *_undid(history, revision)]
    undone |= {one: distance % 2 == 0 for distance, one in enumerate(chain)}
    for one in [known for known in undone if known not in chain]:
        undid = _undid(history, one)
        if revision in undid:
            undone[one] = undid.index(revision) % 2 == 1


def _undid(history: History, revision: RevisionId) -> list[RevisionId]:
    """What a revision undid, what that undid, and so on."""
    found: list[RevisionId] = []
    while (reverted := history.commit(revision).trailers.get("Reverted")) is not None:
        found.append(revision := RevisionId(reverted))
    return found
