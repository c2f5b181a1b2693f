"""The reader of Claude Code's transcripts.

A transcript is a tree: a rewind makes a sibling, and a compaction begins a new root that names its logical
parent. The conversation is the path from the newest message back to the root. Two kinds of lines beside the
path belong to it: further blocks of an answer on the path, and the results of its tool calls. A line that a
resumed session copied is counted once. Lines of subagents are conversations of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from harness.memorize.local.found_file import FoundFile, found_files, found_folders
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
    object_in,
    objects_in,
    opened_transcript,
    parsed_event,
    read_lines,
    text_in,
)

HEAD_LINES_MAX = 60
"""Lines at the beginning of a file in which a list looks for the title."""

TAIL_BYTES = 64 * 2**10
"""Bytes at the end of a file in which a list looks for a later title."""

_NODES = {"user", "assistant", "system", "attachment", "progress"}
_KNOWN = {
    "summary",
    "ai-title",
    "custom-title",
    "queue-operation",
    "file-history-snapshot",
    "permission-mode",
    "last-prompt",
    "agent-name",
    "agent-setting",
    "pr-link",
    "bridge-session",
    "worktree-state",
}
_NOT_A_PERSON = (
    "<command-name>",
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<task-notification>",
    "<system-reminder>",
    "[Request interrupted",
)


@dataclass(frozen=True, slots=True)
class SessionFile:
    found: FoundFile
    id: str
    parent: str | None = None
    """The session whose subagent this is, if the path says it."""
    is_subagent: bool = False

    @property
    def file(self) -> Path:
        return self.found.file


@dataclass(frozen=True, slots=True)
class _Node:
    """A line in the tree."""

    place: MessagePlace
    parent: str | None
    answer: str | None
    """The id of the provider's answer of which this line is a block."""
    called_by: str | None
    """The line with the tool call that this line answers."""
    is_shown: bool
    can_be_newest: bool


def session_files(root: Path) -> Iterator[SessionFile]:
    """Yield the transcripts below a directory of Claude Code, in the order of their names."""
    for project in found_folders(f"{root}/projects"):
        for found in found_files(project):
            stem, dot, ending = found.name.rpartition(".")
            if (
                dot and ending == "jsonl"
            ):  # older versions kept those of subagents beside the sessions
                yield SessionFile(found, stem, is_subagent=stem.startswith("agent-"))
        for folder in found_folders(project):
            for found in found_files(f"{folder}/subagents"):
                name = found.name
                if name.startswith("agent-") and name.endswith(".jsonl"):
                    parent = folder.rpartition("/")[2]
                    yield SessionFile(found, name.removesuffix(".jsonl"), parent, is_subagent=True)


def conversation(session: SessionFile) -> LocalConversation:
    """Describe a session for a list. Only beginning and end of the file are read.

    Raises: Unavailable.
    """
    project = first = None
    file, parent = session.file, session.parent
    with opened_transcript(file) as opened:
        for line in read_lines(opened, file, SkippedLines()):
            project = project or text_in(line.event, "cwd")
            said = said_part(line.event, sidechains=session.is_subagent)
            if said is not None and said.role == "user" and said.type == "message":
                first = said.text
            if (first and project) or line.index >= HEAD_LINES_MAX:
                break
        title = _late_title(opened, session.found.size)
    if session.is_subagent and parent is None:
        parent = _session_of(file)
    return LocalConversation(
        session.id,
        "claude-code",
        shown_title(title or first or ""),
        project,
        updated_at=stamp_at(session.found.mtime_ns / 1e9),
        parent=parent,
    )


def read_session(session: SessionFile, kept: KeptTexts) -> LocalTranscript:
    """Return the messages on the active branch of a session. `kept` has room for texts.

    Raises: Unavailable.
    """
    nodes: dict[str, _Node] = {}
    skipped = SkippedLines()
    sidechains = session.is_subagent
    with opened_transcript(session.file) as opened:
        for line in read_lines(opened, session.file, skipped):
            kind, uuid = line.event.get("type"), text_in(line.event, "uuid")
            if kind not in _NODES:
                if kind not in _KNOWN:
                    skipped.unknown[str(kind)] += 1
            elif uuid is not None and uuid not in nodes:
                said = said_part(line.event, sidechains=sidechains)
                text = None if said is None else kept.keep(said)
                place = MessagePlace(session.file, line.offset, line.index, text)
                nodes[uuid] = _node(line.event, place, sidechains, is_shown=said is not None)
    shown = [node.place for node in _active(nodes) if node.is_shown]
    parts = (TranscriptPart(session.file, 0),)
    return LocalTranscript(tuple(sorted(shown, key=_raw_index)), skipped, parts)


def said_part(event: Mapping[str, Any], *, sidechains: bool = False) -> SaidPart | None:
    """Read what a line says. Return None if that is nothing that is shown."""
    if event.get("type") not in {"user", "assistant"} or (
        event.get("isSidechain") is True and not sidechains
    ):
        return None
    uuid, at = text_in(event, "uuid"), text_in(event, "timestamp")
    content = object_in(event, "message").get("content")
    blocks = objects_in(content)
    if event.get("type") == "assistant":
        calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
        if calls:
            return SaidPart("assistant", "tool_call", uuid, at, "\n".join(calls))
        text = content if isinstance(content, str) else _texts(blocks)
        return SaidPart("assistant", "message", uuid, at, text) if text.strip() else None
    results = [_result(block) for block in blocks if block.get("type") == "tool_result"]
    if results:
        return SaidPart("user", "tool_result", uuid, at, "\n\n".join(results))
    text = content if isinstance(content, str) else _texts(blocks)
    if not text.strip() or not _is_person(event, text):
        return None
    return SaidPart("user", "message", uuid, at, text)


def _is_person(event: Mapping[str, Any], text: str) -> bool:
    if event.get("isMeta") is True or event.get("isCompactSummary") is True:
        return False
    if object_in(event, "origin").get("kind") is not None:
        return False
    return not text.lstrip().startswith(_NOT_A_PERSON)


def _node(
    event: Mapping[str, Any], place: MessagePlace, sidechains: bool, *, is_shown: bool
) -> _Node:
    kind = event.get("type")
    is_main = sidechains or event.get("isSidechain") is not True
    return _Node(
        place,
        text_in(event, "parentUuid") or text_in(event, "logicalParentUuid"),
        text_in(event, "message", "id") if kind == "assistant" else None,
        text_in(event, "sourceToolAssistantUUID"),
        is_shown=is_shown,
        can_be_newest=is_main and kind in {"user", "assistant"},
    )


def _active(nodes: dict[str, _Node]) -> Iterable[_Node]:
    """Return the nodes on the path from the newest message to the root, with what belongs to them."""
    newest = next((uuid for uuid in reversed(nodes) if nodes[uuid].can_be_newest), None)
    path: set[str] = set()
    while newest is not None and newest in nodes and newest not in path:
        path.add(newest)
        newest = nodes[newest].parent
    answers = {nodes[uuid].answer for uuid in path} - {None}
    path |= {uuid for uuid, node in nodes.items() if node.answer in answers}
    path |= {uuid for uuid, node in nodes.items() if node.called_by in path}
    return [nodes[uuid] for uuid in path]


def _late_title(opened: BinaryIO, size: int) -> str | None:
    """Return the newest title near the end of a file; a person's own before a made one."""
    opened.seek(max(0, size - TAIL_BYTES))
    tail = opened.read(TAIL_BYTES)
    titles: dict[str, str] = {}
    for line in tail.splitlines() if b"-title" in tail else ():
        if b"-title" in line and (event := parsed_event(line)) is not None:
            for kind, name in (("custom-title", "customTitle"), ("ai-title", "aiTitle")):
                title = text_in(event, name)
                if event.get("type") == kind and title is not None:
                    titles[kind] = title
    return titles.get("custom-title") or titles.get("ai-title")


def _session_of(file: Path) -> str:
    """Return the session to which a subagent's file beside it belongs."""
    with opened_transcript(file) as opened:
        for line in read_lines(opened, file, SkippedLines()):
            if (session := text_in(line.event, "sessionId")) is not None:
                return session
            if line.index >= HEAD_LINES_MAX:
                break
    return ""


def _raw_index(place: MessagePlace) -> int:
    return place.raw_index


def _texts(blocks: Iterable[Mapping[str, Any]]) -> str:
    shown = (text_in(one, "text") for one in blocks if one.get("type") == "text")
    return "\n\n".join(text for text in shown if text)


def _call(block: Mapping[str, Any]) -> str:
    return f"{text_in(block, 'name')} {json.dumps(block.get('input'), ensure_ascii=False)}"


def _result(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    return content if isinstance(content, str) else _texts(objects_in(content))
