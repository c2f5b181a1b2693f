"""Log lines for programs: one JSON object a line, on standard error.

A log is read by whoever runs the home, for all of its accounts, and is copied to places nobody thought
of. So no line holds what somebody wrote or a secret: of an error it says the type and where it arose,
not its message, which may repeat a value; and what looks like a key is masked, whoever logged it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from workspaces.timestamp import stamp_of

FRAMES_MAX = 20
"""The innermost ones say where it arose."""

_SECRET = re.compile(r"\b(whu?_|sk-|Bearer )[A-Za-z0-9_-]{4,}")


def event(logger: logging.Logger, name: str, /, *, level: int = logging.INFO, **facts: Any) -> None:
    """Say that something happened. `error=` takes an exception."""
    logger.log(level, name, extra={"facts": facts})


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        line: dict[str, Any] = {
            "at": stamp_of(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in facts.items():
            line |= _told(value) if isinstance(value, BaseException) else {name: value}
        if record.exc_info and record.exc_info[1] is not None:
            line |= _told(record.exc_info[1])
        return masked(json.dumps(line, default=str))


def log_json_lines(stream: TextIO | None = None) -> None:
    """From now on everything that is logged in this process goes to standard error as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for talkative in ("uvicorn.error", "botocore", "httpx2", "anthropic"):
        logging.getLogger(talkative).setLevel(logging.WARNING)


def masked(text: str) -> str:
    return _SECRET.sub(lambda found: found[1] + "…", text)


def _told(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "where": _frames(error.__traceback__)}


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
