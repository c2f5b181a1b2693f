"""`harness decisions`, with the demo model: it works without a key."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_a_decision_is_made_listed_resolved_and_examined_again_by_the_demo_model(
    harness: Terminal,
) -> None:
    harness("agent", "set", "assistant", "--config", '{"card": "trade-decision"}').done()
    harness("runs", "start", "assistant", "Shall I WAIT with tea?").done()
    (one,) = harness("decisions", "list", "--json").done().json["decisions"]
    assert one["data"]["action"] == "WAIT"
    assert one["line"] in harness("decisions", "list").done().out
    told = harness("decisions", "re-examine", one["runId"]).done().out
    assert told.startswith("50 · HOLD · ")
    (child,) = (
        run
        for run in harness("runs", "--json").done().json["runs"]
        if run["parentRunId"] == one["runId"]
    )
    explained = harness("explain", child["conversationId"]).done().out
    assert f"decision:{one['runId']}:" in explained and "in entry 1" in explained
    harness("decisions", "resolve", one["runId"], "win").done()
    shown = harness("decisions", "show", one["runId"]).done().out
    assert "# Trade decision: WAIT" in shown
    assert "outcome: win (resolved)" in shown
    assert "re-examined" in shown
    harness("decisions", "re-examine", one["runId"]).refused("resolved")
    harness("decisions", "show", "run_nothing").refused("not_found")
    assert harness("decisions", "list", "--json").done().json["tally"]["hitRate"] == 1.0


def test_a_card_of_ones_own_is_a_file_in_the_home(harness: Terminal) -> None:
    harness("ls", "notes").done()
    folder = harness.home / "cards"
    folder.mkdir(exist_ok=True)
    (folder / "mood.yaml").write_text(
        "type: mood\ntitle: Mood\nfields:\n  word: {type: enum, values: [GOOD, BAD], required: true}\n"
        "line: [word]\nreExaminable: true\n"
    )
    harness("agent", "set", "assistant", "--config", '{"card": "mood"}').done()
    assert harness("runs", "start", "assistant", "It was a GOOD day.").done().out == "GOOD\n"
    (folder / "bad.yaml").write_text("type: bad\ntitle: Bad\nfields:\n  a: {type: wrd}\n")
    command = ("agent", "set", "assistant", "--config", '{"card": "bad"}')
    harness(*command).refused("cards/bad.yaml, line 4")
