"""`harness run` and `chat` with the provider's model: replies, refusals and remedies."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.harness.cli.terminal import COMMAND_S_MAX, Ended, Terminal
from tests.harness.messages_server import KEY, MessagesServer, Refusal, says, text


@pytest.fixture(scope="module", autouse=True)
def unreachable(tmp_path_factory: pytest.TempPathFactory) -> Generator[Future[Ended]]:
    """A command that waits for long, begun before the first test so that nobody waits for it."""
    place = tmp_path_factory.mktemp("unreachable")
    nobody = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(Terminal(place / "home", nobody), "run", "Hi")


def test_the_providers_model_answers_when_a_key_is_set(
    asking: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("Hel", "lo.")), says(text("Again.")))
    assert asking("run", "Hi", "--json").done().json["usage"]["input"] == 11
    chat = asking("chat", stdin=b"Hi\n").done()
    assert chat.out == "Again.\n"
    assert "offline" not in chat.stderr


def test_a_wrong_key_fails_with_a_remedy_and_loses_no_message(
    asking: Terminal, server: MessagesServer
) -> None:
    failed = asking("run", "My name is Ada.", "-c", "c1", ANTHROPIC_API_KEY="sk-wrong")
    failed.refused("error (key)", "→ set ANTHROPIC_API_KEY")
    assert failed.out == ""
    assert "sk-wrong" not in failed.stderr
    as_json = asking("run", "I am Ada.", "-c", "c1", "--json", ANTHROPIC_API_KEY="sk-wrong")
    told = as_json.json
    assert as_json.code == 1
    assert (told["outcome"], told["error"]["code"]) == ("failed", "key")
    assert told["error"]["remedy"]
    server.answers(says(text("Hello, Ada.")))
    asking("run", "Hi.", "-c", "c1").done()
    (message,) = server.requests[-1]["messages"]
    assert [block["text"] for block in message["content"]] == [
        "My name is Ada.",
        "I am Ada.",
        "Hi.",
    ]


def test_an_unreachable_provider_fails_with_a_remedy(unreachable: Future[Ended]) -> None:
    failed = unreachable.result(COMMAND_S_MAX)
    failed.refused("error (unreachable)", "→ check the network and ANTHROPIC_BASE_URL")
    assert failed.out == ""


def test_an_invalid_provider_address_fails_with_a_remedy(born: Terminal) -> None:
    failed = born("run", "Hi", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="nowhere")
    failed.refused("error (refused)", "'nowhere'", "ANTHROPIC_BASE_URL")


def test_an_unknown_model_fails_with_a_remedy(asking: Terminal, server: MessagesServer) -> None:
    server.answers(Refusal(404, "not_found_error", "model: nix"))
    asking("run", "Hi", HARNESS_MODEL="nix").refused("error (refused)", "model: nix", "→ check")
