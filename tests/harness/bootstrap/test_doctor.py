"""The doctor: what it finds about a home, and the remedy it names."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness import Harness
from harness.bootstrap.doctor import Finding, examine
from workspaces.clock import ManualClock
from workspaces.revision import Author


def _found(home: Path, check: str) -> Finding:
    (finding,) = [finding for finding in examine(home) if finding.check == check]
    return finding


@pytest.mark.usefixtures("harness")
def test_a_new_home_is_readable_only_by_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Harness.open(tmp_path / "other") as opened:
            opened.run("hello")
            assert _found(tmp_path / "other", "home").state == "ok"
    finally:
        os.umask(before)
    for name in ("harness.yaml", "state.db"):
        assert stat.S_IMODE((tmp_path / "other" / name).stat().st_mode) == 0o600


def test_the_doctor_notes_a_home_readable_by_other_users(harness: Harness, home: Path) -> None:
    assert _found(home, "home").state == "ok"
    (home / "state.db").chmod(0o644)
    finding = _found(home, "home")
    assert finding.state == "note"
    assert str(home / "state.db") in finding.detail
    assert finding.remedy == f"chmod go-rw {home / 'state.db'}"


def test_the_doctor_reports_a_clock_that_was_set_back(home: Path) -> None:
    tomorrow = ManualClock(datetime.now(UTC) + timedelta(days=1))
    with Harness.open(home, clock=tomorrow) as harness:
        harness.workspaces.get("notes").write("a.md", "- a\n", by=Author("a", "usr_1", "api"))
    finding = _found(home, "clock")
    assert (finding.state, bool(finding.remedy)) == ("broken", True)


def test_the_doctor_reports_a_missing_dynamodb_table_with_a_remedy(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_RECORDS", "dynamodb:nowhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    finding = _found(home, "records")
    assert (finding.state, bool(finding.remedy)) == ("broken", True)
    assert {found.check for found in examine(home)} >= {"git", "home", "disk", "model"}
