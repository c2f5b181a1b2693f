"""Chains over HTTP."""

from __future__ import annotations

import json
import time
from typing import Any

from harness.web.routes.runs.chains import ChainAccepted, ChainDocument
from tests.harness.web.site import Caller
from tests.harness.web.turning import Puppet
from workspaces.validation import parse

WAIT_S = 60.0


def ended(caller: Caller, chain_id: str) -> Any:
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        chain = caller.get(f"/v1/chains/{chain_id}")
        parse(ChainDocument, chain)
        if chain["status"] != "running":
            return chain
        time.sleep(0.02)
    raise AssertionError("the chain does not end")


def test_a_chain_is_accepted_and_brought_to_its_end(acme: Caller, puppet: Puppet) -> None:
    acme.agent("writer")
    puppet.stops("found")
    puppet.stops("written")
    answer = acme("POST", "/v1/chains", json={"agents": ["helper", "writer"], "task": "tea"})
    assert answer.status_code == 202
    accepted = answer.json()
    parse(ChainAccepted, accepted)
    assert accepted["statusUrl"] == f"/v1/chains/{accepted['id']}"
    chain = ended(acme, accepted["id"])
    assert (chain["status"], chain["output"], chain["usage"]["output"]) == (
        "succeeded",
        "written",
        2,
    )
    assert [step["output"] for step in chain["steps"]] == ["found", "written"]


def test_a_chain_is_followed_as_a_stream_from_any_step_on(acme: Caller, puppet: Puppet) -> None:
    puppet.stops("one")
    puppet.stops("two")
    body = {"agents": ["helper", "helper"], "task": "tea", "stream": True}
    told = events(acme("POST", "/v1/chains", json=body).text)
    assert [name for name, _, _ in told] == ["step", "step", "outcome"]
    outcome = told[-1][2]
    assert outcome["output"] == "two"
    path = f"/v1/chains/{outcome['id']}/stream"
    rest = events(acme("GET", path, headers={"Last-Event-ID": told[0][1]}).text)
    assert rest == told[1:]


def test_bad_chains_are_refused_over_http(acme: Caller) -> None:
    for body in (
        {"agents": [], "task": "x"},
        {"agents": ["helper"] * 21, "task": "x"},
        {"agents": ["helper"], "task": ""},
        {"agents": "helper", "task": "x"},
        {"agents": ["helper"]},
    ):
        acme.refused(400, "POST", "/v1/chains", json=body)
    acme.refused(404, "POST", "/v1/chains", json={"agents": ["nobody"], "task": "x"})
    acme.refused(404, "GET", "/v1/chains/chain_x")
    acme.refused(404, "POST", "/v1/chains/chain_x/cancel")
    eve = acme.user_key("eve")
    eve.refused(403, "POST", "/v1/chains", json={"agents": ["helper"], "task": "x"})


def events(text: str) -> list[tuple[str, str, Any]]:
    """Name, id and data of each event."""
    told: list[tuple[str, str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            told.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return told
