"""The option `--memory-policy` of the commands that run or show a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.messages.memory_policy import MemoryPolicy

MemoryPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--memory-policy",
        metavar="JSON",
        help='The memory blocks to show, as in {"archival_mode": "auto"}. It replaces single keys of '
        "the agent's policy.",
    ),
]


def parse_policy(text: str | None) -> MemoryPolicy | None:
    """Return the policy that the option states.

    Raises: Refused if it is no JSON object or breaks a rule.
    """
    from harness.messages.memory_policy import MemoryPolicy
    from harness.runtime.strict_json import parse_json

    return None if text is None else MemoryPolicy.of(parse_json(text, within="--memory-policy"))
