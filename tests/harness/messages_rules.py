"""What the provider documents of a request: roles, calls and their results, thinking, marks of its cache."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

BREAKPOINTS_MAX = 4

Block = dict[str, Any]
Body = dict[str, Any]


def broken_rule(body: Body, issued: dict[str, str], paused: Sequence[str] = ()) -> str | None:
    """The first documented rule that a request breaks. `issued`: thinking by its signature; `paused`:
    what a request may end in, though it is the assistant's."""
    known = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream"}
    if unknown := sorted(set(body) - known):
        return f"{unknown[0]}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return "max_tokens: Field required"
    if not body.get("model"):
        return "model: Field required"
    return (
        _broken_by_system(body.get("system", []))
        or _broken_by_tools(body.get("tools", []))
        or _broken_by_messages(body.get("messages", []), issued, paused)
        or _broken_by_breakpoints(body)
    )


def _broken_by_system(system: list[Block]) -> str | None:
    if any(block["type"] != "text" or not block["text"].strip() for block in system):
        return "system: text content blocks must be non-empty"
    return None


def _broken_by_tools(tools: list[Block]) -> str | None:
    names = [tool["name"] for tool in tools]
    for tool in tools:
        if not _NAME.fullmatch(tool["name"]):
            return f"tools: {tool['name']!r} does not match the pattern of names"
        if not tool["description"].strip() or tool["input_schema"].get("type") != "object":
            return f"tools: {tool['name']} lacks a description or a schema of type object"
    return "tools: Tool names must be unique" if len(set(names)) < len(names) else None


def _broken_by_messages(
    messages: list[Body], issued: dict[str, str], paused: Sequence[str]
) -> str | None:
    if not messages:
        return "messages: at least one message is required"
    if messages[0]["role"] != "user":
        return "messages: first message must use the user role"
    last = messages[-1]
    if last["role"] != "user" and canonical(last["content"]) not in paused:
        return "messages: the conversation must end with a user message"
    seen: set[str] = set()
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        if number and message["role"] == messages[number - 1]["role"]:
            return f"{where}: roles must alternate"
        if not message["content"]:
            return f"{where}: content must not be empty"
        is_paused = message is last and last["role"] == "assistant"
        rule = (None if is_paused else _broken_by_blocks(message, issued)) or _broken_by_results(
            message, open_calls
        )
        if rule is not None:
            return f"{where}: {rule}"
        open_calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if seen & set(open_calls) or len(set(open_calls)) < len(open_calls):
            return f"{where}: `tool_use` ids must be unique"
        seen |= set(open_calls)
    return None


def _broken_by_blocks(message: Body, issued: dict[str, str]) -> str | None:
    blocks: list[Block] = message["content"]
    for block in blocks:
        kind = block["type"]
        if kind not in _KINDS[message["role"]]:
            return f"a {kind} block may not stand in a message of role {message['role']}"
        if unknown := sorted(set(block) - _FIELDS[kind]):
            return f"{kind}.{unknown[0]}: Extra inputs are not permitted"
        rule = _broken_by_block(block, issued)
        if rule is not None:
            return rule
    if blocks[-1]["type"] == "thinking":
        return "the final block in an assistant message cannot be `thinking`"
    found = {block["tool_use_id"] for block in blocks if block["type"] in _OWN_RESULTS}
    used = {block["id"] for block in blocks if block["type"] == "server_tool_use"}
    if used != found:
        return f"a use of a server tool was found without its result: {min(used ^ found)}"
    return None


def _broken_by_block(block: Block, issued: dict[str, str]) -> str | None:
    match block["type"]:
        case "text" if not block["text"].strip():
            return "text content blocks must contain non-whitespace text"
        case "thinking" if not block.get("signature"):
            return "thinking.signature: Field required"
        case "thinking" if issued.get(block["signature"]) != block["thinking"]:
            return "Invalid `signature` in `thinking` block"
        case "tool_use" if not _NAME.fullmatch(block["name"]):
            return f"tool_use.name: {block['name']!r} does not match the pattern of names"
        case "tool_use" if not _ID.fullmatch(block["id"]):
            return f"tool_use.id: {block['id']!r} does not match the pattern of ids"
        case "tool_result" if block.get("is_error") and not block["content"]:
            return "tool_result: content cannot be empty if `is_error` is true"
        case "tool_use" if not isinstance(block["input"], dict):
            return "tool_use.input: Input should be a valid dictionary"
        case _:
            return None


def _broken_by_results(message: Body, open_calls: list[str]) -> str | None:
    """The results of the previous message's calls come first, one each, and no others."""
    kinds = [block["type"] for block in message["content"]]
    answered = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
    if set(kinds[: len(answered)]) - {"tool_result"}:
        return "tool_result blocks must come first"
    if missing := [call for call in open_calls if call not in answered]:
        return f"`tool_use` ids were found without `tool_result` blocks: {missing[0]}"
    if unknown := [call for call in answered if call not in open_calls]:
        return f"unexpected `tool_use_id` found in `tool_result` blocks: {unknown[0]}"
    return "each tool_use must have a single result" if len(answered) > len(open_calls) else None


def _broken_by_breakpoints(body: Body) -> str | None:
    """In the order of the prompt: tools, system, messages."""
    blocks: list[Block] = [*body.get("tools", []), *body.get("system", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    marks = [block["cache_control"] for block in blocks if "cache_control" in block]
    if len(marks) > BREAKPOINTS_MAX:
        return f"A maximum of {BREAKPOINTS_MAX} blocks with cache_control may be provided"
    if any(mark.get("type") != "ephemeral" or set(mark) - {"type", "ttl"} for mark in marks):
        return "cache_control.type: Input should be 'ephemeral'"
    lives = [mark.get("ttl", "5m") for mark in marks]
    if set(lives) - {"5m", "1h"}:
        return "cache_control.ttl: Input should be '5m' or '1h'"
    if lives != sorted(lives):  # "1h" sorts before "5m"
        return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    return None


_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_OWN_RESULTS = {"web_search_tool_result"}
_KINDS = {
    "user": {"text", "tool_result"},
    "assistant": {
        "text",
        "tool_use",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
    },
}
_FIELDS = {
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "server_tool_use": {"type", "id", "name", "input", "cache_control"},
    "web_search_tool_result": {"type", "tool_use_id", "content", "cache_control"},
}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
