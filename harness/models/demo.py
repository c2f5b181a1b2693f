"""A demo model that needs no key and no network: a few rules instead of understanding.

It implements the same port as a real model. It sees only the request, remembers by calling the tools it is
offered, and answers questions from the memory shown in its prompt.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections import Counter
from typing import Any

from harness.messages.message import Message, Part, Text, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit, TextArrived
from harness.models.demo_reader import inside, saved_memory
from harness.models.model_name import DEMO
from workspaces.ids import new_id
from workspaces.storage.records import JsonObject

_REMEMBER = re.compile(
    r"\b(?:remember|note|don't forget|keep in mind)\b(?:\s+(?:that|this))?[\s:,]*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_HARNESS_TEXTS = ("<memory-change ", "Today is ")
"""The beginnings of the harness's texts beside a message."""
_SUMMARY_INSTRUCTIONS = "You keep the record of a conversation"
"""The beginning of the instructions for writing a summary."""
_FLUSH_TEXT = "(This is said by the harness"
"""The beginning of the harness's text before a summary is written."""
_WORD = re.compile(r"\w{3,}")
_COMMON = frozenset(
    _WORD.findall(
        "the and that this with for are was were you your what which who how when where why does did "
        "can could would should have has had about from tell know remember please not but"
    )
)
_NO_FACT = re.compile(r"(?:that|this|it|\W)*", re.IGNORECASE)
_MORE = re.compile(r"^\(\d+ more lines: read on with offset (\d+)\)\Z", re.MULTILINE)
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)

_SUBMIT = "submit_result"
"""The tool that ends a run with a result."""
_SENTENCE_MAX = 120

_APPENDED, _KNOWN = "written", "known"
_APPEND = f"""\
line={{line}}
if grep -qxF -e "$line" MEMORY.md 2>/dev/null; then echo {_KNOWN}; exit; fi
[ -s MEMORY.md ] || printf '# Memory\\n\\n' > MEMORY.md
[ -z "$(tail -c 1 MEMORY.md)" ] || echo >> MEMORY.md
printf '%s\\n' "$line" >> MEMORY.md && echo {_APPENDED}"""

_HELLO = (
    "I am the offline demo model: I follow a few rules and understand nothing. Say “remember that …” "
    "and I write it to MEMORY.md; ask me about it later, also in a new conversation. For a real model, "
    "set ANTHROPIC_API_KEY."
)


class DemoModel:
    name = DEMO

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        del output_tokens_max
        part = saved_memory(request) if request.forced_tool else _answer(request)
        if isinstance(part, Text):
            emit(TextArrived(part.text))
        return Reply(Message("assistant", (part,)), Usage())


def _answer(request: ModelRequest) -> Part:
    newest = request.messages[-1]
    if request.system and request.system[0].startswith(_SUMMARY_INSTRUCTIONS):
        return Text(_summary(newest.text))
    if any(isinstance(one, Text) and one.text.startswith(_FLUSH_TEXT) for one in newest.parts[-1:]):
        return Text("nothing")
    results = [part for part in newest.parts if isinstance(part, ToolResult)]
    if _user_text(newest):  # a new message: tool results beside it belong to an interrupted turn
        results = []
    question = _newest_question(request)
    offered = {tool.name: tool for tool in request.tools}
    if _SUBMIT in offered:
        return submission(offered[_SUBMIT].schema, question)
    command = _REMEMBER.search(question)
    if command is None or question.rstrip().endswith("?"):
        return Text(_from_memory(question, request))
    fact = " ".join(command[1].split()).rstrip(".!")
    if _NO_FACT.fullmatch(fact):
        return Text("Tell me what to remember: “remember that …”.")
    if {"bash", "write"} <= set(offered):
        return _append(fact, results)
    if not {"read", "edit", "write"} <= set(offered):
        return Text("I would like to remember that, but no workspace is mounted writable here.")
    if not results:
        return _call("read", path="MEMORY.md")
    return _next_step(fact, results[-1], request)


def submission(schema: JsonObject, prompt: str) -> ToolCall:
    """Return a call that submits a result of this schema, from the words of the prompt.

    A word of an enum that the prompt names is chosen, else the last one. Texts are its first sentence.
    """
    words, properties = _words(prompt), schema.get("properties", {})
    required = schema.get("required", [])
    data = {name: _submitted(one, prompt, words) for name, one in properties.items()}
    data = {name: value for name, value in data.items() if name in required or value is not None}
    return _call(_SUBMIT, **data)


def _submitted(schema: JsonObject, prompt: str, words: set[str]) -> Any:
    """Return a value of this schema; None where the prompt says nothing and nothing is needed."""
    match schema:
        case {"enum": [*values]}:
            named = (one for one in values if _words(one) & words)
            return next(named, values[-1])
        case {"type": "string"}:
            line = next((one.strip() for one in prompt.splitlines() if one.strip()), "nothing")
            is_word = "uppercase" in schema.get("description", "")
            return "KEEP" if is_word else line[: min(_SENTENCE_MAX, schema.get("maxLength", 200))]
        case {"type": "integer", "maximum": int(highest)}:
            return highest // 2
        case {"type": "array", "items": {"properties": _}}:
            review = {"item": "all of it", "status": "pending", "evidence": "no rule knows"}
            return [review]
        case _:
            return None


def _summary(text: str) -> str:
    """Return a summary: the user's messages, one line each."""
    earlier = list(inside("summary", text))
    lines = [f"- {' '.join(message.split())}" for message in inside("user", text)]
    return "\n".join([*(earlier or ["The user has said:"]), *lines])


def _append(fact: str, results: list[ToolResult]) -> Part:
    """Return the shell command that writes the fact, or the reply to its result."""
    if not results:
        return _call("bash", command=_APPEND.format(line=shlex.quote(f"- {fact}")))
    output = results[-1].text.strip()
    if output == _APPENDED:
        return Text(f"I have written to MEMORY.md: {fact}.")
    if output == _KNOWN:
        return Text(f"I know that already: {fact}.")
    return Text(f"I could not write that down. {output}")


def _next_step(fact: str, result: ToolResult, request: ModelRequest) -> Part:
    """Return the next step: after reading, an edit, or a write if there is no file; after that, the reply."""
    last = next(call for message in reversed(request.messages) for call in message.tool_calls)
    line = f"- {fact}"
    if last.name != "read":
        if result.is_error:
            return Text(f"I could not write that down. {result.text}")
        return Text(f"I have written to MEMORY.md: {fact}.")
    text = _LINE_NUMBER.sub("", result.text)
    if line in text.splitlines():
        return Text(f"I know that already: {fact}.")
    if more := _MORE.search(result.text):
        return _call("read", path="MEMORY.md", offset=int(more[1]))
    if result.is_error or not text.strip() or result.text.endswith("is empty."):
        return _call("write", path="MEMORY.md", content=f"# Memory\n\n{line}\n")
    ending = _unique_ending(text)
    return _call("edit", path="MEMORY.md", old=ending, new=f"{ending}\n{line}")


def _unique_ending(text: str) -> str:
    """Return the fewest last lines that together occur only once in the text."""
    lines = text.rstrip("\n").split("\n")

    def is_unique(count: int) -> bool:
        ending = "\n".join(lines[-count:])
        return bool(ending.strip()) and text.count(ending) == 1

    count = 1 + bisect_left(range(1, len(lines)), True, key=is_unique)
    return "\n".join(lines[-count:])


def _from_memory(question: str, request: ModelRequest) -> str:
    memory = _without_comments("\n".join(inside("memory", "\n".join(request.system))))
    lines = [line.strip() for line in _changed(memory.splitlines(), request)]
    known = [line.lstrip("-* ") for line in lines if line.startswith(("- ", "* "))]
    wanted = _words(question)
    scored = [(len(wanted & _words(line)), line) for line in known]
    best = [line for score, line in sorted(scored, key=lambda pair: -pair[0]) if score][:3]
    if best:
        return "From my memory: " + "; ".join(best) + "."
    if known:
        return "Nothing in my memory answers that. " + _HELLO
    return "My memory is empty so far. " + _HELLO


def _words(text: str) -> set[str]:
    words = {word.lower() for word in _WORD.findall(text)} - _COMMON
    return {word.rstrip("s") if len(word) > 4 else word for word in words}


def _newest_question(request: ModelRequest) -> str:
    texts = (
        _user_text(message) for message in reversed(request.messages) if message.role == "user"
    )
    return next((text for text in texts if text), "")


def _user_text(message: Message) -> str:
    """Return the message's text without the harness's texts beside it."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return "\n\n".join(text for text in texts if not text.startswith(_HARNESS_TEXTS))


def _changed(lines: list[str], request: ModelRequest) -> list[str]:
    """Return the lines of memory with all changes applied."""
    texts = "\n".join(m.text for m in request.messages if m.role == "user")
    there, gone = Counter(lines), Counter[str]()
    for line in "\n".join(inside("memory-change", texts)).splitlines():
        if line.startswith("+ "):
            lines.append(line[2:])
            there[line[2:]] += 1
        elif line.startswith("- ") and there[line[2:]] > gone[line[2:]]:
            gone[line[2:]] += 1
    current: list[str] = []
    for line in lines:  # of equal lines the first one was removed
        if gone[line]:
            gone[line] -= 1
        else:
            current.append(line)
    return current


def _without_comments(text: str) -> str:
    pieces: list[str] = []
    begin = 0
    while (opening := text.find("<!--", begin)) >= 0 and (
        end := text.find("-->", opening + 4)
    ) >= 0:
        pieces.append(text[begin:opening])
        begin = end + len("-->")
    return "".join([*pieces, text[begin:]])


def _call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(new_id("toolu"), name, dict(arguments))
