"""What conversations of other agents cost: their list, the first time and again, and a memory of a long one.

python -m benchmarks.memorize

The list is compared with reading the same files from beginning to end, the memory with reading and
compressing its transcript.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import zstandard

from benchmarks.ratio import compare, report
from harness import Harness
from harness.memorize.archive.snapshot import LEVEL
from harness.memorize.local.local_conversations import LocalConversations, transcript_roots
from harness.memorize.memorize_request import GroundingRequest, MemorizeRequest
from harness.sandboxes.none import NoSandbox

TRANSCRIPTS = 2_000
TRANSCRIPT_BYTES = 512 * 1024
LONG_BYTES = 50_000_000
WORDS = 5_000


def main() -> None:
    chance = random.Random(7)
    words = [
        "".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 9)))
        for _ in range(WORDS)
    ]
    with tempfile.TemporaryDirectory() as directory:
        person = Path(directory)
        _listing(person / "many", chance, words)
        _memorizing(person / "long", chance, words)


def _listing(person: Path, chance: random.Random, words: list[str]) -> None:
    body = _lines(chance, words, TRANSCRIPT_BYTES)
    files: list[Path] = []
    for number in range(TRANSCRIPTS):
        if number % 2:
            thread = f"019b0000-0000-7000-8000-{number:012x}"
            day = f"{number % 28 + 1:02}"
            file = person / f".codex/sessions/2026/11/{day}"
            file = file / f"rollout-2026-11-{day}T08-00-00-{thread}.jsonl"
            head = _codex_head(thread, number)
        else:
            file = person / f".claude/projects/-home-me-{number % 40}/session-{number:06}.jsonl"
            head = _claude_head(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(head + body)
        files.append(file)

    def read() -> None:
        for file in files:
            with file.open("rb", buffering=0) as opened:
                while opened.read(2**20):
                    pass

    roots = transcript_roots(person)
    caches = count()
    known = person / "known.json"

    def first() -> None:
        cache = person / f"cache-{next(caches)}.json"
        assert len(LocalConversations(roots, cache=cache).list(limit=None)) == TRANSCRIPTS

    def again() -> None:
        assert len(LocalConversations(roots, cache=known).list(limit=None)) == TRANSCRIPTS

    again()
    name = f"list of {TRANSCRIPTS:,} transcripts"
    for said, timer in (("", time.perf_counter), (", by processor time", time.process_time)):
        ratio = compare(first, read, rounds=5, timer=timer)
        report(f"{name}, first: read them{said}", *ratio, at_most=1.5)
        ratio = compare(again, read, rounds=5, timer=timer)
        report(f"{name}, again in a new process: read them{said}", *ratio, at_most=0.05)


def _memorizing(person: Path, chance: random.Random, words: list[str]) -> None:
    thread = "019b0000-0000-7000-8000-0000000000ff"
    file = person / f".codex/sessions/2026/11/19/rollout-2026-11-19T08-00-00-{thread}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(_codex_head(thread, 1) + _lines(chance, words, LONG_BYTES))
    local = LocalConversations(transcript_roots(person))
    keys = count()

    def compressed() -> None:
        data = file.read_bytes()
        zstandard.ZstdCompressor(level=LEVEL).compress(data)

    with Harness.open(person / "home", sandbox=NoSandbox("not here")) as harness:
        memorizer = harness.rooms.memorizer
        by = harness.rooms.principal.author("memorize")

        def memorize() -> None:
            request = MemorizeRequest(
                conversation_id=thread,
                content="It is so.",
                memory_key=f"key {next(keys)}",
                groundings=[GroundingRequest(quote="conversation number 1")],
            )
            assert memorizer.memorize(request, by=by, local=local).status == "created"

        name = f"memorize with a transcript of {LONG_BYTES // 10**6} MB: read and compress it"
        report(name, *compare(memorize, compressed, rounds=3), at_most=1.3)


def _codex_head(thread: str, number: int) -> bytes:
    meta = {"id": thread, "cwd": f"/home/me/{number % 40}", "source": "cli"}
    return _line(_codex("session_meta", meta)) + _line(
        _said("user", f"conversation number {number}")
    )


def _claude_head(number: int) -> bytes:
    return _line(
        {
            "type": "user",
            "uuid": f"u-{number}",
            "parentUuid": None,
            "cwd": f"/home/me/{number % 40}",
            "message": {"role": "user", "content": f"conversation number {number}"},
        }
    )


def _lines(chance: random.Random, words: list[str], size: int) -> bytes:
    lines: list[bytes] = []
    while size > 0:
        text = " ".join(chance.choice(words) for _ in range(300))
        lines.append(_line(_said(chance.choice(["user", "assistant"]), text)))
        size -= len(lines[-1])
    return b"".join(lines)


def _said(role: str, text: str) -> dict[str, object]:
    content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
    return _codex("response_item", {"type": "message", "role": role, "content": content})


def _codex(kind: str, payload: Mapping[str, object]) -> dict[str, object]:
    return {"timestamp": "2026-11-19T08:00:00.000Z", "type": kind, "payload": payload}


def _line(event: dict[str, object]) -> bytes:
    return json.dumps(event).encode() + b"\n"


if __name__ == "__main__":
    main()
