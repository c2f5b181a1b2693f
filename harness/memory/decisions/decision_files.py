"""Decision files: written once, read in their first revision, and a log beside each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from harness.memory.decisions.decision import (
    FOLDER,
    LOG_SUFFIX,
    Decision,
    decision_of,
    path_of_decision,
    path_of_log,
)
from harness.memory.decisions.decision_protection import SUBMITTED
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Failure, NotFound, Refused, Unavailable
from workspaces.home.workspaces import Workspaces, private_to_agent
from workspaces.ids import ID_HEX_DIGITS, AgentId, RunId
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.timestamp import Stamp, stamp_of
from workspaces.workspace.workspace import Workspace

REVISIONS_MAX = 1000
"""Revisions of one decision that are looked through for the first one."""

_RUN = re.compile(rf"run_[0-9a-f]{{{ID_HEX_DIGITS}}}")
_NAME = re.compile(rf"{FOLDER}/([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})-({_RUN.pattern})\.md")


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """A decision as the first revision of its file has it."""

    decision: Decision
    date: str
    """The day on which its run was created, as in the name of the file."""
    revision: RevisionId
    at: Stamp
    """The time of that revision."""


@dataclass(frozen=True, slots=True)
class DecisionFiles:
    """The decision files of an account's agents. Threads may share it."""

    workspaces: Workspaces
    clock: Clock

    def keep(self, agent_id: AgentId, created_at: str, decision: Decision, by: Author) -> None:
        """Write the file of a decision, once.

        Raises: Refused if this run has submitted another result.
        """
        workspace = self._of(agent_id, create=True)
        if workspace is None:
            raise Unavailable("decisions", "the agent has no private workspace")
        path = path_of_decision(created_at, decision.run_id)
        author = by.saying(SUBMITTED, decision.run_id)
        try:
            workspace.write(path, decision.file(), by=author, expect=ABSENT)
        except Conflict as conflict:
            found = self.find(agent_id, created_at, decision.run_id)
            if found is None or found.decision.data != decision.data:
                rule = f"was submitted already: {found.decision.line if found else path}"
                raise Refused("result", None, rule) from conflict

    def find(self, agent_id: AgentId, created_at: str, run_id: str) -> FoundDecision | None:
        """Return the decision of a run. Return None if its file cannot be read."""
        return self.at(agent_id, path_of_decision(created_at, run_id))

    def at(self, agent_id: AgentId, path: WorkspacePath) -> FoundDecision | None:
        """Return the decision at this path. Return None if its first revision is no decision of that name."""
        named = _NAME.fullmatch(path)
        with suppress(Failure):
            workspace = self._of(agent_id)
            if workspace is None or named is None:
                return None
            if not (revisions := workspace.log(path, limit=REVISIONS_MAX)):
                workspace.edits.commit()  # the file has just arrived, or was just made
                revisions = workspace.log(path, limit=REVISIONS_MAX)
            if not revisions:
                return None
            first = revisions[-1]
            decision = decision_of(workspace.read(path, view=first.id).text, path)
            if decision.run_id == named[2]:
                return FoundDecision(decision, named[1], first.id, first.at)
        return None

    def names(self, agent_id: AgentId) -> Iterator[tuple[WorkspacePath, RunId]]:
        """Yield the path of each decision file of an agent, with the id of its run. No file is read."""
        with suppress(Failure):
            workspace = self._of(agent_id)
            if workspace is None:
                return
            for stat in workspace.find(FOLDER, lambda name: _NAME.fullmatch(name) is not None):
                named = _NAME.fullmatch(stat.name)
                if named is not None:
                    yield WorkspacePath(stat.name), RunId(named[2])

    def agents_with(self, run_id: str) -> Iterator[AgentId]:
        """Yield the agents that have a decision file of this run."""
        if _RUN.fullmatch(run_id) is None:
            return
        for record in self.workspaces.list(private=True):
            kind, _, agent_id = record.id.partition(":")
            if kind == "agent" and any(one == run_id for _, one in self.names(AgentId(agent_id))):
                yield AgentId(agent_id)

    def note(self, agent_id: AgentId, created_at: str, run_id: str, line: str, by: Author) -> None:
        """Append a line to the log beside a decision. The records hold the same, so a failure is no loss."""
        with suppress(Failure):
            workspace = self._of(agent_id, create=True)
            if workspace is None:
                return
            path = path_of_log(created_at, run_id)
            try:
                file = workspace.read(path)
                text, expect = file.text, file.version
            except NotFound:
                text, expect = "", ABSENT
            at = stamp_of(self.clock.now())[:16].replace("T", " ")
            author = by.saying(SUBMITTED, run_id)
            workspace.write(path, f"{text}- {at} {line}\n", by=author, expect=expect)

    def _of(self, agent_id: AgentId, *, create: bool = False) -> Workspace | None:
        return self.workspaces.private(private_to_agent(agent_id), create=create)


def is_decision_path(path: str) -> bool:
    """Return True for the path of a decision's file, without its log."""
    return not path.endswith(LOG_SUFFIX) and _NAME.fullmatch(path) is not None
