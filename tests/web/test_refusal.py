from __future__ import annotations

import json

from harness.web.refusal import refused
from workspaces.errors import Exhausted


def test_a_limit_that_is_used_up_says_which_and_when_to_come_again() -> None:
    told = "60 of 60 turns of a minute are begun"
    answer = refused(Exhausted("turnsPerMinute", told, maximum=60, left=0, free_in_s=0.4))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    error = json.loads(bytes(answer.body))["error"]
    assert error["code"] == "limit_reached"
    assert "turnsPerMinute" in error["message"]
    assert "free again in 1 s" in error["message"]
