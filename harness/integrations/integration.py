"""An agent of somebody else's that shall use a workspace: which file tells it so, and what it must say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

HOOK_TIMEOUT_S = 15
"""Longer than the wait for a busy workspace: then the memory is named as unavailable instead."""


@dataclass(frozen=True, slots=True)
class Use:
    """What is written into a configuration, and is how it is found there again."""

    root: str
    """Where the workspace's files lie."""
    command: str
    """For a shell: prints what the memory says."""


class Integration(Protocol):
    """Texts in, texts out. `used` leaves everything else in the text as it is; `unused` takes out what
    `used` put in and nothing else, in a text that was changed since."""

    @property
    def name(self) -> str: ...
    @property
    def empty(self) -> str:
        """A configuration that says nothing."""
        ...

    @property
    def prompt_options(self) -> tuple[str, ...]:
        """Of `harness prompt`, as it shall be run."""
        ...

    @property
    def advice(self) -> str:
        """The template that says what else is to know or to do."""
        ...

    def file(self, project: Path | None) -> Path:
        """Refused when it knows no such file for one project."""
        ...

    def used(self, text: str, use: Use) -> str: ...
    def unused(self, text: str, use: Use, before: str) -> str:
        """`before`: as it was before `used`."""
        ...
