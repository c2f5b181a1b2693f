"""Names that hold a phrase. Others refer to them, so only a person changes them: how, for each kind.

Rules of a platform, addresses and mounts name a workspace, an agent or a user. A mark in the middle of such a
name would break them, and two names could become one.
"""

from __future__ import annotations

from harness.forgetting.found import BeyondReach
from harness.forgetting.record_places import RecordPartition
from workspaces.storage.records import Item

_RENAMED = {
    "workspace": "harness workspace set {} --name NEW",
    "agent": "harness agent set {} --name NEW",
    "sandbox": "harness sandbox set {} --name NEW",
    "user": "harness user set {} --name NEW",
    "account": "harness account set --name NEW",
}
_THEN = "then forget the text once more, because the history of the name holds it"


def renaming(partition: RecordPartition, item: Item) -> BeyondReach:
    """Return the report on an item whose name, or whose place, holds a phrase. The phrase is not in it."""
    kind, _, rest = item.key.sort.partition(":")
    kind, _, index = kind.partition("-")
    if rest and kind in _RENAMED and partition.where == "record":
        named = str(item.value.get("id", rest))
        command = _RENAMED[kind].format(named)
        if kind == "user" and (index == "external_id" or "externalId" in item.value):
            command += "`, or `harness user set " + f"{named} --external-id NEW"
        if kind == "agent":
            command += "`, and mounts with `harness agent set " + f"{named} --workspace W"
        return BeyondReach(f"the name of {kind} {named}", f"rename it: `{command}`; {_THEN}")
    conversation = _conversation(partition, item)
    if conversation is not None:
        return BeyondReach(
            f"a name in conversation {conversation}",
            f"its key never changes: `harness conversation fork {conversation} NEW` copies it under "
            f"another key, and `harness forget --conversation {conversation}` removes it",
        )
    if partition.partition.startswith("claims:"):
        return BeyondReach("the id of an event", "its record expires a day after the answer")
    return BeyondReach(f"a name in a {partition.where}", "it goes with what it belongs to")


def _conversation(partition: RecordPartition, item: Item) -> str | None:
    """Return the id of the conversation that an item belongs to, if it belongs to one."""
    if partition.subject is not None and partition.subject.startswith("conv_"):
        return partition.subject
    if item.key.sort.startswith("conversation:"):
        return item.key.sort.partition(":")[2]
    if partition.partition.startswith("conversation-keys:"):
        return str(item.value["id"])
    return item.value.get("conversationId")
