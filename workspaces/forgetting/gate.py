"""The gate of an account: every text that is about to be kept is searched for what is forbidden."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from workspaces.errors import ForbiddenPlace, ForbiddenText, Refused
from workspaces.forgetting.matcher import FoundText, bytes_with_marks, readings, with_marks
from workspaces.forgetting.pattern_search import PatternSearch
from workspaces.forgetting.rule import (
    ForbiddenRule,
    RuleKind,
    TombstoneKey,
    detector_id,
    new_key,
    pattern_id,
)
from workspaces.forgetting.rule_records import KnownRules, RuleRecords
from workspaces.forgetting.rule_set import Detector, Marking, RuleSet
from workspaces.forgetting.streamed_text import StreamedText
from workspaces.forgetting.tombstone import KEY_BYTES, tombstone_of
from workspaces.timestamp import stamp_of

READ_AGE_S_MAX = 1.0
"""A read may use rules of so many seconds ago. Who is about to keep a text asks for them anew."""

_SETS_MAX = 64


class ForbiddenTexts:
    """What is forbidden in an account, in its files and in what is said. Threads may share it."""

    def __init__(
        self, records: RuleRecords, patterns: PatternSearch, detectors: Mapping[str, Detector]
    ) -> None:
        self.records = records
        self._patterns = patterns
        self._detectors = detectors
        self._sets: dict[tuple[int, str | None], RuleSet] = {}
        self._lock = threading.Lock()

    def forbid_pattern(self, pattern: str, *, by: str, workspace_id: str | None = None) -> str:
        """Forbid what a pattern matches, and return the id of the rule.

        Raises: Refused or OverLimit for a pattern that cannot be used.
        """
        self._patterns.check(pattern)
        return self.records.forbid_pattern(pattern, by=by, workspace_id=workspace_id).id

    def forbid_detected(self, detector: str, *, by: str, workspace_id: str | None = None) -> str:
        """Forbid what a detector finds, and return the id of the rule.

        Raises: Refused for a name that no detector has.
        """
        self._check_detector(detector)
        return self.records.forbid_detected(detector, by=by, workspace_id=workspace_id).id

    def text_draft(self, text: str, *, allow_short: bool = False) -> RuleSet:
        """Return a rule that would forbid a text, to try it. It is not stored.

        Raises: Refused or OverLimit for a text that cannot be forbidden.
        """
        key = new_key(secrets.token_bytes(KEY_BYTES))
        made = tombstone_of(text, key.secret, allow_short=allow_short)
        return self._draft(_draft_rule(made.id, "text", tombstone=made, key_id=key.id), key)

    def pattern_draft(self, pattern: str) -> RuleSet:
        """Return a rule that would forbid what a pattern matches, to try it. It is not stored.

        Raises: Refused or OverLimit for a pattern that cannot be used.
        """
        self._patterns.check(pattern)
        return self._draft(_draft_rule(pattern_id(pattern, None), "pattern", pattern=pattern))

    def detector_draft(self, detector: str) -> RuleSet:
        """Return a rule that would forbid what a detector finds, to try it. It is not stored.

        Raises: Refused for a name that no detector has.
        """
        self._check_detector(detector)
        return self._draft(_draft_rule(detector_id(detector, None), "detector", detector=detector))

    def rules(self, workspace_id: str | None = None, *, max_age_s: float = 0.0) -> RuleSet:
        """Return the rules for a workspace. None: for what is said in conversations."""
        known = self.records.known(max_age_s=max_age_s)
        with self._lock:
            key = (known.version, workspace_id)
            found = self._sets.get(key)
            if found is None:
                if len(self._sets) >= _SETS_MAX:
                    self._sets.clear()
                found = self._sets[key] = self._new_set(known, workspace_id)
            return found

    def marked(self, text: str) -> str:
        """Return the text of a message with a mark in the place of each forbidden text."""
        rules = self.rules(max_age_s=READ_AGE_S_MAX)
        found = rules.find(text) if rules else ()
        if not found:
            return text
        self.records.count_stops(place.tombstone_id for place in found)
        return with_marks(text, found)

    @property
    def is_empty(self) -> bool:
        """True if nothing was forbidden a moment ago. No store is asked."""
        return self.records.is_empty(max_age_s=READ_AGE_S_MAX)

    def stream(self) -> StreamedText | None:
        """Return a marking for a message that arrives in pieces. None: nothing is forbidden."""
        rules = self.rules(max_age_s=READ_AGE_S_MAX)
        return StreamedText(rules) if rules else None

    def marking(self, rule_ids: Collection[str] | None = None) -> Marking:
        """Return a marking by the rules that count. With `rule_ids`, by those alone, also if they were
        lifted since: so a text gets the marks that it got then."""
        if rule_ids is None:
            return Marking(self.rules(max_age_s=READ_AGE_S_MAX), self.records.count_stops)
        known = self.records.known(max_age_s=READ_AGE_S_MAX)
        return Marking(
            self._set_of(known, (one for one in known.rules.values() if one.id in rule_ids))
        )

    def refuse(self, what: str, text: str) -> None:
        """Raise ForbiddenText if a text may not be stored. `what` names the thing that holds it."""
        rules = self.rules(max_age_s=READ_AGE_S_MAX)
        found = rules.find(text) if rules else ()
        if found:
            self.records.count_stops(place.tombstone_id for place in found)
            raise ForbiddenText(what, [_numbered(text, place) for place in found])

    def of_workspace(self, workspace_id: str) -> WorkspaceGate:
        return WorkspaceGate(self, workspace_id)

    def _check_detector(self, detector: str) -> None:
        if detector not in self._detectors:
            raise Refused(
                "detector",
                detector,
                "is the name of no detector",
                remedy=f"valid: {', '.join(sorted(self._detectors))}",
            )

    def _draft(self, rule: ForbiddenRule, key: TombstoneKey | None = None) -> RuleSet:
        keys = {} if key is None else {key.id: key.secret}
        return RuleSet([rule], keys, self._patterns, self._detectors)

    def _new_set(self, known: KnownRules, workspace_id: str | None) -> RuleSet:
        """Return the rules of the account and of the workspace that are not lifted."""
        counting = (
            rule
            for rule in known.rules.values()
            if not rule.is_lifted and rule.workspace_id in (None, workspace_id)
        )
        return self._set_of(known, counting)

    def _set_of(self, known: KnownRules, rules: Iterable[ForbiddenRule]) -> RuleSet:
        return RuleSet(rules, known.keys, self._patterns, self._detectors)


@dataclass(frozen=True, slots=True)
class WorkspaceGate:
    """What is forbidden in the files of one workspace."""

    texts: ForbiddenTexts
    workspace_id: str

    def version(self, *, is_fresh: bool = False) -> int:
        """Return a number that grows with every change of the rules. 0: nothing is forbidden."""
        rules = self._rules(0.0 if is_fresh else READ_AGE_S_MAX)
        return self.texts.records.known(max_age_s=READ_AGE_S_MAX).version if rules else 0

    def changed(
        self, path: str, before: bytes | None, after: bytes | None, /, *, take_pass: bool
    ) -> Sequence[ForbiddenPlace]:
        """Return the forbidden places that a change of a file brings. With `take_pass`, a rule that may pass
        once has passed."""
        rules = self._rules()
        if not rules or after is None or before == after:
            return ()
        places = _places(rules, before, after)
        rule_ids = sorted({place.rule_id for place in places})
        passed = {rule_id for rule_id in rule_ids if self._may_pass(rule_id, path)}
        left = [place for place in places if place.rule_id not in passed]
        # a refused change has used up no pass
        if take_pass and not left:
            for rule_id in passed:
                self._may_pass(rule_id, path, take=True)
        return left

    def refused(self, places: Sequence[ForbiddenPlace]) -> None:
        """Count that a change was refused."""
        self.texts.records.count_stops(place.rule_id for place in places)

    def mended(self, before: bytes | None, after: bytes) -> bytes | None:
        """Return the new bytes of a file with a mark in each forbidden place that the change brings.

        Return None for a file that must go whole, because it is no text.
        """
        rules = self._rules()
        if not rules or before == after:
            return after
        old = "" if before is None else before.decode("utf-8", "replace")
        return bytes_with_marks(after, lambda new: rules.find_changed(old, new))

    def _may_pass(self, rule_id: str, path: str, *, take: bool = False) -> bool:
        return self.texts.records.may_pass(rule_id, self.workspace_id, path, take=take)

    def _rules(self, max_age_s: float = READ_AGE_S_MAX) -> RuleSet:
        return self.texts.rules(self.workspace_id, max_age_s=max_age_s)


def _draft_rule(rule_id: str, kind: RuleKind, **subject: Any) -> ForbiddenRule:
    return ForbiddenRule(rule_id, kind, stamp_of(datetime.fromtimestamp(0, UTC)), "", **subject)


def _places(rules: RuleSet, before: bytes | None, after: bytes) -> list[ForbiddenPlace]:
    try:
        new = after.decode()
    except UnicodeDecodeError:
        found = next((found for text in readings(after) if (found := rules.find(text))), ())
        return [ForbiddenPlace(1, place.tombstone_id) for place in found]
    old = "" if before is None else before.decode("utf-8", "replace")
    return [_numbered(new, place) for place in rules.find_changed(old, new)]


def _numbered(text: str, place: FoundText) -> ForbiddenPlace:
    return ForbiddenPlace(text.count("\n", 0, place.start) + 1, place.tombstone_id)
