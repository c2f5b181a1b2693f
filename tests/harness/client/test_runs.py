"""The client of runs and decisions, against a server on a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.client import Client
from harness.client.runs import AgentRun
from harness.messages.message import ToolCall
from tests.harness.web.turning import Puppet
from tests.harness.web.wire import running
from workspaces.errors import AgentRunning, NotFound, Refused

WAIT_S = 60.0
DATA = {"verdict": "WAIT", "reason": "range unresolved"}
REVIEW = {"conviction_score": 70, "notes": "Volume holds.", "suggested_action": "KEEP"}


async def _talk(client: Client, puppet: Puppet) -> None:
    runs = client.runs
    await client.agents.create("judge", card="decision")
    with pytest.raises(Refused, match="prompt"):
        await runs.start("judge")
    with pytest.raises(NotFound):
        await runs.get("run_nothing")
    begun = await runs.start("judge", "Shall we?")
    assert not begun.is_final and begun.source == "on_demand"
    with pytest.raises(AgentRunning):
        await runs.start("judge", "And now?")
    queued = await runs.start("judge", "Later.", on_busy="queue")
    assert await runs.cancel(queued.id) is True
    assert await runs.cancel(queued.id) is False
    puppet.stops(ToolCall("s1", "submit_result", DATA))
    run = await runs.wait(begun.id)
    assert run.result is not None and run.usage is not None
    assert (run.status, run.result.data) == ("succeeded", DATA)
    assert run.error_code is None and run.waiting == ()
    puppet.stops(ToolCall("s2", "submit_result", REVIEW))
    child = await runs.wait((await runs.re_examine(run.id)).id)
    assert (child.source, child.parent_run_id, child.status) == ("re_examine", run.id, "succeeded")
    assert await runs.re_examinations(run.id) == (child,)
    noted = await runs.set_outcome(run.id, "right", fields={"gain": 3}, status="resolved")
    assert (noted.outcome, noted.outcome_fields, noted.resolution_status) == (
        "right",
        {"gain": 3},
        "resolved",
    )
    (decision,) = await runs.decisions("judge")
    assert (decision.run_id, decision.data, decision.outcome) == (run.id, DATA, "right")
    assert decision.conviction is not None and decision.conviction == noted.conviction
    assert (decision.conviction.score, decision.conviction.run_id) == (70, child.id)
    tally = await runs.tally("judge")
    assert tally is not None and (tally.good, tally.bad, tally.hit_rate) == (1, 0, 1.0)
    cleared = await runs.set_outcome(run.id, None)
    assert (cleared.outcome, cleared.outcome_fields, cleared.resolution_status) == (None,) * 3
    assert await runs.tally("judge") is None

    async def listed(limit: int | None = None) -> list[AgentRun]:
        return [one async for one in runs.list("judge", limit=limit)]

    assert [one.id for one in await listed()] == [child.id, queued.id, run.id]
    assert [one.id for one in await listed(2)] == [child.id, queued.id]
    assert await listed(0) == []
    with pytest.raises(Refused, match="has no decision"):
        await runs.re_examine(queued.id)
    puppet.stops("no result")
    puppet.stops("still none")
    failed = await runs.wait((await runs.start("judge", "Once more?")).id)
    assert (failed.status, failed.error_code) == ("failed", "no_result")


def test_runs_and_decisions_are_started_read_and_judged(tmp_path: Path, puppet: Puppet) -> None:
    async def timed(port: int, key: str) -> None:
        async with asyncio.timeout(WAIT_S), Client(f"http://127.0.0.1:{port}", key) as client:
            await _talk(client, puppet)

    with running(tmp_path / "home", model=puppet) as up:
        asyncio.run(timed(up.port, up.key))


def test_a_list_goes_over_its_pages(
    tmp_path: Path, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.client.runs.PAGE", 2)

    async def timed(port: int, key: str) -> None:
        async with asyncio.timeout(WAIT_S), Client(f"http://127.0.0.1:{port}", key) as client:
            first = await client.runs.start("assistant", "0")
            ids = [first.id]
            for number in range(1, 5):
                run = await client.runs.start("assistant", str(number), on_busy="queue")
                ids.append(run.id)
            found = [one.id async for one in client.runs.list("assistant")]
            assert found == ids[::-1]
            assert [one.id async for one in client.runs.list("assistant", limit=3)] == found[:3]
            for run_id in found:
                assert await client.runs.cancel(run_id)

    with running(tmp_path / "home", model=puppet) as up:
        asyncio.run(timed(up.port, up.key))
