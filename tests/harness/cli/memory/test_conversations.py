"""`harness conversations local`, as a process on a home with transcripts of other agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal
from tests.harness.memorize.local.transcripts import (
    OTHER,
    THREAD,
    codex_said,
    meta,
    rollout,
    write,
)


@pytest.fixture
def person(born: Terminal, tmp_path: Path) -> Terminal:
    """A person with one conversation of Codex."""
    key = "ghp_" + "aB3" * 12
    said = [codex_said("user", "The staging server is heron."), codex_said("assistant", f"{key}!")]
    write(rollout(tmp_path / "codex", THREAD), meta(), *said, {"type": "novelty"})
    own = {"HOME": str(tmp_path / "person"), "CODEX_HOME": str(tmp_path / "codex")}
    return Terminal(born.home, {**own, "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})


def test_conversations_of_other_agents_are_listed_and_shown(person: Terminal) -> None:
    listed = person("conversations", "local", "list", "--json").done().json["conversations"]
    assert [(one["id"], one["provider"], one["title"]) for one in listed] == [
        (THREAD, "codex", "The staging server is heron.")
    ]
    assert THREAD in person("conversations", "local", "list").done().out
    shown = person("conversations", "local", "show", "019b").done()
    assert shown.out.splitlines()[:2] == ["1 user 2026-11-19 08:00", "The staging server is heron."]
    assert "[redacted: GitHub token]!" in shown.out
    assert "1 lines were skipped" in shown.stderr
    read = person("conversations", "local", "show", THREAD, "--json").done().json
    assert [one["position"] for one in read["messages"]] == [1, 2]
    assert read["skipped"]["unknown"] == {"novelty": 1}


def test_an_ambiguous_and_an_unknown_id_are_named(person: Terminal, tmp_path: Path) -> None:
    write(rollout(tmp_path / "codex", OTHER), meta(OTHER), codex_said("user", "another"))
    person("conversations", "local", "show", "019b").refused("several", THREAD, OTHER)
    person("conversations", "local", "show", "nobody").refused("there is no local conversation")


def test_the_setting_names_further_directories(person: Terminal, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(rollout(elsewhere, OTHER), meta(OTHER), codex_said("user", "far away"))
    listed = person(
        "conversations", "local", "list", "-q", "FAR", "--json", HARNESS_TRANSCRIPTS=str(elsewhere)
    )
    assert [one["id"] for one in listed.done().json["conversations"]] == [OTHER]
