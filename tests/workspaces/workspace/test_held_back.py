"""A forbidden text: an API refuses it, and a file on the disk that has it is not kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.errors import ForbiddenText, NotFound, Unavailable
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.forgetting.pattern_search import PatternSearch
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.history.git.objects import blob_id
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.home.layout import Home
from workspaces.home.rewrite import rewrite_workspace
from workspaces.home.workspaces import Workspaces
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.storage.in_memory import MemoryRecords
from workspaces.tree.directory import FileBlobs
from workspaces.tree.port import Label
from workspaces.workspace.incoming_changes import IncomingChange
from workspaces.workspace.workspace import Workspace

SECRET = "the code is 4711"
PATH = WorkspacePath("notes/a.md")
GOOD = "# A\n\n- tea is green\n"
BAD = "# A\n\n- tea is green\n- The **code** is:\n  4711\n"

Opened = Callable[[], tuple[Workspace, ForbiddenTexts]]


@pytest.fixture
def opened(home: Home, clock: ManualClock) -> Opened:
    records = MemoryRecords(clock)

    def open_it() -> tuple[Workspace, ForbiddenTexts]:
        owner = default_owner(records, clock)
        rules = RuleRecords(owner.account_id, records, clock)
        texts = ForbiddenTexts(rules, PatternSearch(lambda: None), {})
        workspaces = Workspaces(owner, home, records, clock, template=lambda _: {}, forbidden=texts)
        found = workspaces.list()
        return workspaces.get(found[0].id) if found else workspaces.create("notes"), texts

    return open_it


@pytest.fixture
def rule_id(opened: Opened) -> str:
    workspace, texts = opened()
    workspace.write(PATH, GOOD, by=CALLER)
    return texts.records.forbid_texts([SECRET], by="ada")[0].id


@pytest.fixture
def workspace(opened: Opened, rule_id: str) -> Workspace:
    return opened()[0]


@pytest.fixture
def file(home: Home, workspace: Workspace) -> Path:
    return home.tree(workspace.namespace) / PATH


def problems(workspace: Workspace) -> list[Problem]:
    return [problem for problem in workspace.edits.problems() if problem.kind == "forbidden"]


def test_an_api_refuses_the_text_and_names_the_line_and_the_rule(
    workspace: Workspace, rule_id: str
) -> None:
    tip = workspace.history.tip()
    for write in (workspace.write, workspace.decided.write):
        with pytest.raises(ForbiddenText) as refused:
            write(PATH, BAD, by=CALLER)
        assert [(place.line, place.rule_id) for place in refused.value.places] == [(4, rule_id)]
        assert "4711" not in f"{refused.value} {refused.value.remedy}"
    with pytest.raises(ForbiddenText):
        workspace.change([PATH], lambda _: {PATH: BAD.encode()}, by=CALLER)
    assert workspace.read(PATH).text == GOOD and workspace.history.tip() == tip


def test_a_file_on_the_disk_stays_and_its_last_kept_version_counts(
    workspace: Workspace, file: Path, rule_id: str
) -> None:
    file.write_text(BAD)
    workspace.edits.commit()
    assert file.read_text() == BAD
    assert workspace.read(PATH).text == workspace.decided.read(PATH).text == GOOD
    assert workspace.history.find(workspace.history.tip(), PATH) == blob_id(GOOD.encode())
    (problem,) = problems(workspace)
    assert problem.path == PATH and f"line 4 ({rule_id})" in problem.detail
    assert "4711" not in problem.detail
    assert workspace.edits.pending() == []
    assert [one.content for one in workspace.recall.find("tea")] == ["- tea is green"]
    assert workspace.recall.find("4711") == []


def test_an_api_writes_a_file_again_once_its_text_is_out(workspace: Workspace, file: Path) -> None:
    file.write_text(BAD)
    with pytest.raises(ForbiddenText, match="holds a forbidden text"):
        workspace.write(PATH, "else\n", by=CALLER)
    assert file.read_text() == BAD
    file.write_text(mended := BAD.replace("4711", "secret"))
    workspace.edits.commit()
    assert problems(workspace) == []
    assert workspace.read(PATH).text == mended
    workspace.write(PATH, "else\n", by=CALLER)


def test_a_new_file_with_the_text_is_not_there_for_readers(
    workspace: Workspace, home: Home
) -> None:
    new = WorkspacePath("new.md")
    (home.tree(workspace.namespace) / new).write_text(f"{SECRET}\n")
    workspace.edits.commit()
    with pytest.raises(NotFound):
        workspace.read(new)
    assert new not in workspace.files() and new not in workspace.history.tree(
        workspace.history.tip()
    )
    assert [problem.path for problem in problems(workspace)] == [new]


def test_what_a_command_leaves_is_told_and_its_other_files_are_kept(
    workspace: Workspace, home: Home, file: Path
) -> None:
    with workspace.command(AGENT) as command:
        file.write_text(BAD)
        (home.tree(workspace.namespace) / "b.md").write_text("fine\n")
    assert [problem.path for problem in command.problems] == [PATH]
    assert workspace.read("b.md").text == "fine\n"
    assert workspace.read(PATH).text == GOOD


def test_a_text_that_stood_there_before_is_no_change(opened: Opened) -> None:
    workspace, texts = opened()
    workspace.write(PATH, BAD, by=CALLER)
    texts.records.forbid_texts([SECRET], by="ada")
    workspace.write(PATH, f"{BAD}- more\n", by=CALLER)
    assert workspace.read(PATH).text.endswith("- more\n")
    with pytest.raises(ForbiddenText):
        workspace.write(PATH, f"{BAD}- {SECRET}\n", by=CALLER)


def test_a_rule_of_another_process_counts_for_an_edit_that_was_seen_before(
    opened: Opened, home: Home, clock: ManualClock
) -> None:
    (workspace, _), (_, texts) = opened(), opened()
    workspace.write(PATH, GOOD, by=CALLER)
    clock.advance(10)
    (home.tree(workspace.namespace) / PATH).write_text(BAD)
    assert workspace.edits.pending() == [PATH]
    texts.records.forbid_texts([SECRET], by="ada")
    workspace.edits.commit()
    assert workspace.read(PATH).text == GOOD or problems(workspace)
    clock.advance(2)
    assert workspace.read(PATH).text == GOOD
    assert [problem.path for problem in problems(workspace)] == [PATH]


def test_a_rule_lets_one_change_pass(opened: Opened, rule_id: str) -> None:
    workspace, texts = opened()
    texts.records.pass_once(rule_id, workspace.id, PATH)
    workspace.write(PATH, BAD, by=CALLER)
    with pytest.raises(ForbiddenText):
        workspace.write(PATH, f"{BAD}- {SECRET}\n", by=CALLER)


def test_a_lifted_rule_refuses_nothing(opened: Opened, file: Path, rule_id: str) -> None:
    workspace, texts = opened()
    file.write_text(BAD)
    assert problems(workspace)
    texts.records.lift(rule_id, by="ada")
    workspace.edits.commit()
    assert workspace.read(PATH).text == BAD and problems(workspace) == []


def test_a_file_that_is_no_text_is_held_back_too(workspace: Workspace, file: Path) -> None:
    file.write_bytes(b"\xff\xfe" + SECRET.encode("utf-16-le"))
    workspace.edits.commit()
    assert workspace.read(PATH).text == GOOD
    assert len(problems(workspace)) == 1


def kept(workspace: Workspace) -> str:
    """Everything that revisions have of the file."""
    return "".join(workspace.read(PATH, view=one.id).text for one in workspace.log(PATH))


def test_a_save_that_is_merged_back_into_an_incoming_change_is_held_back(
    workspace: Workspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FileBlobs.exchange

    def exchange(self: FileBlobs, label: Label, path: WorkspacePath) -> None:
        monkeypatch.undo()
        file.write_text(BAD.replace("green", "red"))  # as an editor saves at that moment
        plain(self, label, path)

    monkeypatch.setattr(FileBlobs, "exchange", exchange)
    new, old = GOOD.replace("green", "black").encode(), version_of(GOOD.encode())
    workspace.incoming.apply([IncomingChange(PATH, new, old)], by=CALLER)
    assert "4711" in file.read_text()
    assert "black" in kept(workspace)
    assert "4711" not in kept(workspace)
    assert [problem.path for problem in problems(workspace)] == [PATH]


def taking_out(word: bytes, meanwhile: Callable[[], object] = lambda: None) -> Redaction:
    def redacted(path: str, data: bytes) -> RedactedFile | None:
        if path == "notes/0.md":
            meanwhile()
        after = data.replace(word, b"[]")
        return None if after == data else RedactedFile(after, 1)

    return Redaction(redacted)


def test_a_save_while_another_text_is_taken_out_of_the_files_is_held_back(
    workspace: Workspace, file: Path
) -> None:
    (file.parent / "0.md").write_text("- coffee\n")
    saves = iter([f"{BAD}- coffee\n"])  # between the scan and the read of the next file
    redaction = taking_out(b"coffee", lambda: file.write_text(next(saves, file.read_text())))
    rewrite_workspace(workspace, redaction, by=CALLER, label="f_1")
    assert file.read_text() == f"{BAD}- []\n"
    assert kept(workspace) == GOOD
    assert [problem.path for problem in problems(workspace)] == [PATH]


def test_a_held_back_file_whose_kept_version_has_the_text_is_waited_for(
    workspace: Workspace, file: Path
) -> None:
    file.write_text(BAD)
    with pytest.raises(Unavailable, match=r"notes/a.md.*held back because of another text"):
        rewrite_workspace(workspace, taking_out(b"tea"), by=CALLER, label="f_1")
    file.write_text(file.read_text().replace("4711", "given"))
    rewrite_workspace(workspace, taking_out(b"tea"), by=CALLER, label="f_1")
    assert "tea" not in kept(workspace)
