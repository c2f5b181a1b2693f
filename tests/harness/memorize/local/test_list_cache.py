"""What a list has read stays for the next process, and never longer than the file stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.memorize.local.local_conversations import LocalConversations, transcript_roots
from tests.harness.memorize.local.transcripts import (
    OTHER,
    THREAD,
    codex_said,
    meta,
    rollout,
    write,
)


@pytest.fixture
def person(tmp_path: Path) -> Path:
    file = rollout(tmp_path / ".codex", THREAD)
    write(file, meta(), codex_said("user", "about herons"))
    os.utime(file, (1_000, 1_000))
    return tmp_path


def titles(person: Path) -> list[str]:
    """The titles as a new process lists them."""
    cache = person / "cache.json"
    local = LocalConversations(transcript_roots(person), cache=cache)
    return [one.title for one in local.list()]


def rewritten(file: Path, *, at: int) -> None:
    """Give a file other bytes of the same number."""
    file.write_bytes(b"x" * file.stat().st_size)
    os.utime(file, (at, at))


def test_a_new_process_reads_only_what_has_changed(person: Path) -> None:
    assert titles(person) == ["about herons"]
    file = rollout(person / ".codex", THREAD)
    rewritten(file, at=1_000)  # as if it had not changed
    assert titles(person) == ["about herons"]
    rewritten(file, at=2_000)
    assert titles(person) == [""]


def test_a_file_that_is_gone_leaves_the_cache(person: Path) -> None:
    write(rollout(person / ".codex", OTHER), meta(OTHER), codex_said("user", "another"))
    assert sorted(titles(person)) == ["about herons", "another"]
    rollout(person / ".codex", OTHER).unlink()
    assert titles(person) == ["about herons"]
    assert len(json.loads((person / "cache.json").read_bytes())["files"]) == 1


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"format": 0, "files": {}}', '{"format": 1, "files": 7}']
)
def test_a_damaged_cache_counts_as_empty(person: Path, damaged: str) -> None:
    titles(person)
    (person / "cache.json").write_text(damaged)
    assert titles(person) == ["about herons"]


def test_a_damaged_entry_is_read_again(person: Path) -> None:
    titles(person)
    cache = person / "cache.json"
    told = json.loads(cache.read_bytes())
    for key, entry in told["files"].items():
        told["files"][key] = entry[:4]
    cache.write_text(json.dumps(told))
    assert titles(person) == ["about herons"]


def test_the_cache_is_its_owners_alone(person: Path) -> None:
    titles(person)
    assert (person / "cache.json").stat().st_mode & 0o777 == 0o600
