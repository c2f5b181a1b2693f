"""The tools of facts: list, put and delete."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import (
    ADDS,
    READS,
    REPLACES,
    McpCall,
    McpTool,
    ToolInput,
    ToolOutput,
    fitting,
)
from harness.memory.facts.fact import Fact
from harness.memory.facts.facts import Facts
from workspaces.errors import NotFound, Refused
from workspaces.history.source import Source
from workspaces.ids import Version
from workspaces.workspace.decided_files import VersionCheck


class FactsArguments(ToolInput):
    agent_id: str | None = None
    """The facts of this agent. Null: those of the workspace."""
    workspace: str | None = None


class ListFactsArguments(FactsArguments):
    source: Source | None = None
    pinned: bool | None = None
    containing: str | None = None
    """Only facts whose key or value holds this text, in any case."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    offset: Annotated[int, Field(ge=0)] = 0


class PutFactArguments(FactsArguments):
    key: str
    value: str
    version: str | None = None
    """Only if the fact has this version. Null: whatever it is now."""


class DeleteFactArguments(FactsArguments):
    fact: str
    """Id or key."""
    version: str | None = None


class ListedFact(ToolOutput):
    id: str
    key: str
    value: str
    source: str
    author: str
    pinned: bool
    importance: int
    updated_at: str
    version: str


class ListFactsOutput(ToolOutput):
    facts: list[ListedFact]
    left_out: int
    next_offset: int | None


class PutFactOutput(ToolOutput):
    fact: ListedFact
    created: bool
    replaced: str | None
    """The words of a person that this call has replaced."""


class DeleteFactOutput(ToolOutput):
    deleted: bool
    key: str


def _facts(arguments: FactsArguments, call: McpCall) -> Facts:
    catalog = call.caller.services.facts
    if arguments.agent_id is not None:
        if arguments.workspace is not None:
            rule = "cannot be given together with `agent_id`"
            raise Refused("workspace", arguments.workspace, rule, remedy="leave out one of them")
        return catalog.of_agent(call.caller.agent(arguments.agent_id).id)
    return catalog.over(call.caller.workspace(arguments.workspace))


def _row(fact: Fact) -> ListedFact:
    return ListedFact(
        id=fact.id,
        key=fact.key,
        value=fact.value,
        source=fact.source,
        author=fact.author,
        pinned=fact.pinned,
        importance=fact.importance,
        updated_at=fact.updated_at,
        version=fact.version,
    )


def _list(arguments: ListFactsArguments, call: McpCall) -> ListFactsOutput:
    found = _facts(arguments, call).list(source=arguments.source, pinned=arguments.pinned)
    if arguments.containing is not None:
        wanted = arguments.containing.casefold()
        found = [one for one in found if wanted in f"{one.key}\n{one.value}".casefold()]
    asked = found[arguments.offset : arguments.offset + arguments.limit]
    kept = fitting([_row(fact) for fact in asked])
    following = arguments.offset + len(kept)
    return ListFactsOutput(
        facts=kept,
        left_out=max(0, len(found) - following),
        next_offset=following if following < len(found) and kept else None,
    )


def _put(arguments: PutFactArguments, call: McpCall) -> PutFactOutput:
    facts = _facts(arguments, call)
    before = _known(facts, arguments.key)
    written = facts.put(
        arguments.key,
        arguments.value,
        by=call.caller.author,
        check=_check(facts, arguments.key, arguments.version),
    )
    is_persons = before is not None and before.source == "manual"
    is_other = before is not None and before.value != written.fact.value
    return PutFactOutput(
        fact=_row(written.fact),
        created=written.is_new,
        replaced=before.value if before is not None and is_persons and is_other else None,
    )


def _delete(arguments: DeleteFactArguments, call: McpCall) -> DeleteFactOutput:
    facts = _facts(arguments, call)
    key = facts.get(arguments.fact).key
    check = _check(facts, key, arguments.version)
    facts.delete(arguments.fact, by=call.caller.author, check=check)
    return DeleteFactOutput(deleted=True, key=key)


def _known(facts: Facts, key: str) -> Fact | None:
    try:
        return facts.get(key)
    except NotFound:
        return None


def _check(facts: Facts, key: str, wanted: str | None) -> VersionCheck | None:
    """Return the check of a stated version. It raises Refused, which shows the fact as it is now."""
    if wanted is None:
        return None

    def check(version: Version | None) -> None:
        if version == wanted:
            return
        now = _known(facts, key)
        if now is None:
            raise Refused("version", wanted, "names a fact that is not there any more")
        rule = f"is stale. The fact says now: {now.value}"
        remedy = f"name version {now.version} to replace that"
        raise Refused("version", wanted, rule, remedy=remedy)

    return check


def _list_text(output: ListFactsOutput) -> str:
    if not output.facts:
        return "There are no such facts."
    lines = [
        f"- {fact.key}: {fact.value} ({fact.source}, {fact.updated_at[:10]}"
        f"{', pinned' if fact.pinned else ''})"
        for fact in output.facts
    ]
    if output.left_out:
        lines.append(f"({output.left_out} more: list on with offset {output.next_offset})")
    return "\n".join(lines)


def _put_text(output: PutFactOutput) -> str:
    verb = "Created" if output.created else "Set"
    lines = [f"{verb}: {output.fact.key} (version {output.fact.version})."]
    if output.replaced is not None:
        lines.append(f"This replaced the words of a person: {output.replaced}")
    return "\n".join(lines)


def _delete_text(output: DeleteFactOutput) -> str:
    return f"Deleted: {output.key}. Its text stays in the history."


LIST_FACTS = McpTool(
    "list_facts",
    "List facts",
    input=ListFactsArguments,
    output=ListFactsOutput,
    run=_list,
    text=_list_text,
    hints=READS,
)
PUT_FACT = McpTool(
    "put_fact",
    "Set a fact",
    input=PutFactArguments,
    output=PutFactOutput,
    run=_put,
    text=_put_text,
    hints=ADDS,
)
DELETE_FACT = McpTool(
    "delete_fact",
    "Delete a fact",
    input=DeleteFactArguments,
    output=DeleteFactOutput,
    run=_delete,
    text=_delete_text,
    hints=REPLACES,
)
