"""The record of a chain, and the prompt of each of its steps.

    chains:<account>    chain_…    {agents, task, status, createdAt, stop?, error?, reExamines?}

The ids of its runs follow from its own id, so no step happens twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from harness.agents.record import PROMPT_CHARACTERS_MAX
from harness.context.fence import attribute, fenced
from harness.runtime.templates import render
from workspaces.conditions import ABSENT
from workspaces.ids import ID_HEX_DIGITS, AccountId, AgentId, ChainId, RunId
from workspaces.storage.records import Condition, JsonObject, Key, Put, RecordStore
from workspaces.timestamp import Stamp

OUTPUT_CHARACTERS_MAX = 20_000
"""Characters of an earlier output that a step sees. Twenty of them fit a model's window."""

ID_CHARACTERS_MAX = 64

ChainStatus = Literal["running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Chain:
    """The record of one chain."""

    id: ChainId
    agents: tuple[AgentId, ...]
    task: str
    status: ChainStatus
    created_at: Stamp
    is_stopped: bool = False
    """True if someone asked for its end."""
    error: str | None = None
    re_examines: str | None = None
    """The run whose decision this chain examines again. Its last run then brings it to its end."""
    counter: Condition = field(default=ABSENT, compare=False)

    @property
    def is_final(self) -> bool:
        return self.status != "running"

    def run_id(self, step: int) -> RunId:
        """Return the id of the run of a step."""
        digest = sha256(f"{self.id}\0{step}".encode()).hexdigest()
        return RunId(f"run_{digest[:ID_HEX_DIGITS]}")

    def stored(self) -> JsonObject:
        return {
            "agents": list(self.agents),
            "task": self.task,
            "status": self.status,
            "createdAt": self.created_at,
            **({"stop": True} if self.is_stopped else {}),
            **({"error": self.error} if self.error else {}),
            **({"reExamines": self.re_examines} if self.re_examines else {}),
        }


@dataclass(frozen=True, slots=True)
class ChainRecords:
    """The chains of one account. Threads may share it."""

    account_id: AccountId
    records: RecordStore

    def find(self, chain_id: str) -> Chain | None:
        if not chain_id.isascii() or not 0 < len(chain_id) <= ID_CHARACTERS_MAX:
            return None
        item = self.records.get(self._key(chain_id))
        if item is None:
            return None
        value = item.value
        return Chain(
            id=ChainId(item.key.sort),
            agents=tuple(AgentId(one) for one in value["agents"]),
            task=value["task"],
            status=value["status"],
            created_at=Stamp(value["createdAt"]),
            is_stopped=value.get("stop", False),
            error=value.get("error"),
            re_examines=value.get("reExamines"),
            counter=item.counter,
        )

    def put(self, chain: Chain) -> Put:
        """Return the change that stores a chain in its present state."""
        return Put(self._key(chain.id), chain.stored(), chain.counter)

    def _key(self, chain_id: str) -> Key:
        return Key(f"chains:{self.account_id}", chain_id)


def step_prompt(task: str, count: int, earlier: Sequence[tuple[str, str]]) -> str:
    """Return the prompt of the step behind these `earlier` ones, each an agent's name and its output."""
    share = min(OUTPUT_CHARACTERS_MAX, PROMPT_CHARACTERS_MAX // 2 // max(1, len(earlier)))
    outputs = [
        {"agent": attribute(name), "text": fenced(_shortened(reply, share))}
        for name, reply in earlier
    ]
    number = len(earlier) + 1
    return render("runs/chain-step.md", number=number, count=count, task=task, outputs=outputs)


def _shortened(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}\n(… {len(text) - characters_max:,} more characters)"
