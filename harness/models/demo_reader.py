"""The rule of the demo model for reading a conversation: sentences that sound lasting are remembered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.messages.message import ToolCall
from harness.messages.model_request import ModelRequest
from workspaces.ids import new_id
from workspaces.storage.records import JsonObject

_LASTING = re.compile(
    r"(?:we|our|the|i)\b.{0,80}?\b(?:use|uses|is|are|live|lives|runs?|deploys?|prefer|keep|keeps)\b",
    re.IGNORECASE,
)
"""The beginning of a sentence that the rule takes for a lasting fact."""
_WORD = re.compile(r"[a-z0-9]{2,}")
_SENTENCE = re.compile(r"[^.!?\n]{1,300}[.!?\n]?")
_SAVED_MAX = 5


def saved_memory(request: ModelRequest) -> ToolCall:
    """Return a call that remembers sentences of the user that sound lasting.

    A sentence about the user becomes a line of the core block, if blocks are asked for.
    """
    shown = request.messages[-1].text
    sentences = [one for text in inside("part", shown) for one in _lasting(text)][:_SAVED_MAX]
    wanted = request.tools[0].schema["properties"]
    arguments: JsonObject = {}
    if "facts" in wanted:
        arguments["facts"] = [
            {
                "key": "-".join(_WORD.findall(one.lower())[:4]),
                "value": one,
                "scope": "agent" if _is_about_user(one) else "workspace",
                "confidence": 0.9,
            }
            for one in sentences
        ]
    if "blocks" in wanted:
        blocks = list(inside('memory block="core" scope="user"', f"{shown}\n"))
        before = blocks[0].strip("\n") if blocks else ""
        lines = [f"- {one}" for one in sentences if _is_about_user(one) and one not in before]
        content = "\n".join([*([before] if before else []), *lines])
        core = {"scope": "user", "block": "core", "content": content}
        arguments["blocks"] = [core] if lines else []
    return ToolCall(new_id("toolu"), request.tools[0].name, arguments)


def _lasting(text: str) -> Iterator[str]:
    """Yield the sentences of the user that sound like lasting facts."""
    is_users = False
    for line in text.splitlines():
        if line.startswith(("user: ", "assistant: ")):
            is_users = line.startswith("user: ")
            line = line.partition(": ")[2]
        for sentence in _SENTENCE.findall(line) if is_users else ():
            said = sentence.strip()
            if not said.endswith("?") and _LASTING.match(said):
                yield said.rstrip(".!")


def _is_about_user(sentence: str) -> bool:
    return sentence.lower().startswith("i ")


def inside(tag: str, text: str) -> Iterator[str]:
    """Yield the lines between each opening and closing tag of this name."""
    begin, end = f"<{tag}", f"\n</{tag}>"
    at = text.find(begin)
    while at >= 0:
        at += len(begin)
        if text[at : at + 1] in {" ", ">"}:
            at = text.find(">", at)
            closing = text.find(end, at + 2)
            if at < 0 or closing < 0:
                return
            if text[at + 1] == "\n":
                yield text[at + 2 : closing]
                at = closing
        at = text.find(begin, at)
