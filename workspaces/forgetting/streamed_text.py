"""Put marks into a text that arrives piece by piece, and release it as early as possible.

What is released can never become part of a forbidden text, whatever follows. All pieces together are the
text as it would be marked when whole.

    a tombstone     covers a number of words. So the longest number, less one, is held back, and a word that
                    may still grow
    a pattern, or   covers a part of one line. So an unfinished line is held back. A place that reaches the
    a detector      end of a line may go on (a private key does), and is held back too

The text is cut only where both sides are read as they are read together: between two words, and at the
beginning of a line if patterns or detectors are looked for.
"""

from __future__ import annotations

from bisect import bisect_right

from workspaces.forgetting.matcher import with_marks
from workspaces.forgetting.rule_set import RuleSet
from workspaces.forgetting.words import PlacedWords, words_of

HELD_CHARACTERS = 500
"""More than the words of most windows. A text of which more is held back has no place to cut it for a
long time, such as a run of letters without a blank. It is read again after it has grown by an eighth, so that
reading it takes time linear in its length."""


class StreamedText:
    """The parts of one answer, one after the other. No text is looked for across two parts."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._held = ""
        self._part = 0
        self._next_look = 0
        """The length of what is held back at which it is looked at again."""

    def take(self, text: str, part: int = 0) -> str:
        """Add a piece of a part, and return what can be released."""
        before = ""
        if part != self._part:
            before, self._part = self.rest(), part
        self._held += text
        if len(self._held) < self._next_look:
            return before
        released = self._released()
        is_long = not released and len(self._held) > HELD_CHARACTERS
        self._next_look = len(self._held) * 9 // 8 if is_long else 0
        return before + released

    def rest(self) -> str:
        """Return the text that is held back, when its part is whole."""
        held, self._held, self._next_look = self._held, "", 0
        return self._rules.marked(held)

    def withdraw(self) -> None:
        """Forget what is held back: the answer begins anew."""
        self._held, self._next_look = "", 0

    def _released(self) -> str:
        text = self._held
        if self._rules.has_shapes and "\n" not in text:
            return ""
        words = words_of(text) if self._rules.words_max else None
        cut = len(text) if words is None else self._decided(words)
        cut = self._safe_cut(cut, words)
        if cut == 0:
            return ""
        places = self._rules.find(text)
        # a place over the cut, or up to it, may go on with what follows
        while places and places[-1].end >= cut:
            place = places.pop()
            if place.start < cut:
                cut = self._safe_cut(place.start, words)
        self._held = text[cut:]
        return with_marks(text[:cut], places)

    def _decided(self, words: PlacedWords) -> int:
        """Return the end of the text in which no tombstone can begin that reaches beyond what has arrived."""
        count = len(words.texts)
        if count == 0:
            return _after_ascii(self._held)
        # a word ends for certain if a separator of ASCII follows: any other character might join it
        behind = self._held[words.ends[-1] : words.ends[-1] + 1]
        is_whole = behind != "" and behind.isascii()
        first = count - self._rules.words_max + is_whole
        return _after_ascii(self._held) if first >= count else words.starts[max(0, first)]

    def _safe_cut(self, cut: int, words: PlacedWords | None) -> int:
        """Return the last place up to `cut` where the text can be cut."""
        if self._rules.has_shapes or words is None:
            return self._held.rfind("\n", 0, cut) + 1
        last = words.ends[-1] if words.ends else 0
        if cut > last:
            return min(cut, _after_ascii(self._held))
        number = bisect_right(words.starts, cut) - 1
        # one character can fold into several words
        while number > 0 and words.starts[number] < words.ends[number - 1]:
            number -= 1
        return words.starts[number] if number >= 0 else 0


def _after_ascii(text: str) -> int:
    """Return the end of the last character of ASCII. What follows it may be joined by the next character."""
    if text.isascii():
        return len(text)
    return next((at + 1 for at in range(len(text) - 1, -1, -1) if text[at].isascii()), 0)
