from __future__ import annotations

import json

from harness.web.http.errors import refused
from workspaces.errors import Exhausted, WorkspaceBusy


def test_a_limit_that_is_used_up_says_which_and_when_to_come_again() -> None:
    told = "60 of 60 turns of a minute are begun"
    answer = refused(Exhausted("turnsPerMinute", told, maximum=60, left=0, free_in_s=0.4))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    error = json.loads(bytes(answer.body))["error"]
    assert error["code"] == "limit_reached"
    assert "turnsPerMinute" in error["message"]
    assert "try again in 1 s" in error["message"]


def test_who_is_at_work_is_said_without_the_id_of_a_process() -> None:
    busy = WorkspaceBusy("the workspace", holder="helper", process=4711)
    assert "4711" in str(busy)
    error = json.loads(bytes(refused(busy).body))["error"]
    assert error["message"] == ("the workspace is in use by helper; try again when that has ended")
