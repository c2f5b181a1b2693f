"""The memory policy: which of a user's blocks a turn shows (`memory_policy`).

An agent has a policy, and a turn may replace single keys of it. The turn's own keys are stored with its
event. A policy that differs from the last turn's is a reason for a new snapshot. MEMORY.md is not affected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from workspaces.validation import StrictModel, parse

ARCHIVAL_LINES_MAX = 100
"""The most lines that one recall query returns."""


PolicyKeys = Mapping[str, object]
"""The keys of a policy, as a program writes them."""


class MemoryPolicy(StrictModel):
    """The policy as clients send it. Its JSON keys have underscores, because clients of blocks write them
    so."""

    model_config = ConfigDict(alias_generator=None)

    archival_mode: Literal["tool_only", "auto", "off"] = "tool_only"
    """With `auto` the archival lines that match the message best are shown beside it."""
    archival_limit: Annotated[int, Field(ge=1, le=ARCHIVAL_LINES_MAX)] = 10
    """The most archival lines."""
    archival_min_score: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The lowest score of an archival line that is shown."""
    include_user_core: bool = True
    """Show the user's core block."""
    include_agent_core: bool = True
    """Show the core block of the user with the active agent."""

    @classmethod
    def of(cls, policy: MemoryPolicy | PolicyKeys | None) -> MemoryPolicy | None:
        """Return the policy with these keys; None for None.

        Raises: Refused, naming the field, if a key is unknown or its value is invalid.
        """
        if policy is None or isinstance(policy, MemoryPolicy):
            return policy
        return parse(MemoryPolicy, policy, within="memory_policy")

    def replacing(self, default: MemoryPolicy) -> MemoryPolicy:
        """Return the default policy with the keys that this one states in place of its own."""
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        return default.model_copy(update=stated)

    @property
    def comparison_key(self) -> str:
        """Return the policy in a form that can be compared; the empty string for the defaults."""
        changes = self.model_dump(exclude_defaults=True)
        return json.dumps(changes, sort_keys=True) if changes else ""
