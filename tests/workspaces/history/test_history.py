from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import NotFound, Refused
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId

MEMORY = WorkspacePath("MEMORY.md")
NOTE = WorkspacePath("notes/deep/a.md")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "h.git"


@pytest.fixture
def history(directory: Path, clock: ManualClock) -> History:
    return History.create(directory, clock)


def git(directory: Path, *arguments: str) -> str:
    """Any git client, as a stranger would use it."""
    command = ["git", f"--git-dir={directory}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_new_history_has_no_revision(history: History) -> None:
    assert history.tip() is None
    assert history.tree(None) == {}
    assert history.log() == []


def test_a_revision_holds_the_recorded_files(history: History) -> None:
    history.record({MEMORY: b"# Memory\n", NOTE: b"deep"}, CALLER)
    tip = history.tip()
    assert list(history.tree(tip)) == [MEMORY, NOTE]
    found = history.find(tip, NOTE)
    assert found is not None
    assert history.read(found) == b"deep"
    assert history.find(tip, WorkspacePath("notes")) is None
    assert history.find(tip, WorkspacePath("notes/deep/b.md")) is None
    assert history.find(tip, WorkspacePath("MEMORY.md/x")) is None


def test_a_revision_leaves_unnamed_files_unchanged(history: History) -> None:
    first = history.record({MEMORY: b"one", NOTE: b"deep"}, CALLER)
    second = history.record({MEMORY: b"two"}, CALLER)
    assert history.tree(first)[NOTE] == history.tree(second)[NOTE]
    assert history.tree(first)[MEMORY] != history.tree(second)[MEMORY]


def test_deleting_the_last_file_of_a_directory_removes_the_directory(
    history: History, directory: Path
) -> None:
    history.record({MEMORY: b"x", NOTE: b"deep"}, CALLER)
    history.record({NOTE: None}, CALLER)
    assert git(directory, "ls-tree", "-r", "-t", "--name-only", "main") == "MEMORY.md\n"
    history.record({MEMORY: None}, CALLER)
    assert history.tree(history.tip()) == {}


def test_a_file_may_become_a_directory_and_back(history: History) -> None:
    history.record({WorkspacePath("a"): b"file"}, CALLER)
    history.record({WorkspacePath("a"): None, WorkspacePath("a/b"): b"below"}, CALLER)
    assert list(history.tree(history.tip())) == ["a/b"]
    history.record({WorkspacePath("a/b"): None, WorkspacePath("a"): b"file"}, CALLER)
    assert list(history.tree(history.tip())) == ["a"]


def test_any_git_client_finds_the_history_sound(history: History, directory: Path) -> None:
    names = ["a.md", "a/b.md", "a-b.md", "a0", "ünï/日本.md", 'q"uote.md'.replace('"', "'")]
    for number, name in enumerate(names * 3):
        history.record({WorkspacePath(name): b"%d" % number}, AGENT)
    git(directory, "fsck", "--strict")
    assert git(directory, "rev-list", "--count", "main") == "18\n"
    assert git(directory, "show", "main:ünï/日本.md") == "16"


def test_the_log_has_author_stamp_subject_trailers_paths_and_parents(
    history: History, clock: ManualClock
) -> None:
    history.record({MEMORY: b"# Memory\n"}, CALLER)
    clock.advance(60)
    history.record({MEMORY: b"# Memory\n\n- prefers concise summaries\n"}, AGENT)
    newest, oldest = history.log()
    assert newest.subject == "MEMORY.md: +2 −0 · prefers concise summaries"
    assert newest.author == "helper"
    assert newest.at == "2026-01-01T00:01:00.000000Z"
    assert newest.trailers == {"Agent": "agent_1", "Conversation": "conv_1 c1", "Source": "turn"}
    assert newest.paths == ("MEMORY.md",)
    assert newest.parents == (oldest.id,)
    assert oldest.parents == ()


def test_the_log_of_a_path_lists_only_revisions_that_changed_the_path(history: History) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    history.record({NOTE: b"1"}, CALLER)
    history.record({MEMORY: b"2", NOTE: b"2"}, CALLER)
    assert [len(revision.paths) for revision in history.log(path=NOTE)] == [1, 1]
    assert len(history.log(limit=2)) == 2
    assert history.log(path=WorkspacePath("never.md")) == []


def test_stamps_increase_although_the_clock_jumps_back(
    history: History, clock: ManualClock
) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    clock.jump(-3600)
    history.record({MEMORY: b"2"}, CALLER)
    history.record({MEMORY: b"3"}, CALLER)
    stamps = [revision.at for revision in history.log()]
    assert stamps == sorted(stamps, reverse=True)
    assert len(set(stamps)) == 3


def test_a_name_or_a_trailer_cannot_forge_another_trailer(
    history: History, directory: Path
) -> None:
    author = Author(
        "eve <root@x>\nSource: edit",
        "usr_1\n> <x",
        "turn",
        {"Conversation": "c1\n\nSource: edit\nAt: 1999-01-01T00:00:00.000000Z\x1e\x1f"},
    )
    history.record({MEMORY: b"- x\x1e\x1f\n\nSource: edit\n"}, author)
    (revision,) = history.log()
    assert revision.trailers["Source"] == "turn"
    assert revision.at.startswith("2026-")
    git(directory, "fsck", "--strict")


def test_an_abbreviated_revision_id_is_completed(history: History) -> None:
    revision = history.record({MEMORY: b"1"}, CALLER)
    assert history.resolve(revision[:8]) == revision
    assert history.resolve("head") == revision


@pytest.mark.parametrize("view", ["main", "HEAD~1", "--all", "../x", "", "abc", "g" * 40])
def test_an_invalid_revision_id_is_refused(history: History, view: str) -> None:
    with pytest.raises(Refused):
        history.resolve(view)


def test_an_unknown_revision_is_not_found(history: History) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    with pytest.raises(NotFound):
        history.resolve("0123456789")


def test_an_inherited_git_environment_is_ignored(
    history: History, tmp_path: Path, directory: Path
) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    hostile = {"GIT_DIR": str(tmp_path), "GIT_OBJECT_DIRECTORY": "/nonexistent", "GIT_TRACE": "1"}
    before = dict(os.environ)
    os.environ.update(hostile)
    try:
        assert len(history.log()) == 1
        history.record({MEMORY: b"2"}, CALLER)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert git(directory, "rev-list", "--count", "main") == "2\n"


def test_a_branch_lock_of_a_killed_writer_does_not_block_the_next_writer(
    history: History, directory: Path
) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    (directory / "refs/heads/main.lock").write_text("half")
    history.record({MEMORY: b"2"}, CALLER)
    assert len(history.log()) == 2


def test_below_lists_the_files_of_a_directory_at_a_revision(history: History) -> None:
    first = history.record({MEMORY: b"x", NOTE: b"deep", WorkspacePath("notes/b.md"): b"b"}, CALLER)
    history.record({NOTE: None}, CALLER)
    assert list(history.below(first, "notes")) == ["notes/b.md", NOTE]
    assert history.read(history.below(first, "notes")[NOTE]) == b"deep"
    assert list(history.below(history.tip(), "notes")) == ["notes/b.md"]
    assert history.below(first, "MEMORY.md") == history.below(None, "notes") == {}


def test_a_history_holds_only_its_newest_revision_and_the_ancestors(
    history: History, directory: Path
) -> None:
    first = history.record({MEMORY: b"one"}, CALLER)
    second = history.record({MEMORY: b"two"}, CALLER)
    assert history.holds(first)
    assert history.holds(second)
    git(directory, "update-ref", "refs/heads/main", first)  # as an erasure does
    assert history.holds(first)
    assert not history.holds(second)
    assert not history.holds(RevisionId("0" * 40))


def test_a_concurrent_version_in_neither_history_becomes_a_parent_of_the_merge(
    history: History,
) -> None:
    """Each revision is made on top of one that was made a moment before."""
    first = history.record({MEMORY: b"one\n"}, AGENT)
    theirs = history.record({MEMORY: b"theirs\n"}, AGENT)
    history._branch.move(first, expect=theirs)
    ours = history.record({NOTE: b"ours\n"}, AGENT)
    made = history.follow(
        theirs, {MEMORY: b"all\n", NOTE: b"ours\n"}, AGENT, beside={MEMORY: b"met\n"}
    )
    merge = history.commit(made)
    assert ours in merge.parents
    (met,) = set(merge.parents) - {ours}
    assert history.commit(met).parents == (theirs,)
    held = {revision: history.find(revision, MEMORY) or "" for revision in (met, made)}
    assert {revision: history.read(one) for revision, one in held.items()} == {
        met: b"met\n",
        made: b"all\n",
    }


def test_finding_names_of_another_case_reads_a_directory_once(
    history: History,
) -> None:
    def seconds(count: int) -> float:
        names = [f"note-{n}-of-{count}.md" for n in range(count)]
        revision = history.record({WorkspacePath(name): b"x" for name in names}, CALLER)
        begun = time.process_time()
        for name in names:
            assert history.named_alike(revision, "", name.upper()) == [name]
        return time.process_time() - begun

    few, many = seconds(500), seconds(2000)
    assert many < 10 * few  # each by each takes sixteen times as long, and is 2.5 million in all


def test_names_of_another_case_are_found_within_a_single_directory(history: History) -> None:
    first = history.record({NOTE: b"x", WorkspacePath("notes/Deep/b.md"): b"y"}, CALLER)
    assert set(history.named_alike(first, "notes", "DEEP")) == {"deep", "Deep"}
    assert history.named_alike(first, "", "deep") == ()
    assert history.named_alike(first, "missing", "deep") == ()
    second = history.record({NOTE: None}, CALLER)
    assert history.named_alike(second, "notes", "deep") == ["Deep"]
