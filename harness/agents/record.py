"""Agent records and their configuration.

Every part of the harness that an agent can configure adds its key to `AgentConfig` and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.context.budget import CONTEXT_CHARACTERS_MAX, MEMORY_CHARACTERS_MAX, budget
from harness.context.prune import TURNS, Pruning
from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool
from harness.messages.event import OnBusy
from workspaces.accounts.record_catalog import RecordKind
from workspaces.ids import AgentId, SandboxId, WorkspaceId
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

SYSTEM_CHARACTERS_MAX = 50_000
MEMORY_CHARACTERS_HIGHEST = 200_000
"""What memory may ever take of the largest context that can be configured."""
CONTEXT_CHARACTERS_HIGHEST = 500_000
MOUNTS_MAX = 20
STEPS_HIGHEST = 1000
OUTPUT_TOKENS_HIGHEST = 128_000
"""As many as the largest answer of a model may have."""
PRUNING_TURNS_HIGHEST = 1000
TURN_SECONDS_MAX = 86_400
TURN_DOLLARS_MAX = 10_000
"""More than these is a typing error."""


class MountConfig(StrictModel):
    name: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    workspace_id: Annotated[WorkspaceId, Field(min_length=1)]
    sandbox: SandboxId | None = None
    """Absent: the agent's. Null: no sandbox, so the mount is read-only; and a workspace that is kept in S3
    is read there, without a copy on the machine that runs the turn."""


class Limits(StrictModel):
    """Of one turn. None: no limit."""

    steps: Annotated[int, Field(ge=1, le=STEPS_HIGHEST)] = 40
    seconds: Annotated[float, Field(gt=0, le=TURN_SECONDS_MAX)] | None = None
    """While it is at it: the time in which it waits for an answer does not count."""
    dollars: Annotated[float, Field(gt=0, le=TURN_DOLLARS_MAX)] | None = None
    """Looked at before each question, so that the last one may pass it."""
    output_tokens: Annotated[int, Field(ge=1, le=OUTPUT_TOKENS_HIGHEST)] = 16_000


class SessionMemory(StrictModel):
    max_length: Annotated[int, Field(ge=1, le=MEMORY_CHARACTERS_HIGHEST)] = MEMORY_CHARACTERS_MAX
    """How much memory a prompt shows, in code points, of all mounts together."""


class SessionPruning(StrictModel):
    enabled: bool = True
    turns: Annotated[int, Field(ge=0, le=PRUNING_TURNS_HIGHEST)] = TURNS
    """How many further turns the tool traffic of one stays in the context for."""


class SessionCompaction(StrictModel):
    enabled: bool = False
    max_context_length: Annotated[int, Field(ge=1, le=CONTEXT_CHARACTERS_HIGHEST)] = (
        CONTEXT_CHARACTERS_MAX
    )
    """In code points of the request's JSON, system and messages: one more, and it is compacted."""
    flush: bool = True
    """Whether the model may write down what must last before the conversation is summarised."""


class SessionConfig(StrictModel):
    memory: SessionMemory = SessionMemory()
    pruning: SessionPruning = SessionPruning()
    compaction: SessionCompaction = SessionCompaction()

    @property
    def memory_characters_max(self) -> int:
        return budget(self.memory.max_length, self.compaction.max_context_length)

    @property
    def as_pruned(self) -> Pruning | None:
        """None: everything is shown."""
        return Pruning(self.pruning.turns) if self.pruning.enabled else None


class AgentConfig(StrictModel):
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Absent: the home's setting `model`."""
    system: Annotated[str, Field(max_length=SYSTEM_CHARACTERS_MAX)] | None = None
    sandbox: SandboxId | None = None
    workspaces: list[MountConfig] = Field(default=[], max_length=MOUNTS_MAX)
    private: Literal["ro", "rw", "off"] = "ro"
    """How the private workspaces of the agent and of the user it talks to are mounted."""
    on_busy: OnBusy = "queue"
    """What becomes of an event while the conversation is in use, unless the event says so itself."""
    tools: list[ClientTool] = Field(default=[], max_length=CLIENT_TOOLS_MAX)
    """Those that the client runs: a turn waits for what comes of them."""
    session: SessionConfig = SessionConfig()
    limits: Limits = Limits()


class AgentRecord(StrictModel):
    id: AgentId
    name: Name
    config: AgentConfig = AgentConfig()
    created_at: Stamp
    updated_at: Stamp


AGENTS = RecordKind("agent", "agent", AgentRecord)
