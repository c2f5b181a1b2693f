"""Rebuild a request from what is stored of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from harness.context.assemble import assemble
from harness.context.history_message import HistoryMessage
from harness.context.prune import prune
from harness.context.receipt import Receipt
from harness.context.snapshot import ShownState
from harness.messages.model_request import ModelRequest
from harness.prompts.prompt_request import flushing
from harness.runtime.templates import render


def as_asked(receipt: Receipt, held: ShownState, said: Sequence[HistoryMessage]) -> ModelRequest:
    """Rebuild the request of a receipt from the shown state and the messages."""
    since = held.snapshot.traffic_from
    messages = prune(said, receipt.pruning, render, running=receipt.turn_id, traffic_from=since)
    request = assemble(held.snapshot, held.deltas, messages)
    match receipt.purpose:
        case "turn":
            return request
        case "flush":
            return flushing(request)
        case _:
            assert_never(receipt.purpose)
