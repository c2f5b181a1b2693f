"""`harness doctor`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_doctor_reports_the_state_of_every_check(born: Terminal) -> None:
    plain, as_json, without_git = (
        born("doctor"),
        born("doctor", "--json"),
        born("doctor", "--json", PATH="/nonexistent"),
    )
    assert "✓ git" in plain.done().out
    states = {finding["check"]: finding["state"] for finding in as_json.done().json}
    assert states.pop("model") == "note"
    sandbox = next(found for found in as_json.json if found["check"] == "sandbox")
    assert states.pop("sandbox") == "ok" or sandbox["remedy"]
    assert set(states.values()) == {"ok"}
    assert without_git.code == 1
    broken = [finding for finding in without_git.json if finding["state"] == "broken"]
    assert [(finding["check"], bool(finding["remedy"])) for finding in broken] == [("git", True)]
