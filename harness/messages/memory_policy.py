"""The memory policy: which of a user's blocks a turn shows (`memory_policy`).

The policy is accepted, checked, stored with its event and compared from turn to turn. A policy that differs
from the last turn's is a reason for a new snapshot. Blocks do not exist yet, so every policy is fulfilled by
showing none. MEMORY.md is not affected.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from workspaces.validation import StrictModel

ARCHIVAL_LINES_MAX = 100
"""The most lines that one recall query returns."""


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
    include_agent_core: bool = True

    @property
    def comparison_key(self) -> str:
        """Return the policy in a form that can be compared; the empty string for the defaults."""
        changes = self.model_dump(exclude_defaults=True)
        return json.dumps(changes, sort_keys=True) if changes else ""
