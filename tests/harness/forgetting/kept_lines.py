"""The lines that a forgetting must leave where they are: of a workspace, of its past and of conversations."""

from __future__ import annotations

from collections.abc import Sequence

from harness import Harness
from harness.messages.message import Text
from workspaces.revision import RevisionId

Place = tuple[str, str]
"""A revision and a path, or a conversation and the number of an entry and of a part of it."""


def kept_by(harness: Harness, revisions: Sequence[RevisionId]) -> dict[Place, list[bytes]]:
    """Return all lines that must be where they were: of the shared workspace, now and as of some revisions,
    and of the conversations."""
    rooms, notes = harness.rooms, harness.workspaces.get("notes")
    texts: dict[Place, bytes] = {("now", path): notes.read(path).data for path in notes.files()}
    for one in revisions:
        texts |= {(one, path): notes.read(path, view=one).data for path in notes.files(view=one)}
    for conversation in rooms.conversations.of_account():
        for entry in rooms.conversations.transcript(conversation).entries():
            for number, part in enumerate(entry.message.parts):
                if isinstance(part, Text):
                    place = (conversation.key, f"{entry.number}.{number}")
                    texts[place] = part.text.encode()
    return {place: text.split(b"\n") for place, text in texts.items()}


def check_kept(before: dict[Place, list[bytes]], after: dict[Place, list[bytes]]) -> None:
    """Check that every line without a canary is where it was. A file with one in its name has another name
    now, and one that is no text is gone."""
    for place, lines in before.items():
        if "canary" in place[1] or place[1] == "raw.bin":
            continue
        assert len(after[place]) == len(lines), place
        for line, now in zip(lines, after[place], strict=True):
            is_marked = b"[forgotten f_" in now or b"redacted-f_" in now  # the hash of a quote
            assert line == now or is_marked or b"SINGS" in line, (place, line, now)
