"""Explain what the model saw in each turn, and when each revision of a memory was first shown.

The explanation is read from the receipts of the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from harness.agents.catalog import AgentCatalog
from harness.context.memory_parts import MEMORY, NOTES
from harness.context.part import memory_of
from harness.context.receipt import Entrance, Receipt, entrances
from harness.context.snapshot import ShownState
from harness.conversations.conversation import Conversation, Conversations
from harness.prompts.prompt_log import PromptLog
from harness.transcripts.transcript import Entry
from workspaces.errors import Failure, NotFound
from workspaces.ids import TurnId
from workspaces.revision import Revision, RevisionId
from workspaces.storage.records import JsonObject
from workspaces.workspace.workspace import Workspace

LOG_MAX = 1_000
"""Revisions to search for those between two shown revisions."""


@dataclass(frozen=True, slots=True)
class ExplainedTurn:
    id: TurnId
    receipts: tuple[Receipt, ...]
    """One receipt for each request to the model."""
    entered: tuple[Entrance, ...]
    """Revisions of memory that no earlier turn has shown."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A request that is the first to show a text, or the first that no longer shows it."""

    receipt: Receipt
    source: str
    revision: RevisionId | None
    is_shown: bool

    def as_json(self) -> JsonObject:
        return {
            "turn": self.receipt.turn_id,
            "receipt": self.receipt.number,
            "at": self.receipt.at,
            "source": self.source,
            "revision": self.revision,
            "shown": self.is_shown,
        }


class Explanation:
    """The explanation of one conversation."""

    def __init__(
        self,
        prompt_log: PromptLog,
        workspaces: Mapping[str, Workspace],
        entries: Iterable[Entry] = (),
    ) -> None:
        """Take the conversation's prompt log and transcript `entries`.

        `workspaces` are keyed by the names under which the agent mounts them.
        """
        self._answers = [
            entry for entry in entries if entry.is_said and entry.message.role == "assistant"
        ]
        self._prompt_log = prompt_log
        self._workspaces = {memory_of(name): one for name, one in workspaces.items()}
        self._receipts = prompt_log.receipts()
        self._shown_state = cache(self._as_shown)

    def turns(self, turn: str | None = None) -> list[ExplainedTurn]:
        """Return all turns, or the one turn whose id begins with `turn`.

        Raises: NotFound when no turn matches, or several do.
        """
        turns = list(self._turns())
        if turn is None:
            return turns
        matching = [one for one in turns if one.id == turn]
        matching = matching or [one for one in turns if one.id.startswith(turn)]
        if len(matching) != 1:
            kind = "turn" if not matching else "single turn that begins with"
            raise NotFound(kind, turn, remedy="without a turn, all of them are explained")
        return matching

    def reason(self, receipt: Receipt) -> str:
        """Return the reason for the snapshot in this request."""
        return self._shown_state(receipt.snapshot, receipt.deltas).snapshot.reason

    def counted(self, receipt: Receipt) -> int | None:
        """Return the tokens of the request as the provider counted them; None when the provider did not."""
        same = [one for one in self._receipts if one.last == receipt.last]
        later = (one for one in self._answers if one.number > receipt.last)
        answer = next(later, None)
        if answer is None or answer.turn_id != receipt.turn_id or same[-1] != receipt:
            return None
        return answer.usage.prompt or None

    def text(self, receipt: Receipt) -> str:
        """Return everything beside the messages that the request showed, as it stood there."""
        shown = self._shown_state(receipt.snapshot, receipt.deltas)
        parts = [part.text for part in shown.snapshot.parts]
        notices = [f"(beside entry {delta.entry})\n{delta.text}" for delta in shown.deltas]
        return "\n\n".join([*parts, *notices])

    def sightings(self, text: str) -> list[Sighting]:
        """Return the requests in which a text first appeared in the shown memory and disappeared from it."""
        seen: dict[str, bool] = {}
        sightings: list[Sighting] = []
        for receipt in self._receipts:
            shown = self._shown_state(receipt.snapshot, receipt.deltas)
            parts = {part.source: part for part in shown.parts if part.is_memory}
            for source in [*parts, *(one for one in seen if one not in parts)]:
                part = parts.get(source)
                is_shown = part is not None and text in part.text
                if is_shown != seen.get(source, False):
                    revision = part.revision if part else None
                    sightings.append(Sighting(receipt, source, revision, is_shown))
                seen[source] = is_shown
        return sightings

    def revisions(self, entrance: Entrance) -> list[Revision]:
        """Return the revisions between the shown one and the one shown before, newest first.

        The list is empty when the workspace does not exist any more.
        """
        workspace = self._workspaces.get(entrance.source)
        if workspace is None:
            return []
        try:
            log = workspace.history.log(
                start=entrance.revision, since=entrance.before, limit=LOG_MAX
            )
        except Failure:
            return []
        revisions = [one for one in log if any(map(_is_memory, one.paths))]
        return revisions if entrance.before else revisions[:1]

    def as_json(self, turn: str | None = None, *, with_text: bool = False) -> JsonObject:
        return {"turns": [self._turn_json(one, with_text) for one in self.turns(turn)]}

    def _turns(self) -> Iterator[ExplainedTurn]:
        entered = entrances(self._receipts)
        for turn_id, receipts in groupby(self._receipts, key=lambda one: one.turn_id):
            own = tuple(receipts)
            mine = tuple(one for one in entered if one.receipt in own)
            yield ExplainedTurn(turn_id, own, mine)

    def _turn_json(self, turn: ExplainedTurn, with_text: bool) -> JsonObject:
        return {
            "turn": turn.id,
            "steps": [
                {
                    "receipt": one.number,
                    "reason": self.reason(one),
                    **one.as_json(),
                    **({"counted": counted} if (counted := self.counted(one)) else {}),
                    **({"text": self.text(one)} if with_text else {}),
                }
                for one in turn.receipts
            ],
            "entered": [self._entrance_json(one) for one in turn.entered],
        }

    def _entrance_json(self, entrance: Entrance) -> JsonObject:
        return {
            "source": entrance.source,
            "revision": entrance.revision,
            "before": entrance.before,
            "receipt": entrance.receipt.number,
            "revisions": [
                {"revision": one.id, "at": one.at, "author": one.author, "subject": one.subject}
                for one in self.revisions(entrance)
            ],
        }

    def _as_shown(self, snapshot: int, deltas: int) -> ShownState:
        receipt = next(
            one for one in self._receipts if (one.snapshot, one.deltas) == (snapshot, deltas)
        )
        return self._prompt_log.as_shown(receipt)


def explain(
    conversation: Conversation, agents: AgentCatalog, conversations: Conversations
) -> Explanation:
    """Explain what a conversation's turns saw, and which turn first saw which revision of which memory."""
    try:
        mounts = agents.bindings(agents.get(conversation.agent_id))
    except NotFound:  # the agent was deleted, and the names of its mounts with it
        mounts = []
    workspaces = {mount.name: mount.here for mount in mounts if not mount.is_distant}
    entries = conversations.transcript(conversation).entries()
    return Explanation(conversations.prompt_log(conversation), workspaces, entries)


def _is_memory(path: str) -> bool:
    return path == MEMORY or path.startswith(f"{NOTES}/")
