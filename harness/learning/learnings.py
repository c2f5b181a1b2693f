"""Learnings: what the agents of a chain write down for the next time.

They are facts of the chain's first agent, `director:learning:<milliseconds>`. Each step of a later chain is
shown the newest of all its agents, whatever `memoryEnabled` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.context.fence import fenced
from harness.learning.fact_places import LearnedFacts
from harness.memory.facts.fact import VALUE_CHARACTERS_MAX, Fact
from harness.memory.secrets import find_secrets
from harness.messages.message import ToolCall
from harness.messages.model_request import ToolSpec
from harness.runs.chain_record import Chain
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.templates import render
from harness.tools.port import FreeTool
from harness.tools.tool_context import ToolContext
from workspaces.clock import Clock
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.ids import Version
from workspaces.revision import Author
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse

RECORD_LEARNING = "record_learning"

LEARNING_PREFIX = "director:learning:"

SHOWN_MAX = 20
"""Learnings that a step is shown: a page of text at most."""

SAME_MOMENT_MAX = 100
"""Learnings of one millisecond. More mean that the clock stands still."""

_KEY = re.compile(rf"{LEARNING_PREFIX}([0-9]{{1,20}})(?:-([0-9]{{1,6}}))?")


class RecordLearningInput(StrictModel):
    learning: Annotated[str, Field(min_length=1, max_length=VALUE_CHARACTERS_MAX)]


@dataclass(frozen=True, slots=True)
class RecordLearning(FreeTool):
    """The tool that every agent of a chain is offered. `keep` stores a learning, or raises Failure."""

    keep: Callable[[str, Author], str]
    name: str = RECORD_LEARNING

    def spec(self, context: ToolContext) -> ToolSpec:
        del context
        learning = {"type": "string", "minLength": 1, "maxLength": VALUE_CHARACTERS_MAX}
        schema: JsonObject = {
            "type": "object",
            "properties": {"learning": learning},
            "required": ["learning"],
            "additionalProperties": False,
        }
        return ToolSpec(self.name, render("tools/record_learning.md", shown=SHOWN_MAX), schema)

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        learning = parse(RecordLearningInput, call.input).learning
        return await run_in_new_thread(self.keep, learning, context.author(call.id))


@dataclass(frozen=True, slots=True)
class Learnings:
    """The learnings of an account's chains, which act as its owner."""

    facts: LearnedFacts
    clock: Clock

    def record(self, chain: Chain, learning: str, by: Author) -> str:
        """Store a learning on the first agent of a chain, and return its key.

        Raises: Refused if it holds what looks like a secret.
        """
        if secrets := find_secrets(learning):
            rule = f"holds what looks like a secret ({secrets[0].kind}), and is not stored"
            raise Refused("learning", None, rule, remedy="say where it is kept instead")
        facts = self.facts.catalog().of_agent(chain.agents[0])
        director = Author(by.name, by.id, "director", {**by.trailers, "Chain": chain.id})
        key = f"{LEARNING_PREFIX}{int(self.clock.now().timestamp() * 1000)}"
        for number in range(1, SAME_MOMENT_MAX + 1):
            own = key if number == 1 else f"{key}-{number}"
            try:
                facts.put(own, learning.strip(), by=director, check=_no_fact(own))
            except Conflict:  # another learning of this millisecond
                continue
            return own
        raise Unavailable("learnings", "too many are recorded at once", remedy="try again")

    def newest(self, chain: Chain) -> Sequence[Fact]:
        """Return the newest learnings of all agents of a chain, newest first."""
        found: list[Fact] = []
        for agent_id in dict.fromkeys(chain.agents):
            try:
                facts = self.facts.catalog().of_agent(agent_id).list()
            except NotFound:  # the agent was deleted
                continue
            found += [fact for fact in facts if is_learning(fact.key)]
        return sorted(found, key=_moment, reverse=True)[:SHOWN_MAX]

    def shown(self, chain: Chain) -> str | None:
        """Return the part of a step's prompt that shows the learnings. None: there are none."""
        lines = [" ".join(fenced(fact.value).split()) for fact in self.newest(chain)]
        return render("prompt/learnings.md", lines=lines) if lines else None


def is_learning(key: str) -> bool:
    """Return True for the key of a learning."""
    return key.startswith(LEARNING_PREFIX)


def _no_fact(key: str) -> Callable[[Version | None], None]:
    """Return a check that there is no fact with this key yet."""

    def check(version: Version | None) -> None:
        if version is not None:
            raise Conflict("fact", key, expected=None, actual=version)

    return check


def _moment(fact: Fact) -> tuple[int, int]:
    """Return when a learning was recorded, by its key."""
    match = _KEY.fullmatch(fact.key)
    return (0, 0) if match is None else (int(match[1]), int(match[2] or 1))
