"""The port for other agents that use a workspace: which configuration file to change, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

HOOK_TIMEOUT_S = 15
"""Seconds for the hook: longer than the wait for a busy workspace. Then the prompt names the memory as
unavailable."""


@dataclass(frozen=True, slots=True)
class Use:
    """The values that are written into a configuration. They also identify the entries later."""

    root: str
    """The directory of the workspace's files."""
    command: str
    """A shell command that prints the prompt."""


class Integration(Protocol):
    """The edits of a configuration, from text to text.

    `used` leaves everything else in the text as it is. `unused` removes what `used` added and nothing else,
    also from a text that was changed since.
    """

    @property
    def name(self) -> str: ...
    @property
    def empty(self) -> str:
        """An empty configuration."""
        ...

    @property
    def prompt_options(self) -> tuple[str, ...]:
        """Options for the `harness prompt` command."""
        ...

    @property
    def begin(self) -> str:
        """The command that makes the edit, for a remedy."""
        ...

    @property
    def advice(self) -> str:
        """Return the template with further instructions for the person."""
        ...

    def file(self, project: Path | None) -> Path:
        """Return the configuration file.

        Raises: Refused when the agent has no such file for one project.
        """
        ...

    def used(self, text: str, use: Use) -> str: ...
    def unused(self, text: str, use: Use, before: str) -> str:
        """Return the text without this use. `before` is the text before `used`."""
        ...
