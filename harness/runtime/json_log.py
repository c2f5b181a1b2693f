"""Log lines for programs: one JSON object a line, on standard error.

The log holds the lines of all accounts of a home, and may be copied to other places. So no line holds a
secret or text that a person wrote. Of an error it has the type and the place in the code, not the message,
which may repeat a value. Text that looks like a key is masked, no matter which code logged it.
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
from typing import Any

from workspaces.storage.observers import Observers
from workspaces.timestamp import stamp_of

FRAMES_MAX = 20
"""The most stack frames of an error; the innermost ones show where it arose."""

_SECRET = re.compile(r"\b(whu?_|sk-|Bearer )[A-Za-z0-9_-]{4,}")


EVENTS = Observers[str, Mapping[str, Any]]()
"""Are told of each event of this process, whatever the level of the log: its name and its facts."""


def event(logger: logging.Logger, name: str, /, *, level: int = logging.INFO, **facts: Any) -> None:
    """Log an event. `error=` takes an exception."""
    EVENTS.tell(name, facts)
    logger.log(level, name, extra={"facts": facts})


class JsonLines(logging.Formatter):
    """A formatter that writes one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        line: dict[str, Any] = {
            "at": stamp_of(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in facts.items():
            line |= _error_facts(value) if isinstance(value, BaseException) else {name: value}
        if record.exc_info and record.exc_info[1] is not None:
            line |= _error_facts(record.exc_info[1])
        return masked(json.dumps(line, default=str))


class CommandWarnings(logging.Handler):
    """What a command prints where nobody has set up logging: warnings in words, and no events.

    An event is for the log of a server. The person at a command is told of it by the command itself.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "facts") and not logging.getLogger().handlers:
            sys.stderr.write(f"{record.getMessage()}\n")


logging.getLogger("harness").addHandler(CommandWarnings())


def log_json_lines(*, level: int = logging.INFO) -> None:
    """Send what is logged in this process, from a level on, to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in ("uvicorn.error", "botocore", "httpx2", "anthropic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def masked(text: str) -> str:
    return _SECRET.sub(lambda match: match[1] + "…", text)


def _error_facts(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "where": _frames(error.__traceback__)}


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
