"""The reader of Claude Desktop's sessions: a small file with title and dates, joined to a transcript.

The transcript has Claude Code's form. It lies with those of Claude Code, or in the session's own directory.
A session without a transcript is listed, and has no messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.memorize.local.claude_code import SessionFile, session_files
from harness.memorize.local.local_message import LocalConversation, shown_title, stamp_at
from harness.memorize.local.transcript_file import number_in, parsed_event, text_in

SIDECAR_BYTES_MAX = 2**20

_FOLDERS = ("claude-code-sessions", "local-agent-mode-sessions")


@dataclass(frozen=True, slots=True)
class DesktopSession:
    listed: LocalConversation
    session: SessionFile | None


def desktop_sessions(root: Path, known: Mapping[str, SessionFile]) -> Iterator[DesktopSession]:
    """Yield the sessions below a directory of Claude Desktop. `known` are the transcripts of Claude Code."""
    for folder in _FOLDERS:
        for file in sorted((root / folder).glob("*/*/local_*.json")):
            said = _sidecar(file)
            if said is not None:
                own = {one.id: one for one in session_files(file.with_suffix("") / ".claude")}
                transcript = text_in(said, "cliSessionId") or ""
                session = own.get(transcript) or known.get(transcript)
                yield DesktopSession(_listed(file, said, session), session)


def _listed(file: Path, said: Mapping[str, Any], session: SessionFile | None) -> LocalConversation:
    changed_ms = number_in(said, "lastActivityAt") or number_in(said, "createdAt")
    changed_s = file.stat().st_mtime if changed_ms is None else changed_ms / 1000
    return LocalConversation(
        text_in(said, "sessionId") or file.stem,
        "claude-desktop",
        shown_title(text_in(said, "title") or text_in(said, "initialMessage") or ""),
        text_in(said, "cwd"),
        stamp_at(changed_s),
        is_archived=said.get("isArchived") is True,
        has_messages=session is not None,
    )


def _sidecar(file: Path) -> Mapping[str, Any] | None:
    try:
        if file.stat().st_size > SIDECAR_BYTES_MAX:
            return None
        return parsed_event(file.read_bytes())
    except OSError:
        return None  # it was deleted since it was listed
