"""Random sequences of operations on a workspace, compared with a plain model.

The model knows the tree, what of it nobody has recorded yet and whose it is, and every revision there
should be, with its author. After each step the workspace must say the same.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.coordination.writer_lock import Intent
from workspaces.errors import AlreadyExists, Conflict, NotFound, Refused
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryRecords
from workspaces.workspace.decided_files import Written
from workspaces.workspace.manual_edits import ManualEdits
from workspaces.workspace.workspace import Workspace

PATHS = ("a.md", "b.md", "notes/a.md", "notes/deep/b.md", "notes", "other")
"""`notes` and `other` are files or directories, by turns."""
TEXTS = ("one\n", "two\n", "three\n", "")
WRITERS = ("ann", "bob")
PERSON = "owner"

paths = st.sampled_from(PATHS)
texts = st.sampled_from(TEXTS)
writers = st.sampled_from(WRITERS)
sides = st.sampled_from((0, 1))
"""Two objects of one workspace, as two processes have them."""

Tree = dict[str, str]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        home, clock = Home(self.directory), ManualClock()
        home.prepare()
        records = MemoryRecords(clock)
        owner = default_owner(records, clock)
        both = [Workspaces(owner, home, records, clock, template=lambda _: {}) for _ in range(2)]
        record = both[0].create("notes").record
        self.sides = [each.open(record) for each in both]
        self.root = self.sides[0].root
        self.lock = home.lock(self.sides[0].namespace)
        self.tree: Tree = {}
        self.recorded: Tree = {}
        self.revisions: list[tuple[str, Tree]] = []
        """Oldest first: author, and the tree as it was."""
        self.left: tuple[str, tuple[str, ...] | None] | None = None
        """Who died, and what had been declared."""

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    # What the model says.

    def record(self, author: str, names: tuple[str, ...] | None) -> None:
        """A revision of what differs, of these names or of all."""
        after = dict(self.recorded)
        for name in {*self.tree, *self.recorded} if names is None else names:
            if name in self.tree:
                after = {n: t for n, t in after.items() if not n.startswith(f"{name}/")}
                for above in parents(name):
                    after.pop(above, None)
                after[name] = self.tree[name]
            elif names is None or not self.is_blocked(name):
                after.pop(name, None)
        if after != self.recorded:
            self.recorded = after
            self.revisions.append((author, after))

    def is_blocked(self, name: str) -> bool:
        """Whether nothing can be at this name: it is a directory, or below a file."""
        return any(above in self.tree for above in parents(name)) or any(
            other.startswith(f"{name}/") for other in self.tree
        )

    def locked(self) -> None:
        """Whoever has the lock first tells the story of the dead."""
        if self.left is not None:
            author, names = self.left
            self.left = None
            self.record(author, names)

    def hand_set(self, name: str, text: str) -> None:
        for other in [*self.tree]:
            if other.startswith(f"{name}/") or other in parents(name):
                self.hand_delete_one(other)
        file = self.root / name
        if file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.tree[name] = text

    def hand_delete_one(self, name: str) -> None:
        file = self.root / name
        file.unlink()
        del self.tree[name]
        for above in file.relative_to(self.root).parents[:-1]:  # no empty directory is left
            with suppress(OSError):
                (self.root / above).rmdir()

    # What people do.

    @rule(path=paths, text=texts)
    def edit_by_hand(self, path: str, text: str) -> None:
        self.hand_set(path, text)

    @precondition(lambda self: self.tree)
    @rule(data=st.data())
    def delete_by_hand(self, data: st.DataObject) -> None:
        self.hand_delete_one(data.draw(st.sampled_from(sorted(self.tree))))

    @precondition(lambda self: self.tree)
    @rule(data=st.data(), path=paths)
    def rename_by_hand(self, data: st.DataObject, path: str) -> None:
        old = data.draw(st.sampled_from(sorted(self.tree)))
        text = self.tree[old]
        self.hand_delete_one(old)
        self.hand_set(path, text)

    @rule(side=sides)
    def settle(self, side: int) -> None:
        self.sides[side].edits.commit()
        self.locked()
        self.record(PERSON, None)
        assert self.recorded == self.tree

    # What writers do.

    @rule(
        side=sides, path=paths, text=texts, by=writers, seen=st.sampled_from((*TEXTS, ANY, ABSENT))
    )
    def write(self, side: int, path: str, text: str, by: str, seen: str | Wildcard) -> None:
        def call() -> Written:
            author = Author(by, by, "api")
            return self.sides[side].write(path, text, by=author, expect=expectation(seen))

        with self.judged(path, seen) as is_met:
            if not is_met:
                call()
                raise AssertionError("a write whose condition does not hold was made")
            written = call()
            if self.tree.get(path) != text:
                self.tree[path] = text
                self.record(by, (path,))
                assert written.revision == self.sides[side].history.tip()
            else:
                assert written.revision is None

    @rule(side=sides, path=paths, by=writers, seen=st.sampled_from((*TEXTS, ANY)))
    def delete(self, side: int, path: str, by: str, seen: str | Wildcard) -> None:
        with self.judged(path, seen) as is_met:
            if is_met and path in self.tree:
                self.sides[side].delete(path, by=Author(by, by, "api"), expect=expectation(seen))
                del self.tree[path]
                self.record(by, (path,))
            else:
                self.sides[side].delete(path, by=Author(by, by, "api"), expect=expectation(seen))
                raise AssertionError("a delete that could not be was made")

    @rule(side=sides, by=writers, path=paths, text=texts, goes=st.booleans())
    def command(self, side: int, by: str, path: str, text: str, goes: bool) -> None:
        before = dict(self.tree)
        with self.sides[side].command(Author(by, by, "turn")):
            self.locked()
            self.record(PERSON, None)
            self.hand_set(path, text)
            if goes and before:
                victim = min(before)
                if victim in self.tree:
                    self.hand_delete_one(victim)
        self.record(by, None)

    @rule(by=writers, path=paths, text=texts, everywhere=st.booleans(), cut=st.booleans())
    def die_between_file_and_revision(
        self, by: str, path: str, text: str, everywhere: bool, cut: bool
    ) -> None:
        """As a kill leaves it: dirty of a person before is recorded, then the file is there."""
        self.locked_by_settling_first(path, everywhere)
        self.hand_set(path, text)
        names = None if everywhere else (path,)
        declared = None if everywhere else (WorkspacePath(path),)
        intent = asdict(Intent(Author(by, by, "turn"), declared))
        note = json.dumps({"who": by, "pid": 1, "intent": intent})
        self.lock.write_text(note + ('"}}' if cut else ""))
        self.left = (by, names)

    def locked_by_settling_first(self, path: str, everywhere: bool) -> None:
        self.sides[0].edits.commit()
        self.locked()
        self.record(PERSON, None)

    # What can be seen.

    @precondition(lambda self: self.revisions)
    @rule(side=sides, path=paths, data=st.data())
    def read_at_a_revision(self, side: int, path: str, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.revisions) - 1))
        revision = self.sides[side].log(limit=10_000)[::-1][number]
        author, tree = self.revisions[number]
        assert revision.author == author
        assert self.sides[side].files(view=revision.id) == sorted(tree)
        if path in tree:
            assert self.sides[side].read(path, view=revision.id).text == tree[path]
        else:
            with pytest.raises(NotFound):
                self.sides[side].read(path, view=revision.id)

    @rule(side=sides, path=paths)
    def read(self, side: int, path: str) -> None:
        if path in self.tree:
            assert self.sides[side].read(path).text == self.tree[path]
        else:
            with pytest.raises((NotFound, Refused)):
                self.sides[side].read(path)

    @invariant()
    def the_tree_is_the_models(self) -> None:
        for side in self.sides:
            assert side.files() == sorted(self.tree)

    @invariant()
    def the_newest_revision_is_the_models(self) -> None:
        side = self.sides[0]
        tip = side.history.tip()
        assert (tip is None) == (not self.revisions)
        if tip is not None:
            assert {n: side.read(n, view=tip).text for n in side.files(view=tip)} == self.recorded

    @contextmanager
    def judged(self, path: str, seen: str | Wildcard) -> Generator[bool]:
        """Whether the condition holds on what is there; the refusal that follows if it does not."""
        self.locked()
        blocked = path not in self.tree and self.is_blocked(path)
        if not blocked:
            self.record(PERSON, (path,))
        is_met = not blocked and (
            seen is ANY or self.tree.get(path) == (None if seen is ABSENT else seen)
        )
        refusal: Any = (Refused,) if blocked else (Conflict, AlreadyExists, NotFound)
        try:
            yield is_met
        except refusal:
            assert not is_met or path not in self.tree


def expectation(seen: str | Wildcard) -> Version | Wildcard:
    return seen if isinstance(seen, Wildcard) else version_of(seen.encode())


def parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


BOUNDED = settings(
    max_examples=2_000 if os.environ.get("SOAK") else 30,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

UNSHRUNK = settings(BOUNDED, max_examples=200, phases=[Phase.generate], report_multiple_bugs=False)


def test_any_sequence_of_operations_leaves_the_workspace_as_the_model_predicts() -> None:
    run_state_machine_as_test(Machine, settings=BOUNDED)


def unsettling(patch: pytest.MonkeyPatch) -> None:
    """Does not look whether a person has changed what it replaces."""
    patch.setattr(ManualEdits, "check_precondition", lambda self, path, expect: self.blob(path))


def blind(patch: pytest.MonkeyPatch) -> None:
    """Takes every condition for met."""
    plain = Workspace.write

    def write(self: Any, path: str, data: bytes | str, *, by: Author, expect: Any = ANY) -> Written:
        return plain(self, path, data, by=by, expect=ANY)

    patch.setattr(Workspace, "write", write)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """Takes a dead writer's work for the person's."""
    patch.setattr(ManualEdits, "_finish", lambda self, intent: None)


def unfinished(patch: pytest.MonkeyPatch) -> None:
    """Leaves what a command did to whoever comes next."""

    @contextmanager
    def command(self: Any, by: Author) -> Generator[Any]:
        with self.edits.hold(by):
            yield None

    patch.setattr(Workspace, "command", command)


@pytest.mark.parametrize(
    "mutant", [unsettling, blind, forgetful, unfinished], ids=lambda mutant: mutant.__name__
)
def test_the_model_detects_a_workspace_with_a_planted_fault(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    # IndexError: the workspace has fewer revisions than the model
    with pytest.raises((AssertionError, pytest.fail.Exception, Conflict, IndexError)):
        run_state_machine_as_test(Machine, settings=UNSHRUNK)
