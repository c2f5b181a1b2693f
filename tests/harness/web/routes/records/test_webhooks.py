"""Webhooks over HTTP, and the notices that real turns, revisions and syncs send to a real receiver."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from harness.bootstrap.job_kinds import JOB_SHARES
from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from harness.webhooks.delivery import PAUSES_S
from harness.webhooks.notices import WEBHOOK
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import said, settled, taken
from tests.harness.webhooks.receiver import Receiver, receiving
from workspaces.clock import ManualClock

ALL = ["turn.finished", "approval.waiting", "memory.changed", "conflict.found"]


@dataclass
class Hooked:
    site: Site
    receiver: Receiver
    clock: ManualClock
    caller: Caller
    model: ScriptedModel

    def deliver(self) -> None:
        """Let the server's runner of deliveries run what is due."""
        self.clock.advance(2)
        runner = self.site.harness.house.runner.only({WEBHOOK})
        self.site.client.portal.call(runner.drain)  # type: ignore[union-attr]


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooked]:
    monkeypatch.setenv("HARNESS_WEBHOOKS_PRIVATE", "true")
    clock, model = ManualClock(), ScriptedModel("Noted.")
    with (
        receiving() as receiver,
        Site.open(tmp_path / "home", model=model, clock=clock) as site,
    ):
        yield Hooked(site, receiver, clock, site.account("acme"), model)


def hook(hooked: Hooked, *events: str) -> Any:
    new = {"url": hooked.receiver.url, "events": list(events)}
    return hooked.caller.post("/v1/webhooks", new)


def test_a_webhook_is_made_listed_and_deleted_and_its_secret_shown_once(hooked: Hooked) -> None:
    caller = hooked.caller
    made = hook(hooked, "turn.finished")
    secret = made.pop("secret")
    assert caller.list("/v1/webhooks", "webhooks") == [made]
    assert secret not in caller("GET", "/v1/webhooks").text
    other = hooked.site.account("other")
    assert other.list("/v1/webhooks", "webhooks") == []
    other.refused(404, "DELETE", f"/v1/webhooks/{made['id']}")
    caller.user_key("ada").refused(403, "GET", "/v1/webhooks")
    assert caller("DELETE", f"/v1/webhooks/{made['id']}").json() == {"deleted": True}
    caller.refused(404, "DELETE", f"/v1/webhooks/{made['id']}")
    refused = caller.refused(400, "POST", "/v1/webhooks", json={"url": "x", "events": ALL})
    assert refused["field"] == "url"


def test_a_finished_turn_is_told_once_with_ids_and_a_signature(hooked: Hooked) -> None:
    secret = hook(hooked, "turn.finished")["secret"]
    agent = hooked.caller.agent()
    done = taken(hooked.caller, agent, "e1", "a canary sentence")
    hooked.deliver()
    (notice,) = hooked.receiver.notices(1)
    assert set(notice) == {
        *("id", "event", "at", "agentId", "conversationId", "turnId", "eventId", "status")
    }
    assert (notice["event"], notice["agentId"], notice["status"]) == (
        "turn.finished",
        agent,
        "done",
    )
    assert notice["turnId"] == done["turnId"]
    ((headers, body),) = hooked.receiver.received
    assert b"canary" not in body
    time, _, given = headers["harness-signature"].removeprefix("t=").partition(",v1=")
    assert given == hmac.new(secret.encode(), f"{time}.".encode() + body, sha256).hexdigest()
    hooked.deliver()
    assert len(hooked.receiver.received) == 1


def test_a_call_that_waits_for_approval_is_told(hooked: Hooked) -> None:
    hook(hooked, "approval.waiting")
    caller = hooked.caller
    box = {"name": "box", "config": {"permission": "ask"}}
    sandbox = caller.post("/accounts/me/sandboxes", box)["id"]
    agent = caller.agent("gardener", sandbox=sandbox)
    hooked.model.script([ToolCall("t1", "write", {"path": "w/a.md", "content": "x"})])
    accepted = caller.post(f"/v1/agents/{agent}/turns", said("e1"), 202)
    assert settled(caller, accepted["statusUrl"])["status"] == "waiting"
    hooked.deliver()
    (notice,) = hooked.receiver.notices(1)
    assert (notice["event"], notice["eventId"]) == ("approval.waiting", "e1")


def test_changes_of_memory_that_follow_each_other_are_one_notice(hooked: Hooked) -> None:
    hook(hooked, "memory.changed")
    workspace = hooked.caller.workspace()
    for number in range(3):
        hooked.caller.file(workspace, f"notes/{number}.md", b"a canary\n")
    hooked.deliver()
    (notice,) = hooked.receiver.notices(1)
    assert (notice["event"], notice["workspaceId"]) == ("memory.changed", workspace)
    assert b"canary" not in hooked.receiver.received[0][1]
    hooked.caller.file(workspace, "notes/4.md")
    hooked.deliver()
    first, second = hooked.receiver.notices(2)
    assert first["id"] != second["id"]


def test_conflict_files_are_told(hooked: Hooked) -> None:
    hook(hooked, "conflict.found")
    account = hooked.caller.get("/accounts/me")["id"]
    house = hooked.site.harness.house
    services = house.rooms(house.accounts.owner(house.accounts.get(account)))
    workspace = services.workspaces.create("w")
    services.notices.conflict_found(workspace.id, 2)
    hooked.deliver()
    (notice,) = hooked.receiver.notices(1)
    assert (notice["event"], notice["workspaceId"], notice["files"]) == (
        "conflict.found",
        workspace.id,
        2,
    )


def test_a_failed_delivery_is_tried_eight_times_in_a_day_with_the_same_id(hooked: Hooked) -> None:
    hook(hooked, "turn.finished")
    hooked.receiver.statuses = [500] * 8
    taken(hooked.caller, hooked.caller.agent(), "e1")
    hooked.deliver()
    for tries, pause_s in enumerate(PAUSES_S, start=1):
        assert len(hooked.receiver.received) == tries
        hooked.clock.advance(pause_s - 3)
        hooked.deliver()
        assert len(hooked.receiver.received) == tries, "its pause is not over"
        hooked.deliver()
    assert len(hooked.receiver.received) == 8
    assert len({notice["id"] for notice in hooked.receiver.notices(8)}) == 1
    hooked.clock.advance(timedelta(days=1).total_seconds())
    hooked.deliver()
    assert len(hooked.receiver.received) == 8
    (aside,) = [job for job in hooked.site.harness.house.jobs.list() if job.job.kind == WEBHOOK]
    assert aside.is_aside
    assert aside.error == "it answered 500"


def test_a_delivery_to_a_deleted_webhook_or_of_a_deleted_account_is_dropped(hooked: Hooked) -> None:
    made = hook(hooked, "turn.finished")
    taken(hooked.caller, hooked.caller.agent(), "e1")
    hooked.caller("DELETE", f"/v1/webhooks/{made['id']}")
    hooked.deliver()
    assert hooked.receiver.received == []
    hook(hooked, "memory.changed")
    records = hooked.site.harness.house.records
    account = hooked.caller.get("/accounts/me")["id"]
    assert hooked.caller("DELETE", "/accounts/me").status_code == 200
    hooked.deliver()
    assert hooked.receiver.received == []
    left = records.scan(f"account:{account}", start="webhook", end="webhookz")
    assert left == []


def test_deliveries_have_a_share_of_the_jobs_of_their_own() -> None:
    assert [share.kinds for share in JOB_SHARES if WEBHOOK in share.kinds] == [{WEBHOOK}]


def test_a_private_address_is_not_told_unless_the_home_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_WEBHOOKS_PRIVATE", raising=False)
    clock = ManualClock()
    with receiving() as receiver, Site.open(tmp_path / "home", clock=clock) as site:
        hooked = Hooked(site, receiver, clock, site.account("acme"), ScriptedModel())
        hook(hooked, "memory.changed")
        hooked.caller.file(hooked.caller.workspace(), "a.md")
        hooked.deliver()
        assert receiver.received == []
        (job,) = [job for job in site.harness.house.jobs.list() if job.job.kind == WEBHOOK]
        assert "not public" in str(job.error)
