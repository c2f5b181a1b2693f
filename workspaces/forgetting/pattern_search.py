"""Search a text for people's patterns, with ripgrep: its expressions take linear time whatever they are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from workspaces.errors import Refused, Unavailable
from workspaces.forgetting.rule import check_pattern_text

SEARCH_S_MAX = 20.0
"""Longest search of one text. The largest file takes less than a second."""

_PROBES = "\na b.\n"
"""A pattern that matches nothing in one of these lines forbids nothing in particular."""

_NO_MATCH, _ERROR = 1, 2  # exit codes of ripgrep

_OPTIONS = (
    "--no-config",
    "--json",
    "--text",
    "--crlf",
    "--encoding=none",
    "--regex-size-limit=10M",
)

TextSpan = tuple[int, int]


class PatternSearch:
    """A search for patterns. Threads may share one."""

    def __init__(self, program: Callable[[], Path | None]) -> None:
        """`program` returns ripgrep, or None if it is not installed. It is called at the first search."""
        self._program = program

    def check(self, pattern: str) -> None:
        """Raise OverLimit or Refused for a pattern that cannot be used."""
        check_pattern_text(pattern)
        for begin, end in self._spans([pattern], _PROBES):
            if begin == end:
                raise Refused(
                    "pattern",
                    pattern,
                    "matches the empty text, so it would be found everywhere",
                    remedy="use `+` in place of `*`, or name a character that must be there",
                )

    def spans(self, patterns: Sequence[str], text: str) -> list[TextSpan]:
        """Return the places in a text that one of the patterns matches, in order. None is empty."""
        if not patterns or not text:
            return []
        return [span for span in self._spans(patterns, text) if span[0] < span[1]]

    def _spans(self, patterns: Sequence[str], text: str) -> list[TextSpan]:
        program = self._program()
        if program is None:
            raise Unavailable(
                "ripgrep",
                "it is not installed, and patterns that forbid texts need it",
                remedy="install it again with the harness, or lift the patterns: `harness forbid list`",
            )
        data = text.encode("utf-8", "replace")
        arguments = [argument for pattern in patterns for argument in ("-e", pattern)]
        try:
            ended = subprocess.run(
                [program, *_OPTIONS, *arguments, "-"],
                input=data,
                capture_output=True,
                timeout=SEARCH_S_MAX,
                env={},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            raise Unavailable(
                "ripgrep", f"the search for forbidden patterns failed: {error}"
            ) from error
        if ended.returncode == _ERROR:
            # after the place of the mistake, which is drawn over several lines, comes what it is
            reason = ended.stderr.decode(errors="replace").strip().rpartition("error: ")[2]
            raise Refused(
                "pattern", patterns[0], f"is not a valid regular expression: {reason[:500]}"
            )
        if ended.returncode not in (0, _NO_MATCH):
            raise Unavailable("ripgrep", f"it ended with code {ended.returncode}")
        return _characters(data, _found(ended.stdout))


def _found(output: bytes) -> list[TextSpan]:
    """Return the places in ripgrep's answer, in bytes."""
    spans: list[TextSpan] = []
    for line in output.splitlines():
        event = json.loads(line)
        if event["type"] == "match":
            offset = event["data"]["absolute_offset"]
            spans += (
                (offset + one["start"], offset + one["end"]) for one in event["data"]["submatches"]
            )
    return sorted(spans)


def _characters(data: bytes, spans: list[TextSpan]) -> list[TextSpan]:
    """Return the places in characters. Each byte of the text is decoded once."""
    edges = sorted({edge for span in spans for edge in span})
    at: dict[int, int] = {}
    last = count = 0
    for edge in edges:
        count += len(data[last:edge].decode("utf-8", "ignore"))
        last = edge
        at[edge] = count
    return [(at[begin], at[end]) for begin, end in spans]
