"""Decisions without a browser: the table, a run's result, its outcome, and later looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from harness.runs.run import Run
from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import Site

TRADE = {
    "asset": "BTC",
    "action": "BUY",
    "reason": "A breakout\nwith volume.",
    "entry": 61000.5,
    "watch_for": ["volume fades", "funding turns"],
}
WATCHED = [{"item": "volume fades", "status": "failed", "evidence": "It faded."}]
REVIEW = {"conviction_score": 35, "notes": "The breakout failed.", "suggested_action": "CLOSE"}


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def site(tmp_path: Path, model: ScriptedModel) -> Iterator[Site]:
    with Site.open(tmp_path / "home", model=model) as opened:
        opened.harness.agents.patch("assistant", {"config": {"card": "trade-decision"}})
        yield opened


def submits(**data: Any) -> tuple[ToolCall, ...]:
    return (ToolCall("toolu_1", "submit_result", data),)


def decided(site: Site, model: ScriptedModel, **more: Any) -> Run:
    model.script(submits(**{**TRADE, **more}))
    run = site.harness.finish_run(site.harness.runs.start("assistant", "Decide.").id).run
    assert run.status == "succeeded", run.error
    return run


def test_a_decision_is_shown_noted_and_examined_again(site: Site, model: ScriptedModel) -> None:
    ada, run = visitor(site), decided(site, model)
    page = ada.get(f"/runs/{run.id}")
    assert "Take profit" not in page  # the agent left it out
    for text in ("Trade decision", "61000.5", "<li>funding turns</li>", "Nobody has looked"):
        assert text in page, text
    model.script(submits(**REVIEW, watch_for=WATCHED))
    address = ada.done(f"/runs/{run.id}/re-examine")
    child = address.removeprefix("/runs/")
    site.harness.finish_run(child)
    page = ada.get(address)
    for text in (
        "Conviction that is left",
        "The breakout failed.",
        "It faded.",
        "earlier decision",
    ):
        assert text in page, text
    for path in ("/decisions", f"/runs/{run.id}"):
        assert f'href="/runs/{child}"' in ada.get(path), path
    assert "is down to 35 of 100: CLOSE" in ada.get("/")
    answer = ada.done(f"/runs/{run.id}/outcome", do="save", outcome="win", status="resolved")
    assert answer == f"/runs/{run.id}?said=saved"
    page = ada.get(f"/runs/{run.id}")
    assert "is resolved, and is not examined again" in page
    assert "Re-examine</button>" not in page
    assert "1 of 1 decided on this page were good" in ada.get("/decisions")
    assert "is down to" not in ada.get("/")  # nothing is left to do


def test_an_outcome_keeps_the_fields_of_a_program_and_is_cleared(
    site: Site, model: ScriptedModel
) -> None:
    ada, run = visitor(site), decided(site, model)
    decisions, path = site.harness.rooms.decisions, f"/runs/{run.id}/outcome"
    decisions.set_outcome(run.id, "win", {"gain": 3}, "active")
    ada.done(path, do="save", outcome="loss", status="", back="decisions", type="trade-decision")
    now = decisions.get(run.id).run
    assert (now.outcome, now.outcome_fields, now.resolution_status) == ("loss", {"gain": 3}, None)
    assert ada.post(path, do="save", outcome="", status="resolved").status_code == 400
    assert ada.post(path, do="save", outcome="win", status="won").status_code == 400
    ada.done(path, do="clear")
    now = decisions.get(run.id).run
    assert (now.outcome, now.outcome_fields, now.resolution_status) == (None, None, None)


def test_the_table_has_pages_and_types(
    site: Site, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = visitor(site)
    assert "No decision yet" in ada.get("/decisions")
    first = decided(site, model, asset="ETH")
    site.harness.agents.patch("assistant", {"config": {"card": "decision"}})
    model.script(submits(verdict="WAIT", reason="range"))
    other = site.harness.finish_run(site.harness.runs.start("assistant", "x").id).run
    both = ada.get("/decisions")
    assert both.index(f"/runs/{other.id}") < both.index(f"/runs/{first.id}")
    page = ada.get("/decisions?type=trade-decision")
    assert first.id in page
    assert other.id not in page
    monkeypatch.setattr("harness.web.pages.agent.decisions.ROWS_MAX", 1)
    page = ada.get("/decisions")
    assert first.id not in page
    older = page.partition(">Older<")[0].rpartition('href="')[2].rstrip('"').replace("&amp;", "&")
    page = ada.get(older)
    assert first.id in page
    assert other.id not in page
    assert ">Older<" not in page


def test_nobody_but_the_owner_sees_decisions(site: Site, model: ScriptedModel) -> None:
    run = decided(site, model)
    acme = visitor(site, site.account("acme").key)
    assert "No decision yet" in acme.get("/decisions")
    for path in (f"/runs/{run.id}/outcome", f"/runs/{run.id}/re-examine"):
        assert acme.post(path, do="clear").status_code == 404
    rooms = site.harness.rooms
    user = rooms.users.add({"name": "Ben"})
    ben = visitor(site, rooms.keys.create(user_id=user.id)[1])
    ben.get("/decisions", 403)
    assert ">Decisions<" not in ben.get("/")
    for path in (f"/runs/{run.id}/outcome", f"/runs/{run.id}/re-examine"):
        assert ben.post(path, do="clear").status_code == 403


def test_a_decision_of_which_there_is_a_file_alone_is_shown(
    site: Site, model: ScriptedModel
) -> None:
    run = decided(site, model)
    decisions = site.harness.rooms.decisions
    decisions.records.delete_of(run.agent_id)  # as on a machine that has the files only
    ada = visitor(site)
    assert f"/runs/{run.id}" in ada.get("/decisions")
    page = ada.get(f"/runs/{run.id}")
    assert "61000.5" in page
    ada.done(f"/runs/{run.id}/outcome", do="save", outcome="win", status="resolved")
    assert decisions.get(run.id).run.outcome == "win"
