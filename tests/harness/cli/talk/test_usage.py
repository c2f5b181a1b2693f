"""`harness usage`, and the limits of an account on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal
from tests.harness.messages_server import KEY, MessagesServer, says, text


@pytest.fixture
def harness(tmp_path: Path, server: MessagesServer) -> Terminal:
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    return Terminal(tmp_path / "home", variables)


def test_usage_is_listed_and_summed_by_agent_or_model(
    harness: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("One.")), says(text("Two.")))
    harness("run", "One?").done()
    harness("agent", "create", "helper").done()
    harness("agent", "set", "helper", "--model", "unheard-of").done()
    harness("run", "Two?", "--agent", "helper").done()
    told = harness("usage", "--by", "agent", "--json").json
    assert told["total"]["asked"] == 2
    assert told["total"]["input"] == 22
    assert (told["by"], len(told["rows"]), told["total"]["unpriced"]) == ("agent", 2, 1)
    shown = harness("usage", "--by", "agent").done()
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "agent",
        "assistant",
        "helper",
        "total",
    ]
    assert "without a price" in shown.stderr
    of_one, by_model = harness.all(
        ("usage", "--agent", "helper", "--json"),
        ("usage", "--by", "model", "--json"),
    )
    assert of_one.json["total"]["asked"] == 1
    assert {row["model"] for row in by_model.json["rows"]} == {"claude-sonnet-5-5", "unheard-of"}


def test_a_custom_price_file_determines_the_cost(harness: Terminal, server: MessagesServer) -> None:
    harness("doctor")
    price = "{input: 1, output: 0, cache_read: 0, cache_write: 0, cache_write_hour: 0}"
    (harness.home / "mine.yaml").write_text(
        f"valid: 2026-11-01\nmodels:\n  claude-sonnet-5-5: {price}\n"
    )
    server.answers(says(text("One.")))
    harness("run", "One?", HARNESS_PRICES="mine.yaml").done()
    told = harness("usage", "--json", HARNESS_PRICES="mine.yaml").json
    assert told["total"]["dollars"] == 11 / 10**6
    assert told["prices"] == "2026-11-01"
    harness("usage", HARNESS_PRICES="nowhere.yaml").refused("nowhere.yaml", "prices")


def test_an_exhausted_limit_refuses_the_turn_and_names_the_waiting_time(
    harness: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("One.")))
    limits = '{"limits": {"turnsPerMinute": 1}}'
    record = harness("account", "set", "--config", limits, "--json").json
    assert record["config"]["limits"] == {"turnsPerMinute": 1}
    harness("run", "One?").done()
    refused = harness("run", "Two?")
    refused.refused("limit_reached", "turnsPerMinute", "try again in", "config.limits")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--by", "week"),
        ("--since", "yesterday"),
        ("--since", "2026-01-02", "--until", "2026-01-01"),
        ("--agent", "assistant", "--user", "owner"),
        ("--agent", "nobody"),
        ("--agent", "assistant", "--by", "user"),
    ],
)
def test_invalid_usage_options_are_refused(harness: Terminal, arguments: tuple[str, ...]) -> None:
    harness("usage", *arguments).refused()
