"""What a message asks of the demo model: to remember, to forget, to correct, to list, or an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

WishKind = Literal["remember", "forget", "correct", "list", "answer"]

_REMEMBER = re.compile(
    r"\b(?:remember|note|don't forget|keep in mind)\b(?:\s+(?:that|this))?[\s:,]*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_FORGET = re.compile(
    r"(?:please\s+)?forget\b(?:\s+(?:that|about))?[\s:,]*(.*)", re.IGNORECASE | re.DOTALL
)
_CORRECT = re.compile(r"no\b[\s,:.]*(.+)", re.IGNORECASE | re.DOTALL)
_IT_IS = re.compile(r"(?:it|that|this|they)(?:\s+(?:is|are|was|were)|'s|’s|'re)\s+", re.IGNORECASE)
_IS = re.compile(r"\s(?:is|are|was|were)\s", re.IGNORECASE)
_LIST = re.compile(r"\b(?:know|remember|memory|learnt|learned)\b", re.IGNORECASE)
_WORD = re.compile(r"\w{3,}")
_COMMON = frozenset(
    _WORD.findall(
        "the and that this with for are was were you your what which who how when where why does did "
        "can could would should have has had about from tell know remember please not but"
    )
)
_OF_A_LIST = frozenset(("all", "everything", "list", "memory", "learnt", "learned", "show", "give"))
"""Words of a question that asks for all of memory, and for nothing in it."""


@dataclass(frozen=True, slots=True)
class Wish:
    kind: WishKind
    text: str = ""
    """The fact to remember, to forget, or to put in the place of another."""


def wish_of(message: str) -> Wish:
    """Return the wish of a message. What no rule knows is a question."""
    message = message.strip()
    if message.endswith("?"):
        is_about_all = _LIST.search(message) and not words(message) - _OF_A_LIST
        return Wish("list" if is_about_all else "answer")
    if forget := _FORGET.match(message):
        return Wish("forget", _fact(forget[1]))
    if remember := _REMEMBER.search(message):
        return Wish("remember", _fact(remember[1]))
    correct = _CORRECT.match(message)
    if correct and (_IT_IS.match(correct[1]) or _IS.search(correct[1])):
        return Wish("correct", _fact(correct[1]))
    return Wish("answer")


def corrected(known: str, correction: str) -> str | None:
    """Return a known fact after a correction such as `it is Friday`, or `the day is Friday`.

    Return None if the correction does not fit the fact.
    """
    verb = _IS.search(known)
    short = _IT_IS.match(correction)
    if short is not None:
        return None if verb is None else f"{known[: verb.end()]}{correction[short.end() :]}"
    said = _IS.search(correction)
    if said is None or verb is None:
        return None
    subject = words(correction[: said.start()])
    return correction if subject and subject <= words(known[: verb.start()]) else None


def words(text: str) -> set[str]:
    """Return the words of a text that say what it is about."""
    found = {word.lower() for word in _WORD.findall(text)} - _COMMON
    return {word.rstrip("s") if len(word) > 4 else word for word in found}


def _fact(text: str) -> str:
    return " ".join(text.split()).rstrip(".!")
