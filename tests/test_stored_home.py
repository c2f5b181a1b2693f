"""A home stored by an earlier version works with this version

What it was asked then lies beside it, with the answers. `tests/fixtures/make_stored_home.py` made both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests import stored_home
from tests.harness.cli.terminal import Terminal
from tests.harness.web.serving import Home, Server
from tests.servers import BUCKET, S3Server

SHARED = "team"
"""The workspace that two machines had; the home holds a write that S3 has not got."""

UNSENT = "offline.md"


@pytest.fixture(scope="module")
def stored() -> Any:
    return json.loads(stored_home.ANSWERS.read_text())


@pytest.fixture
def terminal(tmp_path: Path, seaweedfs: S3Server) -> Terminal:
    return stored_home.unpack(tmp_path / "stored", seaweedfs)


@contextmanager
def served(terminal: Terminal, key: str) -> Generator[Server]:
    with Home(terminal, key).served() as server:
        yield server


def changed(questions: list[Any], answers: list[Any], name: Callable[[Any], str]) -> list[str]:
    return [
        f"{name(question)} {difference}"
        for question, answer in zip(questions, answers, strict=True)
        for difference in stored_home.differences(question["answer"], answer)
    ]


def test_commands_on_a_stored_home_give_the_recorded_answers(
    terminal: Terminal, stored: Any
) -> None:
    questions = stored["commands"]
    answers = stored_home.ask_commands(terminal, questions)
    assert changed(questions, answers, lambda one: " ".join(one["command"])) == []


def test_http_requests_on_a_stored_home_give_the_recorded_answers(
    terminal: Terminal, stored: Any
) -> None:
    questions = stored["requests"]
    with served(terminal, stored["key"]) as server:
        answers = stored_home.ask_server(server, terminal.home, questions)
    assert changed(questions, answers, lambda one: one["path"]) == []


def test_pending_approvals_and_queued_events_of_a_stored_home_are_completed(
    terminal: Terminal, stored: Any
) -> None:
    waiting = stored["waiting"]
    with served(terminal, stored["key"]) as server:
        approval = {"callId": waiting["call"], "allowed": True}
        path = f"/v1/conversations/{waiting['conversation']}/approvals"
        server.ask("POST", path, {"eventId": "allowed", "approvals": [approval]})
        for agent, event in ((waiting["agent"], "allowed"), waiting["behind"].values()):
            ended = server.ask("GET", f"/v1/agents/{agent}/events/{event}?wait=60")
            assert (ended["status"], ended["outcome"]) == ("done", "done")
    workspace, file, text = waiting["file"]
    assert terminal("cat", workspace, file).done().out == text


def test_a_stored_conversation_continues_and_a_stored_version_is_a_valid_if_match(
    terminal: Terminal, stored: Any
) -> None:
    with served(terminal, stored["key"]) as server:
        body = {
            "eventId": "later",
            "conversationKey": "planning",
            "events": [{"type": "user", "content": "When is the deploy day?"}],
        }
        server.ask("POST", "/v1/agents/helper/turns", body)
        later = server.ask("GET", "/v1/agents/helper/events/later?wait=60")
        assert (later["status"], "Friday" in later["reply"]) == ("done", True)
        file = "/v1/workspaces/diary/files/plan.md"
        with server.opened("GET", file) as answer:
            version = answer.headers["ETag"]
        for condition, status in ((version, 200), (version, 412)):
            assert put(server, file, condition) == status


def test_a_manual_edit_in_a_stored_home_becomes_one_revision(
    terminal: Terminal,
) -> None:
    newest, *older = terminal("log", "desk", "--json").done().json
    assert (newest["trailers"]["Source"], newest["paths"]) == ("edit", ["by-hand.md"])
    assert [one["trailers"]["Source"] for one in older] == ["api"]


def test_sync_of_a_stored_home_pushes_only_the_unsent_file_and_pulls_nothing(
    terminal: Terminal,
) -> None:
    synced = terminal("sync", "--json").done().json
    assert synced[SHARED]["pushed"] == [UNSENT]
    for report in synced.values():
        assert report["pulled"] == report["refused"] == []
        assert report["durable"] == {"files": "s3", "history": "s3"}
    again = terminal("sync", "--check", "--json").done().json
    assert all(one["pushed"] == one["pulled"] == one["refused"] == [] for one in again.values())


def test_a_second_machine_joins_the_bucket_of_a_stored_home(
    tmp_path: Path, terminal: Terminal, stored: Any
) -> None:
    location = f"s3://{BUCKET}/{stored_home.PREFIX.rstrip('/')}"
    second = Terminal(tmp_path / "second", terminal.variables)
    second("--account", "default", "join", location).done()
    second("workspace", "attach", SHARED).done()
    logs = [
        one["answer"]["body"]["revisions"] for one in stored["requests"] if "/log?" in one["path"]
    ]
    (unsent, *sent) = next(log for log in logs if log[0]["paths"] == [UNSENT])
    found = [one["revision"] for one in second("log", SHARED, "--json").done().json]
    assert found == [one["revision"] for one in sent]
    assert unsent["revision"] not in found


def put(server: Server, path: str, version: str) -> int:
    stated = {"Authorization": f"Bearer {server.key}", "If-Match": version}
    request = Request(server.url + path, b"# Plan\n\n- later\n", stated, method="PUT")
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status
    except HTTPError as error:
        with error:
            return error.code
