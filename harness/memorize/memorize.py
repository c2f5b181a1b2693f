"""Memorize: one durable fact, tied to the moments of a conversation that prove it.

    request ──► rules ──► whose workspace, which key ──► the same as before? ──► answer: unchanged
                                                     │
              conversation ──► groundings are checked while its snapshot is taken
                                                     │
                          archive: snapshot and citation ──► the fact's file ──► old snapshots go

Everything is checked before anything is stored. A call whose answer was lost can be repeated: the snapshot
has the name of its content, the citation and the fact have the key of the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from harness.memorize.archive.archives import ArchivedConversation, Archives, Citation
from harness.memorize.archive.snapshot import take_snapshot
from harness.memorize.grounding import Grounding, GroundingCheck
from harness.memorize.local.local_conversations import LocalConversations, OtherConversations
from harness.memorize.local.local_message import LocalMessage, WholeConversation
from harness.memorize.memories import Memories
from harness.memorize.memorize_request import METADATA_BYTES_MAX, MemorizeRequest
from harness.memorize.memory import (
    KEY_PREFIX,
    EditedMemory,
    MemorizedFact,
    MemoryOrigin,
    attributes_of,
    body_hash,
    tag_slug,
)
from harness.memory.facts.fact import VALUE_CHARACTERS_MAX, Fact, check_key, check_value, fact_id
from harness.memory.facts.fact_secrets import refuse_secrets
from harness.memory.facts.facts import Facts
from workspaces.clock import Clock
from workspaces.errors import Conflict, NotFound, OverLimit, Refused, Unavailable
from workspaces.home.workspaces import private_to_user
from workspaces.ids import Version, namespace
from workspaces.revision import Author
from workspaces.storage.contention import until_written
from workspaces.timestamp import stamp_of

HASH_DIGITS = 24

MemorizeStatus = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Memorized:
    """The result of a call."""

    status: MemorizeStatus
    memory: MemorizedFact
    archive: ArchivedConversation
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "memory": self.memory.as_json(),
            "conversation": self.archive.as_json(),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request whose own parts are right."""

    request: MemorizeRequest
    content: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a memory belongs."""

    facts: Facts
    key: str
    agent: str | None
    request_hash: str


class _Moved(Exception):
    """The fact is another one than was decided on."""


@dataclass(frozen=True, slots=True)
class Memorizer:
    """Memorize for one principal."""

    memories: Memories
    archives: Archives
    own: OtherConversations
    clock: Clock
    default_workspace: str
    """Name or id of the workspace for requests that name neither a workspace nor an agent."""
    refuse_forbidden: Callable[[str, str], None]
    """Raises ForbiddenText for a text that may not be stored. Its first argument says what holds the text."""

    def memorize(
        self,
        request: MemorizeRequest,
        *,
        by: Author,
        local: LocalConversations | None = None,
        sent: WholeConversation | None = None,
    ) -> Memorized:
        """Store a memory. The conversation is the one that was sent, one of this home, one of another agent
        on this machine if the caller may read those, or one that is archived.

        Raises: Refused, which names the field; OverLimit; NotFound; AmbiguousId; EditedMemory; Forbidden.
        """
        checked = self._checked(request)
        check = GroundingCheck(request.groundings)
        conversation = sent or self._conversation(request.conversation_id, local)
        target = self._target(checked, conversation)
        before = _known(target.facts, target.key)
        self._refuse_edited(target.facts, before, checked)
        if before is not None and (same := self._same(target, before, checked)) is not None:
            return same

        def see(message: LocalMessage) -> None:
            self.refuse_forbidden("the conversation", message.text)
            check.see(message)

        snapshot = take_snapshot(conversation.messages(), see)
        groundings = check.close(conversation.raw_event)
        origin = MemoryOrigin(
            conversation.about.id,
            conversation.about.provider,
            snapshot.hash,
            body_hash(checked.content),
            target.request_hash,
            project=conversation.about.project,
            agent=target.agent,
            memory_key=request.memory_key,
        )
        citation = self._citation(target, snapshot.hash, groundings, checked)
        archive = self.archives.keep(conversation.about, snapshot, citation)
        status, fact = self._write(target, checked, origin, groundings, by)
        self.archives.prune(archive.id, self.memories.is_there)
        memory = self.memories.of_fact(target.facts, fact)
        if memory is None:
            raise Unavailable("the memory", "another program removed it at the same moment")
        kept = self.archives.of(conversation.about.provider, conversation.about.id) or archive
        return Memorized(status, self.memories.cited(memory), kept, tuple(check.warnings))

    def _checked(self, request: MemorizeRequest) -> _Checked:
        """Check what the schema cannot say."""
        content = request.content
        if not content.strip():
            raise Refused("content", content, "is blank")
        if len(content) > VALUE_CHARACTERS_MAX:
            raise OverLimit(
                "content", maximum=VALUE_CHARACTERS_MAX, actual=len(content), unit="characters"
            )
        try:
            content = check_value(content)
            check_key(KEY_PREFIX + (request.memory_key or ""))
        except Refused as refused:
            field = "content" if refused.field == "value" else "memory_key"
            raise Refused(field, refused.value, refused.rule) from refused
        tags = dict[str, None]()
        for number, tag in enumerate(request.tags):
            if not (slug := tag_slug(tag)):
                raise Refused(f"tags.{number}", tag, "has no letter or digit")
            tags[slug] = None
        metadata = request.metadata or {}
        told = json.dumps([metadata, [one.metadata for one in request.groundings]])
        if len(told) > METADATA_BYTES_MAX:
            what = "size of metadata"
            raise OverLimit(what, maximum=METADATA_BYTES_MAX, actual=len(told), unit="bytes")
        if not self.memories.facts.may_hold_secrets:
            fields = {"content": content, "memory_key": request.memory_key or "", "metadata": told}
            fields |= {f"tags.{number}": tag for number, tag in enumerate(request.tags)}
            for field, text in fields.items():
                refuse_secrets(field, text)
        return _Checked(request, content, tuple(tags), metadata)

    def _conversation(self, reference: str, local: LocalConversations | None) -> WholeConversation:
        """Return the conversation that a request names.

        Raises: NotFound, AmbiguousId.
        """
        if (own := self.own.find(reference)) is not None:
            return own
        if local is not None:
            with suppress(NotFound):
                return local.whole(reference)
        try:
            archive = self.archives.get(reference)
        except NotFound as missing:
            remedy = "send the conversation with the call, or name one that this server knows"
            raise NotFound("conversation", reference, remedy=remedy) from missing

        def messages() -> Any:
            return self.archives.messages(archive)

        return WholeConversation(archive.about, messages, _no_raw_event)

    def _target(self, checked: _Checked, conversation: WholeConversation) -> _Target:
        request, catalog = checked.request, self.memories.facts
        groundings = [one.model_dump(exclude_none=True) for one in request.groundings]
        said = [checked.content, checked.tags, conversation.about.id, groundings]
        agent = None if request.agent_id is None else catalog.agent_id(request.agent_id)
        rest = [request.confidence, checked.metadata, agent, conversation.about.provider]
        key = KEY_PREFIX + (request.memory_key or _hash(said)[:HASH_DIGITS])
        return _Target(self._facts(request, agent), key, agent, _hash([*said, *rest]))

    def _facts(self, request: MemorizeRequest, agent: str | None) -> Facts:
        """Return the facts of the workspace that the request means.

        Raises: NotFound, Forbidden; Refused if it means none.
        """
        catalog = self.memories.facts
        principal = catalog.principal
        if request.workspace is not None:
            return catalog.of_workspace(request.workspace)
        if not principal.may_configure:
            return catalog.of_workspace(private_to_user(principal.user_id))
        if agent is not None:
            return catalog.of_agent(agent)
        try:
            return catalog.of_workspace(self.default_workspace)
        except NotFound as missing:
            remedy = "name a workspace, or an agent by `agent_id`"
            raise Refused("workspace", None, "is required", remedy=remedy) from missing

    def _refuse_edited(self, facts: Facts, before: Fact | None, checked: _Checked) -> None:
        """Check that no words of a person would be replaced.

        Raises: EditedMemory.
        """
        if before is None or before.source != "manual" or checked.request.overwrite:
            return
        if before.value != checked.content:
            memory = self.memories.of_fact(facts, before)
            if memory is None:
                raise Conflict("fact", before.key, expected="a memory", actual="a person's fact")
            raise EditedMemory(self.memories.cited(memory))

    def _same(self, target: _Target, before: Fact, checked: _Checked) -> Memorized | None:
        """Return the answer to a request that was carried out before."""
        memory = self.memories.of_fact(target.facts, before)
        if memory is None or memory.origin.request != target.request_hash:
            return None
        cited = self.memories.cited(memory)
        archive = self.archives.of(memory.origin.provider, memory.origin.conversation)
        if archive is None or cited.citation is None or before.value != checked.content:
            return None
        if archive.find(memory.origin.snapshot) is None:
            return None
        return Memorized("unchanged", cited, archive)

    def _citation(
        self,
        target: _Target,
        snapshot: str,
        groundings: tuple[Grounding, ...],
        checked: _Checked,
    ) -> Citation:
        scope = target.facts.scope
        account_id = self.memories.facts.principal.account_id
        return Citation(
            fact_id(namespace(account_id, scope.workspace_id), target.key),
            scope.workspace_id,
            target.key,
            snapshot,
            groundings=tuple(one.as_json() for one in groundings),
            metadata=dict(checked.metadata),
            at=stamp_of(self.clock.now()),
        )

    @until_written("the memory", lost=(_Moved,))
    def _write(
        self,
        target: _Target,
        checked: _Checked,
        origin: MemoryOrigin,
        groundings: tuple[Grounding, ...],
        by: Author,
    ) -> tuple[MemorizeStatus, Fact]:
        """Write the fact. It is decided anew if another writer comes first.

        Raises: EditedMemory; WorkspaceBusy.
        """
        request = checked.request
        attributes = attributes_of(origin, checked.tags, request.confidence, groundings)
        before = _known(target.facts, target.key)
        self._refuse_edited(target.facts, before, checked)
        seen = None if before is None else before.version
        written = target.facts.put(
            target.key, checked.content, attributes=attributes, by=by, check=_check_of(seen)
        )
        is_same = not written.is_new and written.fact.version == seen
        status = "created" if written.is_new else "unchanged" if is_same else "updated"
        return status, written.fact


def _check_of(seen: Version | None) -> Any:
    def check(version: Version | None) -> None:
        if version != seen:
            raise _Moved

    return check


def _known(facts: Facts, key: str) -> Fact | None:
    try:
        return facts.get(key)
    except NotFound:
        return None


def _hash(said: object) -> str:
    text = json.dumps(said, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _no_raw_event(index: int) -> str | None:
    """Return nothing: an archive keeps the raw events that are cited, not those that may be."""
    del index
    return None
