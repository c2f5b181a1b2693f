"""A demo model that needs no key and no network: a few rules instead of understanding.

It implements the same port as a real model. It sees only the request, remembers by calling the tools it is
offered, and answers questions from the memory shown in its prompt.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Any

from harness.messages.message import Message, Part, Text, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit, TextArrived
from harness.models.demo_reader import inside, saved_memory
from harness.models.demo_wish import Wish, corrected, wish_of, words
from harness.models.model_name import DEMO
from workspaces.ids import new_id
from workspaces.storage.records import JsonObject

_HARNESS_TEXTS = ("<memory-change ", "Today is ")
"""The beginnings of the harness's texts beside a message."""
_SUMMARY_INSTRUCTIONS = "You keep the record of a conversation"
"""The beginning of the instructions for writing a summary."""
_FLUSH_TEXT = "(This is said by the harness"
"""The beginning of the harness's text before a summary is written."""
_NO_FACT = re.compile(r"(?:that|this|it|\W)*", re.IGNORECASE)
_MORE = re.compile(r"^\(\d+ more lines: read on with offset (\d+)\)\Z", re.MULTILINE)
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)

_SUBMIT = "submit_result"
"""The tool that ends a run with a result."""
_SENTENCE_MAX = 120

LISTED_MAX = 30
"""Facts in the answer to a question for all of memory."""

_TOLD = re.compile(
    r"(?:From my memory|I have written to MEMORY\.md|I know that already|Corrected in MEMORY\.md): (.+)",
    re.DOTALL,
)
"""An answer that names a fact, which a correction then means."""

_EXAMPLES = {
    "remember": "remember that …",
    "forget": "forget that …",
    "correct": "no, the deploy day is Friday",
}
_EXPLAINED = {
    "forget": "“What do you know?” lists what I know.",
    "correct": "Name what is wrong: “no, the deploy day is Friday”.",
}

_APPENDED, _KNOWN = "written", "known"
_APPEND = f"""\
line={{line}}
if grep -qxF -e "$line" MEMORY.md 2>/dev/null; then echo {_KNOWN}; exit; fi
[ -s MEMORY.md ] || printf '# Memory\\n\\n' > MEMORY.md
[ -z "$(tail -c 1 MEMORY.md)" ] || echo >> MEMORY.md
printf '%s\\n' "$line" >> MEMORY.md && echo {_APPENDED}"""

_HELLO = (
    "I am the offline demo model: I follow a few rules and understand nothing. Say “remember that …” "
    "and I write it to MEMORY.md; ask me about it later, also in a new conversation. “Forget that …” removes "
    "a line, “no, it is …” corrects the last one, and “what do you know?” lists them. For a real model, set "
    "ANTHROPIC_API_KEY."
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
    match wish_of(question):
        case Wish("answer"):
            return Text(_from_memory(question, request))
        case Wish("list"):
            return Text(_all_of_memory(request))
        case wish:
            return _carry_out(wish, results, set(offered), request)


def _carry_out(
    wish: Wish, results: list[ToolResult], offered: set[str], request: ModelRequest
) -> Part:
    """Return the next step of a wish that changes memory."""
    if _NO_FACT.fullmatch(wish.text):
        return Text(f"Tell me what to {wish.kind}: “{_EXAMPLES[wish.kind]}”.")
    if wish.kind == "remember" and {"bash", "write"} <= offered:
        return _append(wish.text, results)
    if not {"read", "edit", "write"} <= offered:
        return Text(f"I would like to {wish.kind} that, but no workspace is mounted writable here.")
    if not results:
        return _call("read", path="MEMORY.md")
    if wish.kind == "remember":
        return _next_step(wish.text, results[-1], request)
    return _next_change(wish, results[-1], request)


def submission(schema: JsonObject, prompt: str) -> ToolCall:
    """Return a call that submits a result of this schema, from the words of the prompt.

    A word of an enum that the prompt names is chosen, else the last one. Texts are its first sentence.
    """
    named, properties = words(prompt), schema.get("properties", {})
    required = schema.get("required", [])
    data = {name: _submitted(one, prompt, named) for name, one in properties.items()}
    data = {name: value for name, value in data.items() if name in required or value is not None}
    return _call(_SUBMIT, **data)


def _submitted(schema: JsonObject, prompt: str, said: set[str]) -> Any:
    """Return a value of this schema; None where the prompt says nothing and nothing is needed."""
    match schema:
        case {"enum": [*values]}:
            named = (one for one in values if words(one) & said)
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


def _next_change(wish: Wish, result: ToolResult, request: ModelRequest) -> Part:
    """Return the next step of a removal or a correction: after reading, an edit; after that, the reply."""
    last = next(call for message in reversed(request.messages) for call in message.tool_calls)
    if last.name != "read":
        if result.is_error:
            return Text(f"I could not {wish.kind} that. {result.text}")
        done, key = ("Forgotten", "old") if wish.kind == "forget" else ("Corrected", "new")
        line = str(last.input[key]).rstrip("\n").rpartition("\n")[2]
        return Text(f"{done} in MEMORY.md: {_fact_of(line)}.")
    lines = _LINE_NUMBER.sub("", result.text).split("\n")
    known = {number: _fact_of(line) for number, line in enumerate(lines) if _is_fact(line)}
    found = _meant(wish, known, request)
    if not found and (more := _MORE.search(result.text)):
        return _call("read", path="MEMORY.md", offset=int(more[1]))
    if len(found) > 1:
        return Text("Which one do you mean? " + "; ".join(known[number] for number in found) + ".")
    if not found:
        return Text(f"I do not know that: {wish.text}. " + _EXPLAINED[wish.kind])
    (number,) = found
    mark = lines[number][: lines[number].index(known[number])]
    new = None if wish.kind == "forget" else corrected(known[number], wish.text)
    return _edit_line(lines, number, None if new is None else f"{mark}{new}")


def _meant(wish: Wish, known: Mapping[int, str], request: ModelRequest) -> list[int]:
    """Return the lines that a wish means: the one that it repeats, else all that fit."""
    exact = [number for number, fact in known.items() if fact == wish.text]
    if wish.kind == "forget":
        wanted = words(wish.text)
        fitting = [number for number, fact in known.items() if wanted and wanted <= words(fact)]
        return exact[:1] or fitting
    fitting = [number for number, fact in known.items() if corrected(fact, wish.text) is not None]
    told = [number for number in fitting if known[number] == _last_fact(request)]
    return told[:1] or ([] if _is_about_it(wish.text) else fitting)


def _last_fact(request: ModelRequest) -> str | None:
    """Return the fact that the newest answer has told or written down."""
    for message in reversed(request.messages):
        if message.role == "assistant" and (told := _TOLD.match(message.text)):
            return told[1].partition("; ")[0].rstrip(".")
    return None


def _is_about_it(correction: str) -> bool:
    """Return True if a correction names no subject, so that it means the newest answer."""
    return corrected("x is y", correction) is not None


def _edit_line(lines: list[str], number: int, new: str | None) -> ToolCall:
    """Return the call that replaces a line, or removes it for None, with as many lines before it as make the
    place unique."""
    text = "\n".join(lines)
    for first in range(number, -1, -1):
        before, old = lines[first:number], "\n".join(lines[first : number + 1])
        is_removal = new is None and not before
        if old.strip() and text.count(old) == 1 and not is_removal:
            return _call("edit", path="MEMORY.md", old=old, new="\n".join([*before, *_given(new)]))
    old = "\n".join(lines[: number + 1])
    return _call(
        "edit", path="MEMORY.md", old=f"{old}\n", new="".join(f"{one}\n" for one in _given(new))
    )


def _given(line: str | None) -> list[str]:
    return [] if line is None else [line]


def _is_fact(line: str) -> bool:
    return line.startswith(("- ", "* "))


def _fact_of(line: str) -> str:
    return line.lstrip("-* ")


def _unique_ending(text: str) -> str:
    """Return the fewest last lines that together occur only once in the text."""
    lines = text.rstrip("\n").split("\n")

    def is_unique(count: int) -> bool:
        ending = "\n".join(lines[-count:])
        return bool(ending.strip()) and text.count(ending) == 1

    count = 1 + bisect_left(range(1, len(lines)), True, key=is_unique)
    return "\n".join(lines[-count:])


def _known(request: ModelRequest) -> list[str]:
    """Return the facts that the prompt shows."""
    memory = _without_comments("\n".join(inside("memory", "\n".join(request.system))))
    lines = [line.strip() for line in _changed(memory.splitlines(), request)]
    return [_fact_of(line) for line in lines if _is_fact(line)]


def _all_of_memory(request: ModelRequest) -> str:
    known = _known(request)
    if not known:
        return "My memory is empty so far. " + _HELLO
    listed = "\n".join(f"- {fact}" for fact in known[:LISTED_MAX])
    more = f"\n- … and {len(known) - LISTED_MAX:,} more" if len(known) > LISTED_MAX else ""
    return f"I know:\n{listed}{more}"


def _from_memory(question: str, request: ModelRequest) -> str:
    known = _known(request)
    wanted = words(question)
    scored = [(len(wanted & words(line)), line) for line in known]
    best = [line for score, line in sorted(scored, key=lambda pair: -pair[0]) if score][:3]
    if best:
        return "From my memory: " + "; ".join(best) + "."
    if known:
        return "Nothing in my memory answers that. " + _HELLO
    return "My memory is empty so far. " + _HELLO


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
