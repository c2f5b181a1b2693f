"""Export a conversation as JSON lines, and import it again.

    {"format": 1, "conversation": {id, key, agentId, userId, createdAt}}
    {"session": {first, id, startedAt, windowFrom?, summary?, skipped?}}              each
    {"entry": 1, at, turn, event?, message, usage?, cut?, revisions?, asks?, allowed?, system?,
        kind?, covers?, whole?}                                     each, numbered without gaps

`whole` holds the full texts of results, by the ids of their calls, of which the entry has only head and tail.

An import is untrusted text: every line is checked before it is stored. The conversation gets new ids and
belongs to the user who imports it. It has read no file yet: files read elsewhere were not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from harness.context.repair import sound_json
from harness.conversations.conversation import Conversation
from harness.messages.message import check_part
from harness.runtime.strict_json import parse_json
from harness.transcripts.session import Session, new_session
from harness.transcripts.transcript import Carried, Entry, Transcript, entry_of
from workspaces.errors import Refused
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, moment_of, stamp_of
from workspaces.validation import StrictModel, parse

FORMAT = 1

_Word = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(ge=0)]


class _Header(StrictModel):
    format: int
    conversation: dict[str, Any]


class _Session(StrictModel):
    first: Annotated[int, Field(ge=1)]
    id: _Word
    started_at: _Word
    window_from: Annotated[int, Field(ge=1)] | None = None
    summary: Annotated[int, Field(ge=1)] | None = None
    failed_at: _Count = 0
    skipped: list[Annotated[list[_Count], Field(min_length=2, max_length=2)]] = Field(default=[])


class _SessionLine(StrictModel):
    session: _Session


class _Message(StrictModel):
    role: Literal["user", "assistant"]
    parts: list[dict[str, Any]]
    """The message's parts; empty for an entry that only approves calls."""


class _Usage(StrictModel):
    input: _Count
    output: _Count
    cache_read: _Count
    cache_write: _Count
    cache_write_hour: _Count = 0


class _Revision(StrictModel):
    workspace: _Word
    revision: _Word


class _Asked(StrictModel):
    call: _Word
    for_: Annotated[Literal["approval", "result"], Field(alias="for")]
    workspace: _Word | None = None


class _Entry(StrictModel):
    entry: int
    at: _Word
    turn: _Word
    event: _Word | None = None
    message: _Message
    usage: _Usage | None = None
    cut: bool = False
    revisions: list[_Revision] = Field(default=[])
    asks: list[_Asked] = Field(default=[])
    allowed: list[_Word] = Field(default=[])
    system: list[str] = Field(default=[])
    kind: Literal["said", "flush", "summary"] = "said"
    covers: _Count | None = None
    whole: dict[str, str] = Field(default={})


def exported(
    conversation: Conversation, transcript: Transcript, entries: Iterable[Carried]
) -> Iterator[JsonObject]:
    """Yield the lines in order."""
    yield {"format": FORMAT, "conversation": conversation.as_json()}
    for session in transcript.sessions():
        yield {"session": {"first": session.first, **session.as_json()}}
    for entry, whole in entries:
        yield {**entry_line(entry), **({"whole": dict(whole)} if whole else {})}


def entry_line(entry: Entry) -> JsonObject:
    """Return the entry as users see it: without versions of files, and without hidden reminders."""
    value = entry.as_json()
    value.pop("seen", None)
    value.pop("reminder", None)
    return {"entry": entry.number, **value}


def imported(lines: Iterable[str]) -> tuple[JsonObject, list[Session], Iterator[Carried]]:
    """Return the conversation's header, its sessions, and its entries as an iterator over the lines.

    Raises: Refused, naming the invalid line; for an entry while the iterator reads it.
    """
    objects = _objects(lines)
    first = next(objects, None)
    if first is None:
        raise Refused("line 1", "", "must be the header of an exported conversation")
    header = parse(_Header, first[1], within="line 1")
    if header.format != FORMAT:
        raise Refused("line 1.format", header.format, f"must be {FORMAT}")
    sessions: list[Session] = []
    rest: tuple[int, object] | None = None
    for number, data in objects:
        if not isinstance(data, dict) or "session" not in data:
            rest = (number, cast(object, data))
            break
        sessions.append(_session(number, cast(JsonObject, data), sessions))
    if not sessions:
        raise Refused("line 2", None, "must be the first session")
    return header.conversation, sessions, _entries(chain([rest] if rest else [], objects), sessions)


def _entries(lines: Iterable[tuple[int, object]], sessions: list[Session]) -> Iterator[Carried]:
    summarised = {one.summary: one for one in sessions if one.summary is not None}
    count = 0
    for count, (number, data) in enumerate(lines, start=1):
        entry, whole = _entry(number, data, count)
        session = summarised.pop(count, None)
        if session is not None and not _stands_for_the_past_of(session, entry):
            covered = session.window_from - 1
            rule = f"must be a summary of all entries up to {covered}, as its session says"
            raise Refused(f"line {number}", entry.kind, rule)
        yield Carried(entry, whole)
    if sessions[-1].first > count + 1:
        raise Refused(
            "session", sessions[-1].first, f"must not begin behind the last entry, {count}"
        )
    for missing in summarised:
        raise Refused(
            "session", missing, "must be an entry of the export: it is the session's summary"
        )


def _stands_for_the_past_of(session: Session, entry: Entry) -> bool:
    is_summary = entry.kind == "summary" and bool(entry.message.text.strip())
    return is_summary and entry.covers == session.window_from - 1 < entry.number


def _objects(lines: Iterable[str]) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        data = parse_json(line, within=f"line {number}")
        if sound_json(data) != data:
            raise Refused(f"line {number}", line, "contains half of a surrogate pair")
        yield number, data


def _session(number: int, data: object, before: list[Session]) -> Session:
    line = parse(_SessionLine, data, within=f"line {number}").session
    rule = None
    if line.first != 1 and not before:
        rule = "must be 1 in the first session"
    elif before and line.first <= before[-1].first:
        rule = "must be larger than in the session before"
    if rule:
        raise Refused(f"line {number}.session.first", line.first, rule)
    window_from = line.window_from or line.first
    if window_from < line.first:
        raise Refused(
            f"line {number}.session.windowFrom",
            window_from,
            "must not be before the session's `first`",
        )
    if window_from > line.first and line.summary is None:
        rule = "leaves out earlier entries, so the session needs a `summary` of them"
        raise Refused(f"line {number}.session.windowFrom", window_from, rule)
    session = new_session(line.first, _stamp(f"line {number}.session.startedAt", line.started_at))
    skipped = tuple((one[0], one[1]) for one in line.skipped)
    return replace(session, window_from=window_from, summary=line.summary, skipped=skipped)


def _entry(number: int, data: object, expected: int) -> Carried:
    within = f"line {number}"
    line = parse(_Entry, data, within=within)
    if line.entry != expected:
        raise Refused(f"{within}.entry", line.entry, f"must be {expected}: no entry may be missing")
    _stamp(f"{within}.at", line.at)
    if not line.message.parts and not line.allowed:
        raise Refused(f"{within}.message.parts", [], "must not be empty")
    for position, part in enumerate(line.message.parts):
        check_part(f"{within}.message.parts.{position}", part)
    return Carried(entry_of(expected, cast(JsonObject, data)), line.whole)


def _stamp(field: str, text: str) -> Stamp:
    try:
        is_stamp = stamp_of(moment_of(Stamp(text))) == text
    except ValueError:
        is_stamp = False
    if not is_stamp:
        raise Refused(field, text, "must be a time like 2026-11-18T14:03:18.875130Z")
    return Stamp(text)
