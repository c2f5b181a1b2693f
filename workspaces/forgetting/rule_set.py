"""All rules of an account at one moment, ready to search a text.

A place counts for a change only if it is new: what stood there before is no news, even if somebody changed a
line beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from workspaces.forgetting.matcher import FoundText, Matcher, lines_of, merged_places, with_marks
from workspaces.forgetting.pattern_search import PatternSearch, TextSpan
from workspaces.forgetting.rule import ForbiddenRule

Detector = Callable[[str], Iterable[TextSpan]]
"""Returns the places that a detector finds in a text."""


class Marking:
    """Puts marks into texts that belong together, and notes which rules found something there.

    The same texts with these rules alone get the same marks, whatever else was forbidden.
    """

    def __init__(
        self,
        rules: RuleSet | None = None,
        count: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """`count` is told which rules have found something in each text."""
        self._rules = rules
        self._count = count
        self.rule_ids: set[str] = set()

    def __call__(self, text: str) -> str:
        """Return the text with a mark in the place of each forbidden one."""
        if not self._rules:
            return text
        found = self._rules.find_each(text)
        rule_ids = {place.tombstone_id for place in found}
        if rule_ids:
            self._count(rule_ids)
        self.rule_ids.update(rule_ids)
        return with_marks(text, merged_places(found))


class RuleSet:
    """The rules that count in one workspace, or in what is said in an account. Threads may share one."""

    def __init__(
        self,
        rules: Iterable[ForbiddenRule],
        keys: Mapping[str, bytes],
        patterns: PatternSearch,
        detectors: Mapping[str, Detector],
    ) -> None:
        self.rules = tuple(rules)
        self._keys = keys
        self._search = patterns
        self._detectors = detectors

    def __bool__(self) -> bool:
        """Return True if anything is forbidden."""
        return bool(self.rules)

    def find(self, text: str) -> list[FoundText]:
        """Return all places in their order. Places that overlap are one."""
        return merged_places(self.find_each(text))

    def find_each(self, text: str) -> list[FoundText]:
        """Return every place, also those that overlap. They are in no order."""
        found = [place for matcher in self._matchers for place in matcher.find_each(text)]
        return [*found, *self._shapes(text)]

    def find_changed(self, before: str, after: str) -> list[FoundText]:
        """Return the places in `after` that a change has made."""
        if before == after:
            return []
        found = [
            place for matcher in self._matchers for place in matcher.find_changed(before, after)
        ]
        shapes = self._shapes(after)
        if shapes:
            known = Counter(lines_of(before, place) for place in self._shapes(before))
            for place in shapes:
                lines = lines_of(after, place)
                if known[lines] > 0:
                    known[lines] -= 1
                else:
                    found.append(place)
        return merged_places(found)

    def marked(self, text: str) -> str:
        """Return the text with a mark in the place of each forbidden one."""
        return with_marks(text, self.find(text))

    @cached_property
    def words_max(self) -> int:
        """The words of the longest window of a tombstone. 0 without tombstones."""
        return max((matcher.words_max for matcher in self._matchers), default=0)

    @cached_property
    def has_shapes(self) -> bool:
        """True if there is a pattern or a detector."""
        return any(rule.tombstone is None for rule in self.rules)

    @cached_property
    def _matchers(self) -> Sequence[Matcher]:
        by_key: dict[str, list[ForbiddenRule]] = {}
        for rule in self.rules:
            if rule.key_id is not None:
                by_key.setdefault(rule.key_id, []).append(rule)
        return [
            Matcher((rule.tombstone for rule in rules if rule.tombstone), self._keys[key_id])
            for key_id, rules in by_key.items()
            if key_id in self._keys  # else the key has not arrived here yet
        ]

    def _shapes(self, text: str) -> list[FoundText]:
        """Return the places of patterns and detectors."""
        patterns = {rule.id: rule.pattern for rule in self.rules if rule.pattern is not None}
        found: list[FoundText] = []
        # one search for all tells nearly always that there is none
        if patterns and self._search.spans([*patterns.values()], text):
            for rule_id, pattern in patterns.items():
                found += (FoundText(*span, rule_id) for span in self._search.spans([pattern], text))
        for rule in self.rules:
            detector = self._detectors.get(rule.detector or "")
            if detector is not None:
                found += (FoundText(*span, rule.id) for span in detector(text))
        return found
