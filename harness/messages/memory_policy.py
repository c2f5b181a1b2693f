"""What of a user's blocks a turn is shown, as the turn asks for it: `memory_policy`.

It is taken, checked, kept with its event and compared from turn to turn: another policy than the one of the
last turn is a reason for a new snapshot. Of what it chooses from there is nothing yet: no prompt holds
blocks. So until there are blocks every policy is kept by showing none. MEMORY.md is not its matter.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from workspaces.validation import StrictModel

ARCHIVAL_LINES_MAX = 100
"""As many as one question to recall may answer with."""


class MemoryPolicy(StrictModel):
    """Its keys are written with underscores outside, too: that is how clients of blocks write them."""

    model_config = ConfigDict(alias_generator=None)

    archival_mode: Literal["tool_only", "auto", "off"] = "tool_only"
    """`auto`: the archival lines that fit what is said best are shown beside it."""
    archival_limit: Annotated[int, Field(ge=1, le=ARCHIVAL_LINES_MAX)] = 10
    """So many of them at most."""
    archival_min_score: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Only those that fit at least so well."""
    include_user_core: bool = True
    include_agent_core: bool = True

    @property
    def told(self) -> str:
        """In a form that can be compared; nothing for what is asked by saying nothing."""
        stated = self.model_dump(exclude_defaults=True)
        return json.dumps(stated, sort_keys=True) if stated else ""
