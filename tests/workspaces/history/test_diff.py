from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import NotFound, Refused
from workspaces.history.diff import parse_patch, words
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author

MEMORY = WorkspacePath("MEMORY.md")
ODD = WorkspacePath("notes/ --x ü 日本.md")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "h.git"


@pytest.fixture
def history(directory: Path, clock: ManualClock) -> History:
    return History.create(directory, clock)


def test_a_diff_lists_each_file_with_its_changed_lines(history: History) -> None:
    first = history.record({MEMORY: b"one\ntwo\n", ODD: b"x\n"}, CALLER)
    second = history.record({MEMORY: b"one\n2\nthree\n", ODD: None}, AGENT)
    found = history.diff(first, second)
    assert (found.older, found.newer) == (first, second)
    memory, odd = found.files
    assert (memory.path, memory.kind, memory.added, memory.removed) == (MEMORY, "changed", 2, 1)
    assert memory.patch == "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n"
    assert (odd.path, odd.kind, odd.removed) == (ODD, "deleted", 1)
    assert [file.path for file in history.diff(first, second, path=ODD).files] == [ODD]
    assert [file.kind for file in history.diff(None, first).files] == ["added", "added"]
    assert history.diff(second, second).files == ()


def test_file_content_that_looks_like_a_diff_header_is_not_parsed_as_a_header(
    history: History,
) -> None:
    forged = (
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\nBinary files a and b differ\n\x1e"
        + (b"0" * 40 + b"\x1fx\x1fx\x1fx\x1fx\x1f\n\\ No newline at end of file\ncommit x")
    )
    history.record({MEMORY: b"a\n"}, CALLER)
    history.record({MEMORY: forged}, CALLER)
    history.record({MEMORY: b"a\n"}, CALLER)
    for change in history.changes():
        assert [file.path for file in change.files] == [MEMORY]
        assert not change.files[0].binary
    assert len(history.changes()) == len(history.log()) == 3


def test_binary_files_huge_lines_and_missing_newlines_appear_in_a_diff(history: History) -> None:
    history.record({MEMORY: b"\x00\x01", ODD: b"no newline"}, CALLER)
    second = history.record({MEMORY: b"\x00\x02", ODD: b"x" * 3_000_000}, CALLER)
    memory, odd = history.show(second).files
    assert (memory.binary, memory.patch) == (True, "")
    assert (odd.added, odd.removed) == (1, 1)
    assert "\\ No newline at end of file" in odd.patch
    third = history.record({MEMORY: b"", ODD: b"carriage\r return \xff\n"}, CALLER)
    memory, odd = history.show(third).files
    assert "+carriage\r return �\n" in odd.patch
    assert words(odd.patch)


def test_showing_a_revision_returns_its_log_entry_and_changes(history: History) -> None:
    revision = history.record({MEMORY: b"- likes tea\n"}, AGENT)
    change = history.show(revision[:8])
    assert change.revision == history.log()[0]
    assert change.revision.trailers["Conversation"] == "conv_1 c1"
    assert change.files[0].added == 1
    assert history.show("head") == change
    with pytest.raises(Refused):
        history.show("--output=x")
    with pytest.raises(NotFound):
        history.show("0123456789")


def test_an_empty_history_has_nothing_to_show(history: History) -> None:
    assert history.changes() == []
    assert history.diff(None, "head").files == ()
    for ask in (history.show, lambda view: history.blame(MEMORY, view)):
        with pytest.raises(NotFound):
            ask("head")


def test_blame_names_the_conversation_and_the_turn_of_each_line(history: History) -> None:
    author = Author("helper", "agent_1", "turn", {"Conversation": "conv_7 c7", "Turn": "turn_9"})
    first = history.record({ODD: b"by a person\n"}, CALLER)
    second = history.record({ODD: b"by a person\n\t0123456789\xff"}, author)
    one, two = history.blame(ODD)
    assert (one.number, one.text, one.revision, one.author) == (1, "by a person", first, "caller")
    assert (one.conversation, one.turn) == (None, None)
    assert (two.text, two.revision, two.author) == ("\t0123456789�", second, "helper")
    assert (two.conversation, two.turn, two.at) == ("conv_7 c7", "turn_9", history.log()[0].at)
    assert len(history.blame(ODD, first)) == 1
    with pytest.raises(NotFound):
        history.blame(WorkspacePath("never.md"))


def test_a_file_deleted_and_created_again_has_a_single_list_of_changes(history: History) -> None:
    history.record({ODD: b"1\n"}, CALLER)
    history.record({ODD: None, MEMORY: b"1\n"}, CALLER)
    last = history.record({ODD: b"1\n"}, AGENT)
    kinds = [change.files[0].kind for change in history.changes(path=ODD)]
    assert kinds == ["added", "deleted", "added"]
    assert history.blame(ODD)[0].revision == last


def test_a_merge_is_shown_as_the_changes_to_its_first_parent(
    history: History, directory: Path
) -> None:
    first = history.record({MEMORY: b"1\n"}, CALLER)
    second = history.record({ODD: b"2\n"}, CALLER)
    git = ["git", f"--git-dir={directory}", "-c", "user.name=x", "-c", "user.email=x@x"]
    command = [
        *git,
        "commit-tree",
        f"{second}^{{tree}}",
        "-p",
        first,
        "-p",
        second,
        "-m",
        "m\x1f\x1e",
    ]
    merge = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([*git, "update-ref", "refs/heads/main", merge], check=True)
    change = history.show("head")
    assert change.revision.parents == (first, second)
    assert [file.path for file in change.files] == [ODD]
    assert len(history.log()) == 3


LINE = st.text(st.sampled_from("ab -+@\\"), max_size=8)


@given(st.lists(LINE, max_size=6), st.lists(LINE, max_size=6))
def test_a_word_diff_holds_both_versions_whole(old: list[str], new: list[str]) -> None:
    patch = "".join([f"-{line}\n" for line in old] + [f"+{line}\n" for line in new])
    spans = words(patch)
    before = "".join(text for mark, text in spans if mark in " -")
    after = "".join(text for mark, text in spans if mark in " +")
    assert before.rstrip("\n").split("\n") == ("\n".join(old)).rstrip("\n").split("\n")
    assert after.rstrip("\n").split("\n") == ("\n".join(new)).rstrip("\n").split("\n")


def test_a_word_diff_shows_a_changed_line_once() -> None:
    spans = [span for span in words("@@ -1 +1 @@\n-likes green tea\n+likes black tea\n") if span[1]]
    assert spans[1:] == [
        (" ", "likes "),
        ("-", "green"),
        ("+", "black"),
        (" ", " tea\n"),
    ]


@given(st.text())
def test_any_text_can_be_parsed_as_a_patch(text: str) -> None:
    parse_patch(text, len)
    parse_patch(f"diff --git a/x b/x\n{text}", len)
    words(text)
