"""The reader of Codex's rollouts.

Both modes of Codex write what is said as `response_item`; the events beside them say it again and are not
counted. A rollback takes the last turns out. A rollout may begin with the beginning of another file, up to a
byte; its history is that beginning and its own lines. What Codex itself puts into a person's place, and what
developers say, is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.memorize.local.found_file import FoundFile, files_below
from harness.memorize.local.local_message import (
    KeptTexts,
    LocalConversation,
    LocalTranscript,
    MessagePlace,
    SaidPart,
    TranscriptPart,
    shown_title,
    stamp_at,
)
from harness.memorize.local.transcript_file import (
    SkippedLines,
    number_in,
    object_in,
    objects_in,
    opened_transcript,
    read_lines,
    text_in,
)
from workspaces.errors import Unavailable

HEAD_LINES_MAX = 60
"""Lines at the beginning of a file in which a list looks for the title."""

PREFIXES_MAX = 32
"""Files of which one may be the beginning of the next."""

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(
    rf"rollout-\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d-({_UUID})(?:_({_UUID}))?\.jsonl(?:\.zst)?"
)

_LINE_TYPES = {
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "security_risk_score",
}

_NOT_A_PERSON = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<user_instructions>",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<codex_internal_context",
    "<goal_context>",
    "<recommended_plugins>",
    "<hook_prompt",
)
_REQUEST = "## My request for Codex:"

_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
_KNOWN_ITEMS = {
    "message",
    "agent_message",
    "reasoning",
    "web_search_call",
    "image_generation_call",
    "compaction",
    "context_compaction",
    "ghost_snapshot",
    "other",
}


@dataclass(frozen=True, slots=True)
class Rollout:
    """A file of Codex, by the ids in its name."""

    found: FoundFile
    thread: str
    id: str
    """The rollout's own id; the thread's for its first file."""
    is_archived: bool

    @property
    def file(self) -> Path:
        return self.found.file


def rollouts(root: Path) -> list[Rollout]:
    """Return the rollouts below a Codex directory. Of a plain file and its compressed copy, the plain one."""
    found: dict[str, Rollout] = {}
    for folder, is_archived in (("sessions", False), ("archived_sessions", True)):
        for one in files_below(f"{root}/{folder}"):
            name = one.name
            if (ids := _NAME.fullmatch(name)) is not None:
                plain = name.removesuffix(".zst")
                rollout = Rollout(one, ids[1], ids[2] or ids[1], is_archived)
                if plain not in found or name == plain:
                    found[plain] = rollout
    return list(found.values())


def thread_files(found: Iterable[Rollout]) -> dict[str, Rollout]:
    """Return the newest file of each thread."""
    newest: dict[str, Rollout] = {}
    for rollout in found:
        known = newest.get(rollout.thread)
        if known is None or rollout.found.name > known.found.name:
            newest[rollout.thread] = rollout
    return newest


def thread_names(root: Path) -> dict[str, str]:
    """Return the names that threads were given; the newest of each."""
    file, names = root / "session_index.jsonl", dict[str, str]()
    if not file.is_file():
        return names
    with opened_transcript(file) as opened:
        for line in read_lines(opened, file, SkippedLines()):
            thread, name = text_in(line.event, "id"), text_in(line.event, "thread_name")
            if thread is not None and name is not None:
                names[thread] = name
    return names


def conversation(rollout: Rollout, name: str | None) -> LocalConversation:
    """Describe a thread for a list. Only the beginning of the file is read.

    Raises: Unavailable.
    """
    meta: Mapping[str, Any] = {}
    first = ""
    file = rollout.file
    with opened_transcript(file) as opened:
        for line in read_lines(opened, file, SkippedLines()):
            if line.event.get("type") == "session_meta" and not meta:
                meta = object_in(line.event, "payload")
            said = said_part(line.event)
            if said is not None and said.role == "user" and said.type == "message":
                first = said.text
            if first or line.index >= HEAD_LINES_MAX:
                break
    return LocalConversation(
        rollout.thread,
        "codex",
        shown_title(name or first),
        text_in(meta, "cwd"),
        updated_at=stamp_at(rollout.found.mtime_ns / 1e9),
        parent=text_in(meta, "parent_thread_id"),
        is_archived=rollout.is_archived,
    )


def read_thread(rollout: Rollout, known: Mapping[str, Rollout], kept: KeptTexts) -> LocalTranscript:
    """Return the history of a thread. `known` are the rollouts by their ids; `kept` has room for texts.

    Raises: Unavailable.
    """
    parts, skipped = _parts(rollout, known), SkippedLines()
    places: list[tuple[MessagePlace, bool]] = []
    read: list[TranscriptPart] = []
    before = 0
    for file, until in parts:
        read.append(TranscriptPart(file, before, until))
        last = -1
        with opened_transcript(file) as opened:
            for line in read_lines(opened, file, skipped, until=until):
                last = line.index
                said = said_part(line.event)
                if said is not None:
                    text = kept.keep(said)
                    place = MessagePlace(file, line.offset, before + line.index, text)
                    places.append((place, said.role == "user" and said.type == "message"))
                else:
                    _take_back(line.event, places, skipped)
        before += last + 1
    return LocalTranscript(tuple(place for place, _ in places), skipped, tuple(read))


def said_part(event: Mapping[str, Any]) -> SaidPart | None:
    """Read what a line says. Return None if that is nothing that is shown."""
    if event.get("type") != "response_item":
        return None
    payload = object_in(event, "payload")
    kind, at = payload.get("type"), text_in(event, "timestamp")
    uuid = text_in(payload, "id") or text_in(payload, "call_id")
    if kind == "message":
        return _said(payload, at)
    if kind == "agent_message":
        text = text_in(payload, "content") or _content(payload.get("content"))
        return SaidPart("assistant", "message", uuid, at, text) if text else None
    if kind in _CALLS:
        return SaidPart("assistant", "tool_call", uuid, at, _call(payload))
    if kind in _OUTPUTS:
        output = text_in(payload, "output")
        text = _content(payload.get("output")) if output is None else output
        return SaidPart("user", "tool_result", uuid, at, text)
    return None


def _take_back(
    event: Mapping[str, Any], places: list[tuple[MessagePlace, bool]], skipped: SkippedLines
) -> None:
    """Take out what a line takes back, and count unknown ones. The flag marks a person's words."""
    kind, payload = event.get("type"), object_in(event, "payload")
    if kind not in _LINE_TYPES:
        skipped.unknown[str(kind)] += 1
    elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
        _roll_back(places, number_in(payload, "num_turns") or 0)
    elif kind == "response_item" and payload.get("type") not in _KNOWN_ITEMS:
        skipped.unknown[f"response_item.{payload.get('type')}"] += 1


def _roll_back(places: list[tuple[MessagePlace, bool]], turns: int) -> None:
    while turns > 0 and places:
        _, is_person = places.pop()
        turns -= is_person


def _parts(rollout: Rollout, known: Mapping[str, Rollout]) -> list[tuple[Path, int | None]]:
    """Return the files of a history in order, each with the byte at which it ends for this history."""
    parts: list[tuple[Path, int | None]] = [(rollout.file, None)]
    seen = {rollout.id}
    while (base := _base(parts[0][0])) is not None:
        prefix = known.get(text_in(base, "thread_id") or "")
        if prefix is None or prefix.id in seen or len(seen) >= PREFIXES_MAX:
            reason = "its beginning lies in another file, which is missing"
            raise Unavailable(f"conversation {rollout.thread}", reason)
        seen.add(prefix.id)
        parts.insert(0, (prefix.file, number_in(base, "end_byte_offset")))
    return parts


def _base(file: Path) -> Mapping[str, Any] | None:
    """Read the reference to its prefix from the first description of a file."""
    with opened_transcript(file) as opened:
        for line in read_lines(opened, file, SkippedLines()):
            if line.event.get("type") == "session_meta":
                return object_in(object_in(line.event, "payload"), "history_base") or None
            if line.index >= HEAD_LINES_MAX:
                break
    return None


def _said(payload: Mapping[str, Any], at: str | None) -> SaidPart | None:
    role, text = payload.get("role"), _content(payload.get("content"))
    if role == "assistant" and text:
        return SaidPart("assistant", "message", text_in(payload, "id"), at, text)
    if role != "user" or text.lstrip().startswith(_NOT_A_PERSON):
        return None
    if _REQUEST in text:  # an editor puts what is open before it
        text = text.partition(_REQUEST)[2].strip()
    return SaidPart("user", "message", text_in(payload, "id"), at, text) if text.strip() else None


def _content(value: object) -> str:
    return "\n\n".join(_texts(value))


def _texts(value: object) -> Iterator[str]:
    for block in objects_in(value):
        if (text := text_in(block, "text")) is not None:
            yield text
        elif block.get("type") == "input_image":
            yield "[image]"


def _call(payload: Mapping[str, Any]) -> str:
    name = text_in(payload, "name") or str(payload.get("type"))
    asked = text_in(payload, "arguments") or text_in(payload, "input")
    if asked is None:
        asked = json.dumps(payload.get("action"), ensure_ascii=False)
    return f"{name} {asked}"
