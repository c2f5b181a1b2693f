"""A command on files sees through the small composition root what the whole home would show it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Harness
from harness.bootstrap.local_files import LocalFiles, open_local_files
from harness.runtime.settings import read_settings
from workspaces.errors import NotFound, OverLimit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Harness.open(tmp_path / "home") as harness:
        harness.workspaces.create("plans", config={"quota": {"fileBytes": 2000, "files": 50}})
    return tmp_path / "home"


@contextmanager
def opened(home: Path, account: str | None = None) -> Generator[LocalFiles]:
    files = open_local_files(read_settings(home), account)
    assert files is not None
    try:
        yield files
    finally:
        files.close()


def test_the_owner_and_the_workspaces_are_those_of_the_whole_home(home: Path) -> None:
    with Harness.open(home) as harness, opened(home) as files:
        assert files.principal == harness.rooms.principal
        names = [record.name for record in harness.workspaces.list()]
        listed = files.list()
        assert listed is not None
        assert [workspace.name for workspace in listed] == names == ["notes", "plans"]
        for name in names:
            whole = harness.workspaces.get(name)
            for workspace in (files.get(name), files.get(whole.id)):
                assert workspace is not None
                assert workspace.record == whole.record
                assert workspace.namespace == whole.namespace
                assert workspace.root == whole.root


def test_an_account_is_found_by_its_name(home: Path) -> None:
    with Harness.open(home) as harness:
        harness.house.accounts.add({"name": "firm"})
        owner = harness.house.accounts.owner(harness.house.accounts.get("firm"))
    with opened(home, "firm") as files:
        assert files.principal == owner
        assert files.list() == []
    with pytest.raises(NotFound, match="account"):
        open_local_files(read_settings(home), "nobody")


def test_a_stored_quota_counts_without_a_validated_record(home: Path) -> None:
    with opened(home) as files:
        plans, notes = files.get("plans"), files.get("notes")
        assert plans is not None
        assert notes is not None
        with pytest.raises(OverLimit):
            plans.write("a.md", bytes(2001))
        assert notes.write("a.md", bytes(2001)).revision


def test_an_unknown_workspace_is_not_found(home: Path) -> None:
    with opened(home) as files, pytest.raises(NotFound, match="workspace"):
        files.get("nothing")


def test_missing_files_are_left_to_the_whole_home(home: Path) -> None:
    with opened(home) as files:
        plans = files.get("plans")
        assert plans is not None
        plans.root.rename(home / "elsewhere")
        assert files.get("plans") is None
        assert files.list() is None


def test_a_new_home_and_a_shared_one_are_opened_whole(home: Path, tmp_path: Path) -> None:
    settings = read_settings(home)
    assert open_local_files(replace(settings, s3="s3://bucket/prefix"), None) is None
    assert open_local_files(replace(settings, records="dynamodb:table"), None) is None
    assert open_local_files(read_settings(tmp_path / "new"), None) is None


def test_the_stored_records_are_those_that_the_whole_home_lists(home: Path) -> None:
    with Harness.open(home) as harness, opened(home) as files:
        harness.agents.get("assistant")  # has a private workspace, which is not listed
        stored = [record.value for record in files.stored()]
        assert stored == [record.as_json() for record in harness.workspaces.list()]


def test_a_home_with_webhooks_is_opened_whole_so_that_they_hear_of_changes(home: Path) -> None:
    with Harness.open(home) as harness:
        hooks = harness.rooms.webhooks
        made = hooks.create({"url": "https://example.com/hook", "events": ["memory.changed"]})
    assert open_local_files(read_settings(home), None) is None
    with Harness.open(home) as harness:
        harness.rooms.webhooks.delete(made.record.id)
    with opened(home) as files:
        assert files.get("notes") is not None
