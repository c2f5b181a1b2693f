"""A failing model provider behind `harness up`, as a client sees it: outcomes, errors and retries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli.terminal import Terminal
from tests.harness.messages_server import (
    KEY,
    Drop,
    MessagesServer,
    Refusal,
    address,
    breaks_off,
    reserved,
    says,
    serving,
    text,
    tool_use,
)
from tests.harness.web.serving import TURNS, Home, Server, home_at, read
from tests.harness.web.turning import Told, said

WRONG = "sk-wrong-key"
KNOWN = {"ANTHROPIC_API_KEY": KEY}


@pytest.fixture
def provider() -> Iterator[MessagesServer]:
    with serving() as found:
        yield found
    assert found.broken_rules == []
    assert found.left_unsaid == 0


def home_with(place: Path, url: str, key: str = KEY) -> Home:
    return home_at(place, ANTHROPIC_API_KEY=key, ANTHROPIC_BASE_URL=url)


def told_by_stream(server: Server, event_id: str, *how: str) -> list[Told]:
    with server.opened("POST", TURNS, said(event_id, *how, stream=True)) as answer:
        return list(read(answer))


def told_by_status(server: Server, event_id: str, *how: str) -> Any:
    accepted = server.ask("POST", TURNS, said(event_id, *how))
    assert accepted["status"] in {"queued", "running", "failed", "done"}
    return server.ask("GET", f"{accepted['statusUrl']}?wait=60")


def assert_failed(status: Any, code: str, remedy: str) -> None:
    assert (status["status"], status["outcome"], status["reply"]) == ("failed", "failed", "")
    assert status["error"]["code"] == code
    assert remedy in status["error"]["remedy"]
    assert status["error"]["message"]


def assert_kept(server: Server, conversation: str, *texts: Sequence[str]) -> None:
    """The entries are whole and these: role and text of each."""
    page = server.ask("GET", f"/v1/conversations/{conversation}/entries")
    assert [one["entry"] for one in page["entries"]] == list(range(1, len(texts) + 1))
    found = [
        [one["message"]["role"], *(part["text"] for part in one["message"]["parts"])]
        for one in page["entries"]
    ]
    assert found == [list(one) for one in texts]


def assert_well(server: Server, conversation: str) -> None:
    """Nothing runs, waits or is due in it."""
    shown = server.ask("GET", f"/v1/conversations/{conversation}")
    assert (shown["waiting"], shown["pending"], "turnId" in shown) == (0, [], False)


def test_an_unreachable_provider_fails_the_turn_and_a_later_turn_succeeds(
    tmp_path: Path,
) -> None:
    with reserved() as port, home_with(tmp_path / "home", address(port)).served() as server:
        server.ask("POST", TURNS, said("e2", "second", "c2"))  # fails while the stream does
        steps = told_by_stream(server, "e1", "first")
        outcome = steps[-1].data
        assert [one.name for one in steps] == ["entry", *["retrying"] * 3, "outcome"]
        assert all("cannot be reached" in one.data["reason"] for one in steps[1:-1])
        assert_failed(outcome, "unreachable", "ANTHROPIC_BASE_URL")
        by_status = told_by_status(server, "e2", "second", "c2")
        assert by_status["error"] == outcome["error"]
        again = server.ask("POST", TURNS, said("e1", "first"))
        assert {name: again[name] for name in outcome} == outcome, "it was said once"
        conversation = outcome["conversationId"]
        assert_well(server, conversation)
        assert_kept(server, conversation, ["user", "first"])
        with serving(port) as provider:
            provider.answers(says(text("Here I am.")))
            done = told_by_status(server, "e3", "and now?")
        assert (done["status"], done["reply"]) == ("done", "Here I am.")
        (asked,) = provider.requests
        said_to_it = [block["text"] for block in asked["messages"][0]["content"]]
        assert said_to_it == ["first", "and now?"]
        assert_kept(
            server,
            conversation,
            ["user", "first"],
            ["user", "and now?"],
            ["assistant", "Here I am."],
        )


def test_a_wrong_provider_key_fails_the_turn_and_the_next_request_has_all_messages(
    tmp_path: Path, provider: MessagesServer
) -> None:
    place, remedy = tmp_path / "home", "ANTHROPIC_API_KEY"
    home = home_with(place, provider.url, WRONG)
    with home.served() as server:
        steps = told_by_stream(server, "e1", "first")
        assert [one.name for one in steps] == ["entry", "outcome"], "no patience helps"
        outcome = steps[-1].data
        assert_failed(outcome, "key", remedy)
        assert_failed(told_by_status(server, "e2", "second"), "key", remedy)
        assert WRONG not in str(outcome)
        assert_well(server, outcome["conversationId"])
    provider.answers(says(text("Both.")))
    with Home(Terminal(place, {**home.terminal.variables, **KNOWN}), home.key).served() as server:
        assert told_by_status(server, "e1", "first")["error"] == outcome["error"]
        steps = told_by_stream(server, "e3", "third")
        assert [one.name for one in steps if one.name != "text"] == ["entry", "entry", "outcome"]
        assert_kept(
            server,
            outcome["conversationId"],
            ["user", "first"],
            ["user", "second"],
            ["user", "third"],
            ["assistant", "Both."],
        )
    (asked,) = provider.requests
    heard = [block["text"] for block in asked["messages"][0]["content"]]
    assert heard == ["first", "second", "third"]


def test_temporary_provider_failures_are_retried_visibly_and_give_one_reply(
    tmp_path: Path, provider: MessagesServer
) -> None:
    soon = {"retry-after-ms": "20"}
    provider.answers(
        Refusal(429, "rate_limit_error", "slow down", soon),
        Refusal(529, "overloaded_error", "busy", soon),
        breaks_off(text("Half an ", "answer"), ending=[Drop()]),
        says(text("Let me look."), tool_use("toolu_1", "read", '{"path": ', "nonsense")),
        says(text("Done.")),
    )
    with home_with(tmp_path / "home", provider.url).served() as server:
        steps = told_by_stream(server, "e1")
        names = [one.name for one in steps]
        assert names[:3] == ["entry", "retrying", "retrying"]
        assert names.count("withdrawn") == 1
        assert names.index("withdrawn") > names.index("text")
        behind = steps[names.index("withdrawn") :]
        assert "Half" not in "".join(one.data["text"] for one in behind if one.name == "text")
        (ended,) = (one.data for one in steps if one.name == "tool_ended")
        assert ended["isError"]
        entries = [one.data["message"] for one in steps if one.name == "entry"]
        assert [one["role"] for one in entries] == ["user", "assistant", "user", "assistant"]
        texts = [part["text"] for one in entries for part in one["parts"] if part["type"] == "text"]
        assert texts == ["hello", "Let me look.", "Done."]
        assert (steps[-1].data["status"], steps[-1].data["reply"]) == ("done", "Done.")
        assert steps[-1].data["usage"]["output"] > 14, "what broke off is paid for, too"
