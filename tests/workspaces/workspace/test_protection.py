"""What a model may not change is put back when its change is committed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.errors import Conflict
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryRecords
from workspaces.workspace.protection import Protection, PutBack
from workspaces.workspace.workspace import Workspace

SEALED = WorkspacePath("sealed/plan.md")
OPEN = WorkspacePath("open.md")


def seal(
    path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
) -> PutBack | None:
    """No model changes what lies in `sealed/`, and no model writes SECRET into a new file."""
    if by.trailers.get("Sealer") == path:
        return None
    if path.startswith("sealed/"):
        return PutBack(path, before, "the whole file")
    if before is None and after is not None and b"SECRET" in after:
        return PutBack(path, after.replace(b"SECRET", b""), "a word")
    return None


@pytest.fixture
def opened(home: Home, clock: ManualClock) -> Callable[[], Workspace]:
    records = MemoryRecords(clock)
    protection = Protection((seal,), lambda path: path.startswith("sealed/"))

    def open_it() -> Workspace:
        owner = default_owner(records, clock)
        workspaces = Workspaces(
            owner, home, records, clock, template=lambda _: {}, protection=protection
        )
        found = workspaces.list()
        return workspaces.get(found[0].id) if found else workspaces.create("notes")

    return open_it


@pytest.fixture
def workspace(opened: Callable[[], Workspace]) -> Workspace:
    workspace = opened()
    workspace.write(SEALED, b"as decided\n", by=CALLER)
    return workspace


def now(workspace: Workspace, path: WorkspacePath) -> bytes:
    return workspace.read(path).data


@pytest.mark.parametrize("source", ["turn", "mcp", "extract", "sleep", "director", "memorize"])
def test_a_model_s_write_is_put_back_and_makes_no_revision(
    workspace: Workspace, source: str
) -> None:
    tip = workspace.history.tip()
    by = Author("helper", "agent_1", source)  # pyright: ignore[reportArgumentType]
    written = workspace.write(SEALED, b"changed\n", by=by)
    assert written.put_back == PutBack(SEALED, b"as decided\n", "the whole file")
    assert written.revision is None
    assert now(workspace, SEALED) == b"as decided\n"
    assert workspace.history.tip() == tip


@pytest.mark.parametrize("source", ["api", "edit"])
def test_a_person_s_write_stays(workspace: Workspace, source: str) -> None:
    by = Author("Ada", "usr_1", source)  # pyright: ignore[reportArgumentType]
    assert workspace.write(SEALED, b"changed\n", by=by).put_back is None
    assert now(workspace, SEALED) == b"changed\n"


def test_the_rest_of_a_change_is_kept_and_the_revision_says_what_was_put_back(
    workspace: Workspace,
) -> None:
    written = workspace.write(OPEN, b"a SECRET word\n", by=AGENT)
    assert written.put_back is not None
    assert now(workspace, OPEN) == b"a  word\n"
    assert workspace.log(limit=1)[0].trailers["Put-Back"] == "open.md: a word"


def test_a_command_s_changes_are_put_back_in_the_files(workspace: Workspace) -> None:
    root = workspace.root
    with workspace.command(AGENT) as command:
        (root / SEALED).write_bytes(b"changed\n")
        (root / "sealed/new.md").write_bytes(b"new\n")
        (root / OPEN).write_bytes(b"kept\n")
        (root / "other.md").write_bytes(b"SECRET\n")
    assert {one.path for one in command.put_back} == {SEALED, "sealed/new.md", "other.md"}
    assert now(workspace, SEALED) == b"as decided\n"
    assert not (root / "sealed/new.md").exists()
    assert (root / OPEN).read_bytes() == b"kept\n"
    assert (root / "other.md").read_bytes() == b"\n"
    assert workspace.edits.pending() == []
    assert set(workspace.log(limit=1)[0].paths) == {OPEN, "other.md"}
    assert command.after.files[SEALED].version == workspace.read(SEALED).version


def test_a_command_that_only_did_what_is_put_back_makes_no_revision(workspace: Workspace) -> None:
    tip = workspace.history.tip()
    with workspace.command(AGENT) as command:
        (workspace.root / SEALED).unlink()
    assert now(workspace, SEALED) == b"as decided\n"
    assert (command.revision, workspace.history.tip()) == (None, tip)
    assert workspace.edits.pending() == []


def test_a_dead_command_s_changes_are_put_back_by_the_next_writer(
    workspace: Workspace, home: Home
) -> None:
    (workspace.root / SEALED).write_bytes(b"changed\n")
    author = {"name": AGENT.name, "id": AGENT.id, "source": AGENT.source, "trailers": {}}
    left = {"who": "helper", "pid": 1, "intent": {"author": author, "paths": None}}
    home.lock(workspace.namespace).write_text(json.dumps(left))
    workspace.write(OPEN, b"x\n", by=CALLER)
    assert now(workspace, SEALED) == b"as decided\n"


def test_several_files_are_put_back_as_one_change(workspace: Workspace) -> None:
    workspace.change([SEALED, OPEN], lambda _: {SEALED: b"changed\n", OPEN: b"kept\n"}, by=AGENT)
    assert now(workspace, SEALED) == b"as decided\n"
    assert now(workspace, OPEN) == b"kept\n"


def test_a_put_back_write_still_checks_its_condition(workspace: Workspace) -> None:
    seen = workspace.read(SEALED).version
    workspace.write(SEALED, b"again\n", by=CALLER)
    with pytest.raises(Conflict):
        workspace.write(SEALED, b"changed\n", by=AGENT, expect=seen)


def test_a_new_file_is_put_back_to_none_unless_its_writer_may_make_it(workspace: Workspace) -> None:
    new, tip = WorkspacePath("sealed/new.md"), workspace.history.tip()
    written = workspace.write(new, b"mine\n", by=AGENT)
    assert (written.version, written.revision) == (None, None)
    workspace.change([new], lambda _: {new: b"mine\n"}, by=AGENT)
    assert not (workspace.root / new).exists()
    assert workspace.history.tip() == tip
    workspace.write(new, b"sealed\n", by=AGENT.saying("Sealer", new))
    assert now(workspace, new) == b"sealed\n"


def test_a_persons_change_of_what_counts_in_its_first_revision_is_a_problem(
    workspace: Workspace,
) -> None:
    def edited() -> list[str]:
        return [one.path for one in workspace.edits.problems() if one.kind == "edited"]

    workspace.write(OPEN, b"one\n", by=CALLER)
    workspace.write(OPEN, b"two\n", by=CALLER)
    assert edited() == []
    (workspace.root / SEALED).write_bytes(b"changed by hand\n")
    (workspace.root / "sealed/draft.md").write_bytes(b"in no revision yet\n")
    assert edited() == [SEALED]
    workspace.edits.commit()
    assert edited() == [SEALED]
    workspace.write(SEALED, b"as decided\n", by=CALLER)
    assert edited() == []  # it says again what counts
    (workspace.root / SEALED).unlink()
    assert edited() == []
