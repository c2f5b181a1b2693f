"""The text of a conversation that no pass has read yet: what was said, and nothing else.

Tool calls, their results, reminders and the harness's own entries are left out. The newest entries are read
first, and reading ends when there is enough. So a pass over a long conversation costs no more than one over a
short one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry, Transcript

CHARACTERS_MIN = 200
"""Code points below which a text is not worth a request."""

CHARACTERS_MAX = 12_000
"""Code points that one pass reads: the newest of a longer text."""

PAGE = 50

FEW = 20
"""Entries that are looked at before a job is enqueued. More short ones are left to the job."""


@dataclass(frozen=True, slots=True)
class NewText:
    """What was said in a stretch of a conversation."""

    text: str
    until: int
    """The newest entry of the stretch."""

    @property
    def is_worth_a_pass(self) -> bool:
        return len(self.text) >= CHARACTERS_MIN


def lines_of(said: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a role and a text as `user: …` and `assistant: …`: the newest characters of them."""
    whole = "\n".join(f"{role}: {text}" for role, text in said if text.strip())
    return whole[-CHARACTERS_MAX:]


def new_text(
    transcript: Transcript, after: int, is_read_elsewhere: Callable[[str], bool]
) -> NewText:
    """Return the text that was said behind the entry `after`.

    `is_read_elsewhere` returns True for the id of an event whose turn belongs to another pass, such as that
    of a chain.
    """
    entries = _newest(transcript, after)
    until = entries[-1].number if entries else after
    elsewhere = {
        entry.turn_id
        for entry in entries
        if entry.event_id is not None and is_read_elsewhere(entry.event_id)
    }
    sessions = transcript.sessions()
    said = [
        entry
        for entry in entries
        if entry.turn_id not in elsewhere and not _is_skipped(entry, sessions)
    ]
    return NewText(text_of(said), until)


def text_of(entries: Iterable[Entry]) -> str:
    """Return the text of entries: the newest characters of what was said in them."""
    return lines_of((one.message.role, one.message.text) for one in entries if one.is_said)


def length_behind(transcript: Transcript, after: int) -> int:
    """Return the length of what was said behind an entry: enough for a pass if it takes long to say."""
    page = transcript.page(FEW, backwards=True, after=None)
    new = [entry for entry in page if entry.number > after]
    return CHARACTERS_MIN if len(new) == FEW else len(text_of(new))


def _newest(transcript: Transcript, after: int) -> Sequence[Entry]:
    """Return the newest entries behind `after` in order: enough for the longest text."""
    found: list[Entry] = []
    characters, before = 0, None
    while characters < CHARACTERS_MAX:
        page = transcript.page(PAGE, after=before, backwards=True)
        for entry in page:
            if entry.number <= after or characters >= CHARACTERS_MAX:
                return found[::-1]
            found.append(entry)
            characters += len(entry.message.text) if entry.is_said else 0
        if not page:
            break
        before = page[-1].number
    return found[::-1]


def _is_skipped(entry: Entry, sessions: Sequence[Session]) -> bool:
    """Return True for an entry of the harness, and for one of a failed run."""
    return not entry.is_said or any(session.skips(entry.number) for session in sessions)
