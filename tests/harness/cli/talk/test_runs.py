"""`harness runs` and `harness agent memory`, as a person and a program call them."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_a_run_is_started_listed_and_shown(harness: Terminal) -> None:
    started = harness("runs", "start", "assistant", "remember that tea is green").done()
    assert started.out == "I have written to MEMORY.md: tea is green.\n"
    (run,) = harness("runs", "--json").done().json["runs"]
    assert (run["status"], run["source"]) == ("succeeded", "on_demand")
    assert run["id"] in harness("runs", "-a", "assistant").done().out
    assert harness("runs", "show", run["id"], "--json").done().json == run
    assert "on_demand" in harness("runs", "show", run["id"]).done().out


def test_a_detached_run_is_left_to_the_jobs(harness: Terminal) -> None:
    run = harness("runs", "start", "assistant", "remember that tea is green", "--detach", "--json")
    run_id = run.done().json["id"]
    harness("runs", "start", "assistant", "again").refused("agent_running", run_id)
    harness("runs", "start", "assistant", "wait", "--queue", "--detach").done()
    harness("jobs", "run").done()
    statuses = [one["status"] for one in harness("runs", "--json").done().json["runs"]]
    assert statuses == ["succeeded", "succeeded"]


def test_a_run_is_cancelled(harness: Terminal) -> None:
    run_id = harness("runs", "start", "assistant", "go", "--detach").done().out.strip()
    assert harness("runs", "cancel", run_id).done().out == f"cancelled: {run_id}\n"
    again = harness("runs", "cancel", run_id, "--json")
    assert (again.code, again.json) == (1, {"cancelled": False})


def test_a_run_needs_a_prompt_and_an_existing_agent(harness: Terminal) -> None:
    harness("runs", "start", "assistant").refused("prompt", "defaultPrompt")
    harness("runs", "start", "nobody", "go").refused("not_found")
    harness("runs", "show", "run_x").refused("not_found")


def test_active_memory_is_turned_on_shown_reset_and_off(harness: Terminal) -> None:
    assert "active memory: off · Fresh" in harness("agent", "memory", "assistant").done().out
    harness("agent", "memory", "assistant", "on").done()
    harness("runs", "start", "assistant", "remember that tea is green").done()
    harness("chat", "--shared", stdin=b"What is green?\n").done()
    shown = harness("agent", "memory", "assistant", "--json").done().json
    assert (shown["enabled"], shown["runsSinceReset"]) == (True, 1)
    assert shown["sessionId"].startswith("ses_")
    text = harness("agent", "memory", "assistant").done().out
    assert text == (
        "active memory: on · Carrying context\nruns since reset: 1\nsession age: just now\n"
    )
    harness("agent", "memory", "assistant", "reset").done()
    assert harness("agent", "memory", "assistant", "--json").done().json["sessionId"] is None
    assert "off" in harness("agent", "memory", "assistant", "off").done().out
    assert harness("agent", "memory", "assistant", "sideways").code == 2
    assert harness("chat", "--shared", "-c", "c1", stdin=b"").code == 2


def test_a_chain_prints_the_output_of_its_last_step(harness: Terminal) -> None:
    harness("agent", "create", "second", "-w", "notes").done()
    words = ("chain", "run", "remember that tea is green", "-a", "assistant", "-a", "second")
    assert harness(*words).done().out == "I know that already: tea is green.\n"
    assert len(harness(*words, "--json").done().json["steps"]) == 2
    harness("chain", "run", "x", "-a", "nobody").refused("not_found")
