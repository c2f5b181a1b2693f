"""`harness memorize`, `why`, `check` and `resource`, as processes on a home with a transcript of Codex."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli.terminal import Terminal
from tests.harness.memorize.local.transcripts import THREAD, codex_said, meta, rollout, write

FACT = "Staging is heron."


@pytest.fixture
def person(born: Terminal, tmp_path: Path) -> Terminal:
    said = [
        codex_said("user", "The staging server\nis called heron."),
        codex_said("assistant", "noted"),
    ]
    write(rollout(tmp_path / "codex", THREAD), meta(), *said)
    own = {"HOME": str(tmp_path / "person"), "CODEX_HOME": str(tmp_path / "codex")}
    return Terminal(born.home, {**own, "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})


def states(person: Terminal, code: int) -> dict[str, Any]:
    checked = person("check", "--json")
    assert checked.code == code, checked.stderr
    return {name: count for name, count in checked.json["counts"].items() if count}


def test_a_memory_is_proved_until_its_text_or_its_proof_changes(person: Terminal) -> None:
    told = person(
        "memorize", THREAD, FACT, "-q", "server is called heron", "--key", "staging", "-t", "Ops"
    ).done()
    assert told.out == "Created memorize:staging in notes.\n"
    why = person("why", "memorize:staging").done().out
    assert "fresh, from codex" in why
    assert "1 user 2026-11-19 08:00\nThe staging server\nis called heron." in why
    assert states(person, 0) == {"fresh": 1}

    workspace = Path(person("path", "notes").done().out.strip())
    (file,) = (workspace / "facts").glob("*.md")
    whole = file.read_text()
    file.write_text(whole.replace(FACT, "Staging is goose."))
    assert states(person, 1) == {"drifted": 1}
    file.write_text(whole.replace("quote: server is called heron", "quote: '[redacted]'"))
    assert states(person, 1) == {"drifted": 1}
    file.write_text(whole)
    assert states(person, 0) == {"fresh": 1}
    person("conversations", "rm", THREAD).done()
    gone = person("check")
    assert (gone.code, "orphaned" in gone.out) == (1, True)


def test_memories_are_listed_shown_and_forgotten(person: Terminal) -> None:
    made = person("memorize", THREAD[:13], FACT, "--at", "1", "-t", "Ops", "--json").done().json
    assert made["status"] == "created"
    assert made["memory"]["groundings"][0]["message_position"] == 1
    again = person("memorize", THREAD[:13], FACT, "--at", "1", "-t", "Ops").done()
    assert again.out.startswith("Unchanged ")
    refused = person("memorize", THREAD, FACT, "-q", "goose")
    assert (refused.code != 0, "groundings.0.quote" in refused.stderr) == (True, True)
    listed = person("resource", "list", "-t", "ops", "--json").done().json
    assert listed["meta"]["total"] == 1
    memory = made["memory"]["id"]
    assert person("resource", "get", memory).done().json["content"] == FACT
    assert THREAD in person("conversations", "list").done().out
    assert "noted" in person("conversations", "show", THREAD).done().out
    person("resource", "delete", memory).done()
    assert person("resource", "list", "--json").done().json["data"] == []


def test_the_schema_is_that_of_the_validation(person: Terminal) -> None:
    schema = person("resource", "schema", "memorize").done().json
    assert schema["required"] == ["conversation_id", "content"]
    assert schema["properties"]["content"]["maxLength"] == 2000
    assert schema["additionalProperties"] is False
