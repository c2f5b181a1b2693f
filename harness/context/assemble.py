"""The request of one step: the snapshot's blocks, then the messages with what was told beside them.

Two requests of a session begin alike up to the message that was the newest in the first of them: the
snapshot is repeated with its bytes, and so is each delta beside the message where it was told first.

Breakpoints, as many as a provider takes: after what all conversations with an agent share, after the
snapshot, after the newest message, and before that after one that was the newest in an earlier request
and is still as it was. That one is there because a provider looks back only so many blocks from the
newest, and one step with many tool calls is longer. Within a turn it is the newest of the request before.
When a turn begins, the one before has just been shortened: then it is the message that that turn began
with, and of the messages no more is read anew than that one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.context.delta import Delta
from harness.context.history_message import is_plain
from harness.context.part import GUIDANCE, INSTRUCTIONS, PromptPart
from harness.context.repair import repair
from harness.context.snapshot import Snapshot
from harness.messages.message import Message, Text
from harness.messages.model_request import Breakpoints, ModelRequest

Numbered = tuple[int, Message]
"""A message under the number of its entry."""

_SHARED = frozenset({INSTRUCTIONS, GUIDANCE})


def assemble(
    snapshot: Snapshot,
    deltas: Iterable[Delta],
    messages: Sequence[Numbered],
    *,
    kept: Sequence[str] = (),
    turn: str | None = None,
) -> ModelRequest:
    """`kept` is what the platform said beside messages for good, and `turn` what it says for this turn
    alone. No user can write among the system's blocks, so that is where they stand: behind the snapshot,
    which they leave as it is. No provider takes a block that says nothing."""
    shared = _block(part for part in snapshot.parts if part.source in _SHARED)
    own = _block(part for part in snapshot.parts if part.source not in _SHARED)
    stable = tuple(filter(str.strip, (shared, own)))
    beside = tuple(filter(str.strip, (*kept, turn or "")))
    sent = repair(_with_told(messages, deltas))
    return ModelRequest(
        (*stable, *beside),
        sent,
        snapshot.tools,
        Breakpoints(tuple(range(len(stable))), _still_the_same(sent)),
    )


def _block(parts: Iterable[PromptPart]) -> str:
    return "\n\n".join(part.text for part in parts)


def _with_told(messages: Sequence[Numbered], deltas: Iterable[Delta]) -> tuple[Message, ...]:
    """What was told beside a message that is left out stands in its place."""
    told: dict[int, list[Text]] = {}
    for delta in deltas:
        told.setdefault(delta.entry, []).append(Text(delta.text))
    shown = dict(messages)
    in_place = {number: Message("user", ()) for number in told.keys() - shown.keys()}
    return tuple(
        Message(message.role, (*message.parts, *told.get(number, ())))
        for number, message in sorted([*shown.items(), *in_place.items()], key=lambda one: one[0])
    )


def _still_the_same(messages: Sequence[Message]) -> tuple[int, ...]:
    found = [at for at, message in enumerate(messages) if message.role == "user"]
    begun = [at for at in found if is_plain(messages[at])]
    is_beginning = len(begun) > 1 and begun[-1] == found[-1]
    return tuple(begun[-2:] if is_beginning else found[-2:])
