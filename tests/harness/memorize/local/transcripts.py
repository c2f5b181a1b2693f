"""Transcripts in the exact shapes of other agents, written line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

THREAD = "019b0000-0000-7000-8000-00000000aaaa"
OTHER = "019b0000-0000-7000-8000-00000000bbbb"
SESSION = "99999999-0000-4000-8000-000000000009"
AT = "2026-11-19T08:00:00.000Z"

Line = dict[str, Any]


def lines(*events: Line | str) -> bytes:
    told = (one if isinstance(one, str) else json.dumps(one) for one in events)
    return "".join(f"{line}\n" for line in told).encode()


def write(file: Path, *events: Line | str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lines(*events))
    return file


def rollout(
    root: Path, thread: str, *, second: str = "08-00-00", folder: str = "sessions/2026/11/19"
) -> Path:
    return root / folder / f"rollout-2026-11-19T{second}-{thread}.jsonl"


def codex(kind: str, **payload: Any) -> Line:
    return {"timestamp": AT, "type": kind, "payload": payload}


def meta(thread: str = THREAD, **more: Any) -> Line:
    return codex("session_meta", id=thread, cwd="/home/me/shop", source="cli", **more)


def codex_said(role: str, text: str) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def codex_call(name: str, arguments: str, call: str) -> Line:
    return codex(
        "response_item", type="function_call", name=name, arguments=arguments, call_id=call
    )


def codex_output(call: str, output: Any) -> Line:
    return codex("response_item", type="function_call_output", call_id=call, output=output)


def claude(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> Line:
    """Return a line of Claude Code. The answers' ids are those of their lines unless given."""
    answer = more.pop("answer", f"msg_{uuid}")
    message: Line = {"role": kind, "content": content}
    if kind == "assistant":
        message["id"] = answer
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": AT,
        "cwd": "/home/me/shop",
        "isSidechain": False,
        "userType": "external",
        "message": message,
        **more,
    }


def text(said: str) -> list[Line]:
    return [{"type": "text", "text": said}]


def tool_use(call: str, name: str, **arguments: Any) -> list[Line]:
    return [{"type": "tool_use", "id": call, "name": name, "input": arguments}]


def tool_result(call: str, content: Any) -> list[Line]:
    return [{"type": "tool_result", "tool_use_id": call, "content": content, "is_error": False}]
