"""Translates the provider's errors into failures with a reason and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from harness.messages.model_request import ModelFailure, Usage
from workspaces.storage.records import JsonObject

REASON_CHARACTERS_MAX = 300
"""Characters of a reason: a proxy in between may answer with a whole page."""

_LIMITS_OF_THE_ORGANISATION = {
    "enforced_spend_limit_reached",
    "contract_spend_limit_reached",
}
"""Error codes that come with status 429 like a rate limit, but do not pass after a minute."""

_TOO_LONG = ("too long", "exceed context limit")
"""Phrases by which the provider reports a prompt longer than the window, or one that leaves no room in it for
the requested answer."""


def refusal(error: Any) -> ModelFailure:
    """Return the failure for an error of the provider. An error within a stream has status 200: only its type
    identifies it."""
    text = " ".join(str(getattr(error, "api_message", None) or error).split())
    message = text[:REASON_CHARACTERS_MAX]
    match (error.status_code, getattr(error, "type", None)):
        case _ if _is_about_money(error, text):
            return out_of_money(message)
        case (429 | 529, _) | (_, "overloaded_error" | "rate_limit_error"):
            return _overloaded(error)
        case (401 | 403, _) | (_, "authentication_error" | "permission_error"):
            return wrong_key(f"the provider rejects the API key: {message}")
        case (413, _) | (_, "request_too_large"):
            return too_long()
        case (200 | 400, _) if _is_too_long(text):
            return too_long()
        case (408, _):
            return broken("it timed out while reading the request")
        case (200, kind) if kind != "invalid_request_error":
            return broken(f"it failed while answering ({kind or message})")
        case (status, _) if status >= 500:
            return broken(f"it failed with status {status}", wait_s=_asked_wait_s(error))
        case (status, _):
            remedy = "check the agent's model and configuration"
            return ModelFailure(
                "refused", f"the provider rejects the request ({status}): {message}", remedy
            )


def is_about_thinking(error: Any) -> bool:
    """Return True if the request was refused because of the thinking in it. Newer models accept a block of
    thinking only behind exactly the messages that preceded it originally."""
    is_invalid = error.status_code == 400 and not _is_too_long(str(error))
    return is_invalid and ("thinking" in str(error) or "signature" in str(error))


def wrong_key(reason: str) -> ModelFailure:
    return ModelFailure("key", reason, "set ANTHROPIC_API_KEY to a key that may use this model")


def out_of_money(message: str) -> ModelFailure:
    remedy = (
        "add credit or raise the spend limit in the provider's console, then send the message again"
    )
    return ModelFailure("budget", f"the provider reports insufficient credit: {message}", remedy)


def no_address(reason: str) -> ModelFailure:
    return ModelFailure("refused", reason, "set ANTHROPIC_BASE_URL to a valid address, or unset it")


def unreachable(reason: str) -> ModelFailure:
    remedy = "check the network and ANTHROPIC_BASE_URL, then send the message again"
    return ModelFailure("unreachable", reason, remedy)


def too_long() -> ModelFailure:
    remedy = "start a new conversation, or shorten MEMORY.md"
    return ModelFailure("too_long", "the conversation is longer than the model accepts", remedy)


def window_full(usage: Usage) -> ModelFailure:
    reason = "the answer did not fit into the rest of the model's window"
    return ModelFailure("window_full", reason, "start a new conversation", usage)


def declined(details: JsonObject, usage: Usage) -> ModelFailure:
    """Return the failure for an answer that the model declined. `details` are the provider's explanation, if
    any."""
    explanation = details.get("explanation") or details.get("category")
    reason = "the model declines to answer this"
    if explanation:
        reason = f"{reason} ({' '.join(str(explanation).split())[:REASON_CHARACTERS_MAX]})"
    return ModelFailure("declined", reason, "rephrase the message", usage)


def broken(problem: str, *, wait_s: float | None = None) -> ModelFailure:
    reason = f"the provider answered, but {problem}"
    return ModelFailure("broken", reason, "send the message again", wait_s=wait_s)


def _is_too_long(text: str) -> bool:
    return any(phrase in text for phrase in _TOO_LONG)


def _overloaded(error: Any) -> ModelFailure:
    remedy = "try again in a minute"
    wait_s = _asked_wait_s(error)
    return ModelFailure("overloaded", "the provider is busy", remedy, wait_s=wait_s)


def _is_about_money(error: Any, text: str) -> bool:
    return (
        error.status_code == 402
        or getattr(error, "type", None) == "billing_error"
        or getattr(error, "error_code", None) in _LIMITS_OF_THE_ORGANISATION
        or (error.status_code == 400 and "credit balance" in text)
    )


def _asked_wait_s(error: Any) -> float | None:
    """Return the seconds that the provider asks to wait; None if it does not say or the value makes no sense.
    The header may hold seconds, milliseconds or a date."""
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
