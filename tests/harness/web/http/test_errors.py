"""How failures become HTTP answers: the status, the message and the headers."""

from __future__ import annotations

import json

import pytest

from harness.web.http.errors import refused
from tests.harness.web.site import Site
from workspaces.errors import (
    AlreadyExists,
    Exhausted,
    Failure,
    Forbidden,
    Unauthorized,
    Unavailable,
    WorkspaceBusy,
)


def test_an_exhausted_limit_is_429_with_its_name_and_retry_after() -> None:
    told = "60 of 60 turns of a minute are begun"
    answer = refused(Exhausted("turnsPerMinute", told, maximum=60, left=0, free_in_s=0.4))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    error = json.loads(bytes(answer.body))["error"]
    assert error["code"] == "limit_reached"
    assert "turnsPerMinute" in error["message"]
    assert "try again in 1 s" in error["message"]


def test_a_busy_workspace_names_its_holder_without_the_process_id() -> None:
    busy = WorkspaceBusy("the workspace", holder="helper", process=4711)
    assert "4711" in str(busy)
    error = json.loads(bytes(refused(busy).body))["error"]
    assert error["message"] == ("the workspace is in use by helper; try again when that has ended")


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (Unauthorized(), 401, "Missing or invalid API key. Send `Authorization: Bearer <key>`."),
        (
            Forbidden("access shared workspace files directly"),
            403,
            "User keys cannot access shared workspace files directly. Use an account key.",
        ),
        (
            AlreadyExists("agent", "assistant"),
            409,
            "an agent named 'assistant' already exists; "
            "choose another name, or use the existing one",
        ),
        (
            Unavailable("a table", "DynamoDB (http://127.0.0.1:1) is unreachable", remedy="wait"),
            503,
            "DynamoDB (http://127.0.0.1:1) is unreachable. Try again later.",
        ),
    ],
)
def test_an_error_message_states_the_problem_first_and_then_the_remedy(
    failure: Failure, status: int, message: str
) -> None:
    answer = refused(failure)
    assert (answer.status_code, json.loads(bytes(answer.body))["error"]["message"]) == (
        status,
        message,
    )


def test_an_unreachable_store_is_named_in_the_answer_and_in_the_log_without_its_path_in_the_answer(
    site: Site,
) -> None:
    caller = site.account("acme")
    site.harness.house.records.close()
    answer = caller("GET", "/accounts/me/workspaces")
    assert answer.status_code == 503
    message = answer.json()["error"]["message"]
    assert message == "The record store: it has been closed. Try again later."
    logged = [json.loads(line) for line in site.lines.getvalue().splitlines()]
    (told,) = [line for line in logged if line["event"] == "unavailable"]
    assert told["store"] == f"record store {site.harness.settings.home.state}"
    assert told["reason"] == "it has been closed"
