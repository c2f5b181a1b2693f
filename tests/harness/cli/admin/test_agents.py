"""`harness agent`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_agents_are_created_changed_and_deleted(born: Terminal) -> None:
    created = born("agent", "create", "scribe", "-w", "notes", "--model", "demo", "--json")
    record = created.done().json
    assert record["config"]["workspaces"][0]["name"] == "notes"
    patched = born("agent", "set", "scribe", "--system", "Be brief.", "--name", "poet", "--json")
    assert patched.done().json["config"]["system"] == "Be brief."
    listed, shown, plain, said = born.all(
        ("agent", "list", "--json"),
        ("agent", "show", record["id"], "--json"),
        ("agent", "list"),
        ("run", "remember that ink is black", "-a", "poet"),
    )
    assert [agent["name"] for agent in listed.done().json["agents"]] == ["assistant", "poet"]
    assert shown.done().json["name"] == "poet"
    assert plain.done().out.splitlines()[2].split() == ["poet", record["id"], "demo", "notes"]
    said.done()
    assert born("agent", "rm", "poet", "--json").done().json["deleted"] is True
    born("agent", "show", "poet").refused("not_found")


def test_an_agent_without_a_sandbox_can_only_read(born: Terminal) -> None:
    born("agent", "create", "reader", "-w", "notes", "--sandbox", "none").done()
    assert "no workspace is mounted writable" in born("run", "remember x", "-a", "reader").out
