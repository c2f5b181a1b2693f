"""Log each turn in one line: its id, agent, status, tokens and seconds.

A turn that failed for a reason that an operator can change is a warning. Text of people and models is never
logged; a failure is named by its kind, and its remedy is a fixed sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness.conversations.conversation import Conversation
from harness.messages.model_request import NO_USAGE, FailureKind
from harness.runtime.json_log import event
from harness.transcripts.outcome import Ending
from harness.transcripts.transcript import Entry
from workspaces.errors import Failure, Unavailable

_log = logging.getLogger("harness.turns")

_OF_THE_MESSAGE: frozenset[FailureKind] = frozenset(
    {"declined", "too_long", "context_too_long", "window_full"}
)
"""Failures that concern one conversation. All others concern the key, the provider or the machine."""


def log_turn(
    conversation: Conversation, ending: Ending, own: Sequence[Entry], seconds: float
) -> None:
    """Log a turn that ended or that waits now. `own` are its entries."""
    failure = ending.failure
    usage = sum((entry.usage for entry in own), start=NO_USAGE)
    facts = {
        "id": ending.turn_id,
        "agent": conversation.agent_id,
        "conversation": conversation.id,
        "account": conversation.account_id,
        "status": ending.status,
        "tokens": usage.as_json(),
        "seconds": round(seconds, 3),
    }
    if failure is not None:
        facts |= {"code": failure.kind, "remedy": failure.remedy}
    if ending.unavailable:
        facts["unavailable"] = len(ending.unavailable)
    is_of_operator = failure is not None and failure.kind not in _OF_THE_MESSAGE
    is_warning = is_of_operator or bool(ending.unavailable)
    event(_log, "turn", level=logging.WARNING if is_warning else logging.INFO, **facts)


def log_not_begun(conversation: Conversation, why: Failure) -> None:
    """Log an event whose turn could not begin."""
    facts = {
        "agent": conversation.agent_id,
        "conversation": conversation.id,
        "account": conversation.account_id,
        "code": why.code,
    }
    if isinstance(why, Unavailable):
        facts |= {"store": why.what, "reason": why.reason}
    event(_log, "turn not begun", level=logging.WARNING, **facts)
