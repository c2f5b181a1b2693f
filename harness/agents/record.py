"""Agent records and their configuration.

Every part of the harness that an agent can configure adds its key to `AgentConfig` and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.agents.schedule import Schedule
from harness.context.budget import CONTEXT_CHARACTERS_MAX, MEMORY_CHARACTERS_MAX, budget
from harness.context.prune import TURNS, Pruning
from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool
from harness.messages.event import OnBusy
from harness.messages.memory_policy import MemoryPolicy
from workspaces.accounts.record_catalog import RecordKind
from workspaces.ids import AgentId, SandboxId, WorkspaceId
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

SYSTEM_CHARACTERS_MAX = 50_000
PROMPT_CHARACTERS_MAX = 50_000
"""The longest prompt of a run: as long as an agent's own instructions."""
MEMORY_CHARACTERS_HIGHEST = 200_000
"""The largest share of memory in the largest context that can be configured."""
CONTEXT_CHARACTERS_HIGHEST = 500_000
MOUNTS_MAX = 20
STEPS_HIGHEST = 1000
OUTPUT_TOKENS_HIGHEST = 128_000
"""The largest answer of a model."""
PRUNING_TURNS_HIGHEST = 1000
TURN_SECONDS_MAX = 86_400
SETTLE_SECONDS = 60.0
"""Seconds of quiet after which a conversation is read: most answers of a person come sooner."""
SETTLE_SECONDS_MAX = 86_400
TURN_DOLLARS_MAX = 10_000
"""Larger values are typing errors."""


class MountConfig(StrictModel):
    name: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """A leading `_` marks a private mount, such as `_agent` and `_user`."""
    workspace_id: Annotated[WorkspaceId, Field(min_length=1)]
    """The workspace that is mounted."""
    sandbox: SandboxId | None = None
    """Absent: the agent's sandbox. Null: no sandbox, so the mount is read-only.

    With null, a workspace in S3 is read in place, without a copy on the machine that runs the turn.
    """


class Limits(StrictModel):
    """The limits of one turn. None: no limit."""

    steps: Annotated[int, Field(ge=1, le=STEPS_HIGHEST)] = 40
    """Requests to the model in one turn."""
    seconds: Annotated[float, Field(gt=0, le=TURN_SECONDS_MAX)] | None = None
    """Seconds of work. Time spent waiting for an answer does not count."""
    dollars: Annotated[float, Field(gt=0, le=TURN_DOLLARS_MAX)] | None = None
    """Checked before each request, so the last request may exceed it."""
    output_tokens: Annotated[int, Field(ge=1, le=OUTPUT_TOKENS_HIGHEST)] = 16_000
    """Tokens of one reply of the model."""


class SessionMemory(StrictModel):
    max_length: Annotated[int, Field(ge=1, le=MEMORY_CHARACTERS_HIGHEST)] = MEMORY_CHARACTERS_MAX
    """Code points of memory in a prompt, of all mounts together."""


class SessionPruning(StrictModel):
    enabled: bool = True
    """Leave old tool traffic out of the context."""
    turns: Annotated[int, Field(ge=0, le=PRUNING_TURNS_HIGHEST)] = TURNS
    """The number of later turns for which a turn's tool traffic stays in the context."""


class SessionCompaction(StrictModel):
    enabled: bool = False
    """Replace the beginning of a long conversation by a summary."""
    max_context_length: Annotated[int, Field(ge=1, le=CONTEXT_CHARACTERS_HIGHEST)] = (
        CONTEXT_CHARACTERS_MAX
    )
    """Code points of the request's JSON, system and messages. A longer context is compacted."""
    flush: bool = True
    """Let the model write down lasting facts before the conversation is summarised."""


class SessionConfig(StrictModel):
    memory: SessionMemory = SessionMemory()
    pruning: SessionPruning = SessionPruning()
    compaction: SessionCompaction = SessionCompaction()

    @property
    def memory_characters_max(self) -> int:
        return budget(self.memory.max_length, self.compaction.max_context_length)

    @property
    def as_pruned(self) -> Pruning | None:
        """Return the pruning settings; None if everything is shown."""
        return Pruning(self.pruning.turns) if self.pruning.enabled else None


class ExtractConfig(StrictModel):
    enabled: bool = True
    """Let a small model read what was said, after a turn, and store facts that will be useful again."""
    shared: bool = False
    """Store facts from conversations of users other than the account's owner where all users see them."""


class SleepConfig(StrictModel):
    enabled: bool = False
    """Let a small model rewrite the memory blocks of the user, when a conversation has gone quiet."""
    settle: Annotated[float, Field(ge=0, le=SETTLE_SECONDS_MAX)] = SETTLE_SECONDS
    """Seconds for which a conversation must have been quiet."""


class AgentConfig(StrictModel):
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Absent: the home's setting `model`."""
    system: Annotated[str, Field(max_length=SYSTEM_CHARACTERS_MAX)] | None = None
    """Instructions that begin every prompt."""
    default_prompt: Annotated[str, Field(min_length=1, max_length=PROMPT_CHARACTERS_MAX)] | None = (
        None
    )
    """The prompt of a run that brings none."""
    sandbox: SandboxId | None = None
    """Where commands of the agent run. Without one there is no bash and every mount is read-only."""
    workspaces: list[MountConfig] = Field(default=[], max_length=MOUNTS_MAX)
    """The mounts, the first one is the default."""
    private: Literal["ro", "rw", "off"] = "ro"
    """The mode in which the private workspaces of the agent (`_agent`), of its user (`_user`) and of both
    (`_user-agent`) are mounted: `ro` read-only, `rw` writable where the sandbox allows it, `off` not at all.
    """
    memory_enabled: bool = False
    """Show the agent its own facts, and those of its user with it."""
    on_busy: OnBusy = "queue"
    """The treatment of an event while the conversation is in use, unless the event names one."""
    tools: list[ClientTool] = Field(default=[], max_length=CLIENT_TOOLS_MAX)
    """Tools that the client runs. The turn waits for their results."""
    session: SessionConfig = SessionConfig()
    limits: Limits = Limits()
    schedule: Schedule | None = None
    """When the agent runs by itself, with its default prompt."""
    card: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """The card of the result that each run of the agent ends with."""
    review_decisions: bool = False
    """Let the agent look at its recent decisions before it decides."""
    active_memory: bool = False
    """Let chat and runs share one session, so that each sees what the others said."""
    extract: ExtractConfig = ExtractConfig()
    sleep: SleepConfig = SleepConfig()
    memory_policy: MemoryPolicy = MemoryPolicy()
    """The memory blocks that a turn shows. A turn may replace single keys."""


class AgentRecord(StrictModel):
    id: AgentId
    name: Name
    config: AgentConfig = AgentConfig()
    created_at: Stamp
    updated_at: Stamp


AGENTS = RecordKind("agent", "agent", AgentRecord)
