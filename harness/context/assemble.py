"""Assembles the request of one step: the snapshot's blocks, then the messages with their deltas.

Two requests of a session begin alike, up to the message that was newest in the first of them. The snapshot is
repeated byte for byte, and so is each delta, beside the message where it first appeared.

Breakpoints mark where the provider may cache the request. There are as many as a provider accepts: after the
blocks that all conversations with an agent share, after the snapshot, after the newest message, and after one
earlier message. That earlier message was the newest in an earlier request and has not changed since. It is
needed because a provider looks back only a limited number of blocks from the newest, and one step with many
tool calls is longer than that. Within a turn it is the newest message of the previous request. When a turn
begins, the previous turn has just been shortened. Then it is the message with which that previous turn began,
so the provider reads no more than that one turn anew.
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
"""The number of an entry and its message."""

_SHARED = frozenset({INSTRUCTIONS, GUIDANCE})


def assemble(
    snapshot: Snapshot,
    deltas: Iterable[Delta],
    messages: Sequence[Numbered],
    *,
    stored_system: Sequence[str] = (),
    turn: str | None = None,
) -> ModelRequest:
    """Return the request for one step.

    `stored_system` are the platform's stored messages; `turn` is its text for this turn alone. Users cannot
    write into the system blocks, so both are put there, after the snapshot, which stays unchanged. Blank
    blocks are left out, because no provider accepts them.
    """
    shared = _block(part for part in snapshot.parts if part.source in _SHARED)
    own = _block(part for part in snapshot.parts if part.source not in _SHARED)
    stable = tuple(filter(str.strip, (shared, own)))
    beside = tuple(filter(str.strip, (*stored_system, turn or "")))
    sent = repair(_with_deltas(messages, deltas))
    return ModelRequest(
        (*stable, *beside),
        sent,
        snapshot.tools,
        Breakpoints(tuple(range(len(stable))), _cached_positions(sent)),
    )


def _block(parts: Iterable[PromptPart]) -> str:
    return "\n\n".join(part.text for part in parts)


def _with_deltas(messages: Sequence[Numbered], deltas: Iterable[Delta]) -> tuple[Message, ...]:
    """Return the messages with the deltas appended. A delta whose message is left out takes its place."""
    texts: dict[int, list[Text]] = {}
    for delta in deltas:
        texts.setdefault(delta.entry, []).append(Text(delta.text))
    shown = dict(messages)
    in_place = {number: Message("user", ()) for number in texts.keys() - shown.keys()}
    return tuple(
        Message(message.role, (*message.parts, *texts.get(number, ())))
        for number, message in sorted([*shown.items(), *in_place.items()], key=lambda one: one[0])
    )


def _cached_positions(messages: Sequence[Message]) -> tuple[int, ...]:
    user_positions = [at for at, message in enumerate(messages) if message.role == "user"]
    turn_starts = [at for at in user_positions if is_plain(messages[at])]
    is_turn_start = len(turn_starts) > 1 and turn_starts[-1] == user_positions[-1]
    return tuple(turn_starts[-2:] if is_turn_start else user_positions[-2:])
