"""Previews of prompts over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.web.site import Site
from tests.harness.web.turning import taken


def test_a_prompt_preview_shows_memory_and_the_message_and_stores_nothing(site: Site) -> None:
    acme = site.account("acme")
    place = acme.post("/accounts/me/workspaces", {"name": "w"})["id"]
    acme.file(place, "MEMORY.md", b"- the door is blue\n")
    mounts = [{"name": "w", "workspaceId": place}]
    agent = acme.post("/accounts/me/agents", {"name": "a", "config": {"workspaces": mounts}})["id"]
    path = f"/v1/agents/{agent}/prompt-preview"
    for _ in range(2):
        shown = acme("POST", path, json={"conversationKey": "c1", "message": "Which door?"}).json()
        assert any("the door is blue" in part["text"] for part in shown["parts"])
        assert "Which door?" in str(shown["request"]["messages"][-1])
        assert shown["isNew"] is True
    acme.refused(400, "POST", path, json={"memory_policy": "none"})
    acme.user_key("alice").refused(403, "POST", path, json={})
    acme.refused(400, "POST", path, json={"conversationKey": "acct:x"})
    acme.refused(400, "POST", path, json={"massage": "x"})


def test_a_prompt_preview_announces_a_compaction_before_the_turn(site: Site) -> None:
    acme = site.account("acme")
    agent = acme.agent(session={"compaction": {"enabled": True, "maxContextLength": 3_000}})
    path = f"/v1/agents/{agent}/prompt-preview"
    taken(acme, agent, "e1", "hello")
    shown = acme.post(path, {"conversationKey": "c1", "message": "x"}, 200)
    assert "compaction" not in shown
    shown = acme.post(path, {"conversationKey": "c1", "message": "x" * 3_000}, 200)
    assert shown["compaction"] == {"kind": "summary", "covers": 2}


WEATHER = {"name": "weather", "description": "Says it.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("asked", [None, {}, {"archival_mode": "tool_only"}, {"archival_limit": 3}])
def test_a_prompt_preview_predicts_the_snapshot_of_a_turn_with_the_same_memory_policy(
    site: Site, asked: Any
) -> None:
    """What is asked by default is as good as nothing; another policy is another snapshot."""
    acme = site.account("acme")
    agent = acme.agent(tools=[WEATHER])
    path = f"/v1/agents/{agent}/prompt-preview"
    more = {} if asked is None else {"memory_policy": asked}
    taken(acme, agent, "e1", "hello")
    expected = acme.post(path, {"conversationKey": "c1", "message": "more", **more}, 200)
    done = taken(acme, agent, "e2", "more", **more)
    receipts = acme.list(f"/v1/conversations/{done['conversationId']}/receipts", "receipts")
    (step,) = receipts[-1]["steps"]
    assert [one["name"] for one in expected["request"]["tools"]].count("weather") == 1
    is_another = asked == {"archival_limit": 3}
    assert (expected["isNew"], step["snapshot"]) == (is_another, expected["snapshot"]["number"])
    again = acme.post(path, {"conversationKey": "c1", "message": "more", **more}, 200)
    assert again["isNew"] is False
