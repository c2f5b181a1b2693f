"""The sessions of other agent programs: which revision of a workspace each was told of last.

used/sessions/<hash of session and workspace>    the revision
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

from harness.runtime.strict_json import parse_json
from workspaces.errors import Failure
from workspaces.ids import WorkspaceId
from workspaces.revision import RevisionId

SESSIONS_MAX = 500
"""Sessions that are noted; older ones are told of the whole memory once more."""

SESSION_CHARACTERS_MAX = 200

HookEvent = Literal["SessionStart", "UserPromptSubmit"]


@dataclass(frozen=True, slots=True)
class HookCall:
    """What a program says when it calls a hook."""

    event: HookEvent
    session: str | None

    def answer(self, text: str) -> dict[str, Any]:
        """Return the answer that gives the model this text."""
        return {"hookSpecificOutput": {"hookEventName": self.event, "additionalContext": text}}


def hook_call(data: bytes) -> HookCall:
    """Return the call from the JSON that the program writes. Without JSON it is the start of a session."""
    fields: Mapping[str, Any] = {}
    with suppress(Failure, ValueError):
        stated: Any = parse_json(data, within="hook")
        fields = cast("Mapping[str, Any]", stated) if isinstance(stated, dict) else {}
    session = fields.get("session_id")
    is_known = isinstance(session, str) and 0 < len(session) <= SESSION_CHARACTERS_MAX
    is_prompt = fields.get("hook_event_name") == "UserPromptSubmit"
    return HookCall(
        "UserPromptSubmit" if is_prompt else "SessionStart", session if is_known else None
    )


class HookSessions:
    """The notes of a home. A lost note is no harm: the session is told of the whole memory again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def told(self, session: str, workspace: WorkspaceId) -> RevisionId | None:
        """Return the revision that a session was told of last. Return None if none is noted."""
        with suppress(OSError, UnicodeDecodeError):
            text = self._file(session, workspace).read_text().strip()
            return RevisionId(text) if text.isalnum() else None
        return None

    def note(self, session: str, workspace: WorkspaceId, revision: RevisionId) -> None:
        """Note the revision that a session is told of now."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._file(session, workspace)
            unfinished = file.with_suffix(f".{os.getpid()}")
            unfinished.write_text(revision)
            unfinished.chmod(0o600)
            unfinished.replace(file)
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        files = list(self._folder.iterdir())
        if len(files) > SESSIONS_MAX:
            files.sort(key=lambda file: file.stat().st_mtime)
            for file in files[: len(files) - SESSIONS_MAX]:
                file.unlink(missing_ok=True)

    def _file(self, session: str, workspace: WorkspaceId) -> Path:
        digest = sha256(f"{workspace}\0{session}".encode()).hexdigest()
        return self._folder / digest[:32]
