"""What the provider's refusals mean, and what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from harness.messages.model_request import ModelFailure, Usage
from workspaces.storage.records import JsonObject

REASON_CHARACTERS_MAX = 300
"""A proxy in between may answer with a page."""

_LIMITS_OF_THE_ORGANISATION = {
    "enforced_spend_limit_reached",
    "contract_spend_limit_reached",
}
"""Answered with 429 like a lack of time, but no minute's wait will help."""

_TOO_LONG = ("too long", "exceed context limit")
"""What it says of a prompt that is longer than the window, and of one that leaves no room in it for the
answer that was asked for."""


def refusal(error: Any) -> ModelFailure:
    """An error within a stream comes with status 200: then its type alone says what it is."""
    told = " ".join(str(getattr(error, "api_message", None) or error).split())
    message = told[:REASON_CHARACTERS_MAX]
    match (error.status_code, getattr(error, "type", None)):
        case _ if _is_about_money(error, told):
            return out_of_money(message)
        case (429 | 529, _) | (_, "overloaded_error" | "rate_limit_error"):
            return _overloaded(error)
        case (401 | 403, _) | (_, "authentication_error" | "permission_error"):
            return wrong_key(f"the provider refuses the key: {message}")
        case (413, _) | (_, "request_too_large"):
            return too_long()
        case (200 | 400, _) if _is_too_long(told):
            return too_long()
        case (408, _):
            return broken("it took too long to take the question")
        case (200, kind) if kind != "invalid_request_error":
            return broken(f"it failed on the way ({kind or message})")
        case (status, _) if status >= 500:
            return broken(f"it failed with status {status}", wait_s=_asked_wait_s(error))
        case (status, _):
            remedy = "check the agent's model and configuration"
            return ModelFailure("refused", f"the provider refuses ({status}): {message}", remedy)


def is_about_thinking(error: Any) -> bool:
    """Whether a request is refused for the thinking in it: newer models take a block back only behind
    exactly what stood before it when they made it."""
    is_invalid = error.status_code == 400 and not _is_too_long(str(error))
    return is_invalid and ("thinking" in str(error) or "signature" in str(error))


def wrong_key(reason: str) -> ModelFailure:
    return ModelFailure("key", reason, "set ANTHROPIC_API_KEY to a key that may use this model")


def out_of_money(message: str) -> ModelFailure:
    remedy = "add credit or raise the spend limit in the provider's console, then say it again"
    return ModelFailure("budget", f"The provider reports insufficient credit: {message}", remedy)


def no_address(reason: str) -> ModelFailure:
    return ModelFailure("refused", reason, "set ANTHROPIC_BASE_URL right, or leave it out")


def unreachable(reason: str) -> ModelFailure:
    remedy = "check the network and ANTHROPIC_BASE_URL, then say it again"
    return ModelFailure("unreachable", reason, remedy)


def too_long() -> ModelFailure:
    remedy = "begin a new conversation, or shorten MEMORY.md"
    return ModelFailure("too_long", "the conversation is longer than the model can take", remedy)


def window_full(usage: Usage) -> ModelFailure:
    reason = "the answer did not fit into what the conversation leaves of the model's window"
    return ModelFailure("window_full", reason, "begin a new conversation", usage)


def declined(details: JsonObject, usage: Usage) -> ModelFailure:
    """`details` are what the provider says of a refusal of the model's own, if anything."""
    told = details.get("explanation") or details.get("category")
    reason = "the model declines to answer this"
    if told:
        reason = f"{reason} ({' '.join(str(told).split())[:REASON_CHARACTERS_MAX]})"
    return ModelFailure("declined", reason, "say it in other words", usage)


def broken(what: str, *, wait_s: float | None = None) -> ModelFailure:
    reason = f"the provider answered, but {what}"
    return ModelFailure("broken", reason, "say it again", wait_s=wait_s)


def _is_too_long(told: str) -> bool:
    return any(words in told for words in _TOO_LONG)


def _overloaded(error: Any) -> ModelFailure:
    remedy = "try again in a minute"
    wait_s = _asked_wait_s(error)
    return ModelFailure("overloaded", "the provider is busy", remedy, wait_s=wait_s)


def _is_about_money(error: Any, told: str) -> bool:
    return (
        error.status_code == 402
        or getattr(error, "type", None) == "billing_error"
        or getattr(error, "error_code", None) in _LIMITS_OF_THE_ORGANISATION
        or (error.status_code == 400 and "credit balance" in told)
    )


def _asked_wait_s(error: Any) -> float | None:
    """In seconds, in milliseconds or as a date; None for what is not said or makes no sense."""
    headers: Mapping[str, str] = error.response.headers
    try:
        if stated_ms := headers.get("retry-after-ms"):
            seconds = float(stated_ms) / 1000
        else:
            seconds = _seconds(headers.get("retry-after") or "0")
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 and (isfinite(seconds) or seconds == float("inf")) else None


def _seconds(stated: str) -> float:
    if not stated[:1].isalpha() or stated.lower() in {"inf", "infinity", "nan"}:
        return float(stated)
    moment = parsedate_to_datetime(stated)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
