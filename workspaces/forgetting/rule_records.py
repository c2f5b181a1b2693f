"""The rules of one account, in the record store: what is forbidden, and the keys of the tombstones.

    forbidden:f_… p_… d_…     a rule; a lifted one stays, so that other machines hear of it
    forbidden:k_…             a key
    forbidden-head            changes with every rule: one read tells if what a process knows still counts
    forbidden-pass:…          lets one rule pass once for one file
    forbidden-stops:…         how often a rule has stopped a text, and when last

A tombstone names its key. Two machines that have not heard of each other may each have made one. Then both
keys count, and new tombstones are made with the first of them by id.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from workspaces.accounts.stored_items import partition_of
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Failure, Forbidden, NotFound, OverLimit
from workspaces.forgetting.rule import (
    PATTERNS_MAX,
    ForbiddenRule,
    RuleEntry,
    TombstoneKey,
    detector_id,
    is_later,
    new_key,
    pattern_id,
    rule_from_json,
)
from workspaces.forgetting.tombstone import (
    KEY_BYTES,
    TextTombstone,
    check_word_counts,
    tombstone_of,
)
from workspaces.ids import AccountId
from workspaces.storage.contention import until_written
from workspaces.storage.records import (
    Delete,
    Item,
    Key,
    Put,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp, next_stamp, stamp_of

RULES_MAX = 2_000
"""Rules of an account, the lifted ones included."""

PASS_S = 600
"""Seconds for which a rule can be passed once, if nobody does."""

_AT_ONCE = 40
"""Rules written in one batch, whose size is limited too: a long text takes 55 KB."""


@dataclass(frozen=True, slots=True)
class KnownRules:
    """All rules and keys of an account, as they were at one moment."""

    version: int
    """Grows with every change. 0: there never was a rule."""
    rules: Mapping[str, ForbiddenRule]
    keys: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class RuleStops:
    """How often a rule has stopped a text: a write was refused, or a mark was put into a message."""

    count: int
    at: Stamp
    """When it did so last."""


_NONE = KnownRules(0, {}, {})


class RuleRecords:
    """The rules of one account. Threads may share it."""

    def __init__(
        self, account_id: AccountId, records: RecordStore, clock: Clock, *, may_change: bool = True
    ) -> None:
        self.account_id = account_id
        self._partition = partition_of(account_id)
        self._records = records
        self._clock = clock
        self._may_change = may_change
        self._head = Key(self._partition, "forbidden-head")
        self._known = _NONE
        self._read_at = -math.inf
        self._lock = threading.Lock()

    def known(self, *, max_age_s: float = 0.0) -> KnownRules:
        """Return the rules as they were at most so many seconds ago. One read if nothing has changed."""
        with self._lock:
            now = self._clock.monotonic()
            if 0 <= now - self._read_at < max_age_s:
                return self._known
            head = self._records.get(self._head)
            if head is None:
                self._known = _NONE
            elif head.counter != self._known.version:
                self._known = self._read_all(head)
            self._read_at = now
            return self._known

    def is_empty(self, *, max_age_s: float) -> bool:
        """Return True if there was no rule when they were read, at most so many seconds ago. No store is
        asked."""
        is_fresh = 0 <= self._clock.monotonic() - self._read_at < max_age_s
        return is_fresh and not self._known.rules

    def forbid_texts(
        self,
        texts: Iterable[str],
        *,
        by: str,
        allow_short: bool = False,
        workspace_id: str | None = None,
        forgetting_id: str | None = None,
    ) -> list[TextTombstone]:
        """Make a tombstone for each text, and return them. A text that has one already keeps its id.

        Raises: Refused or OverLimit for a text that is too short or too long; OverLimit for too many
        different numbers of words. Then none is made.
        """
        self.check_right("forbid texts")
        texts = list(texts)
        made: dict[str, TextTombstone] = {}

        def plan(known: KnownRules) -> list[RuleEntry]:
            made.clear()
            added: list[RuleEntry] = []
            if known.keys:
                key = new_key(known.keys[min(known.keys)])
            else:
                key = new_key(secrets.token_bytes(KEY_BYTES))
                added.append(key)
            for text in texts:
                tombstone = tombstone_of(text, key.secret, allow_short=allow_short)
                made[tombstone.id] = tombstone
                before = known.rules.get(tombstone.id)
                rule = ForbiddenRule(
                    tombstone.id,
                    "text",
                    self._later(before),
                    by,
                    workspace_id,
                    forgetting_id=forgetting_id,
                    key_id=key.id,
                    tombstone=tombstone,
                )
                added.append(_joined(before, rule))
            here = (rule for rule in known.rules.values() if not rule.is_lifted)
            all_of = {one.id: one.tombstone for one in here if one.tombstone} | made
            check_word_counts(all_of.values())
            return added

        self._change(plan)
        return list(made.values())

    def forbid_pattern(
        self, pattern: str, *, by: str, workspace_id: str | None = None
    ) -> ForbiddenRule:
        """Forbid what a pattern matches. The caller has checked the pattern.

        Raises: OverLimit if the account has too many patterns.
        """
        self.check_right("forbid texts")
        rule_id = pattern_id(pattern, workspace_id)
        made: list[ForbiddenRule] = []

        def plan(known: KnownRules) -> list[RuleEntry]:
            others = [
                one
                for one in known.rules.values()
                if one.kind == "pattern" and not one.is_lifted and one.id != rule_id
            ]
            if len(others) >= PATTERNS_MAX:
                raise OverLimit(
                    "forbid.patterns",
                    maximum=PATTERNS_MAX,
                    actual=len(others) + 1,
                    unit="patterns",
                )
            at = self._later(known.rules.get(rule_id))
            made[:] = [ForbiddenRule(rule_id, "pattern", at, by, workspace_id, pattern=pattern)]
            return [*made]

        self._change(plan)
        return made[0]

    def forbid_detected(
        self, detector: str, *, by: str, workspace_id: str | None = None
    ) -> ForbiddenRule:
        """Forbid what a detector finds. The caller has checked its name."""
        self.check_right("forbid texts")
        rule_id = detector_id(detector, workspace_id)
        made: list[ForbiddenRule] = []

        def plan(known: KnownRules) -> list[RuleEntry]:
            at = self._later(known.rules.get(rule_id))
            made[:] = [ForbiddenRule(rule_id, "detector", at, by, workspace_id, detector=detector)]
            return [*made]

        self._change(plan)
        return made[0]

    def list(self) -> list[ForbiddenRule]:
        """Return the rules that count, oldest first."""
        self.check_right("see what is forbidden")
        rules = (rule for rule in self.known().rules.values() if not rule.is_lifted)
        return sorted(rules, key=lambda rule: (rule.at, rule.id))

    def lift(self, rule_id: str, *, by: str) -> ForbiddenRule:
        """Forbid something no longer. What was forgotten stays forgotten.

        Raises: NotFound.
        """
        self.check_right("lift what is forbidden")
        lifted: list[ForbiddenRule] = []

        def plan(known: KnownRules) -> list[RuleEntry]:
            rule = known.rules.get(rule_id)
            if rule is None or rule.is_lifted:
                raise NotFound("rule", rule_id, remedy="`harness forbid list` shows the rules")
            lifted[:] = [replace(rule, is_lifted=True, at=self._later(rule), by=by)]
            return [*lifted]

        self._change(plan)
        return lifted[0]

    def entries(self) -> dict[str, RuleEntry]:
        """Return everything that other machines must hear of, by id."""
        known = self.known()
        keys = {key_id: TombstoneKey(key_id, secret) for key_id, secret in known.keys.items()}
        return {**keys, **known.rules}

    def adopt(self, entries: Sequence[RuleEntry]) -> bool:
        """Store what other machines forbid. Return True if anything of it was new. Of two states of a rule
        the later counts."""

        def plan(known: KnownRules) -> list[RuleEntry]:
            return [entry for entry in entries if _is_news(known, entry)]

        return self._change(plan)

    def pass_once(self, rule_id: str, workspace_id: str, path: str) -> None:
        """Let the next change of a file pass a rule, within ten minutes.

        Raises: NotFound if there is no such rule.
        """
        self.check_right("let a text pass")
        rule = self.known().rules.get(rule_id)
        if rule is None or rule.is_lifted:
            raise NotFound("rule", rule_id, remedy="`harness forbid list` shows the rules")
        until = (self._clock.now() + timedelta(seconds=PASS_S)).timestamp()
        self._records.write(Put(self._pass_key(rule_id, workspace_id, path), {}, expires_at=until))

    def may_pass(self, rule_id: str, workspace_id: str, path: str, *, take: bool) -> bool:
        """Return True if a change of a file may pass a rule. With `take` it was the one time."""
        key = self._pass_key(rule_id, workspace_id, path)
        item = self._records.get(key)
        if item is not None and take:
            self._records.write(Delete(key))
        return item is not None

    def count_stops(self, rule_ids: Iterable[str]) -> None:
        """Count that each of these rules has stopped a text. A count may be lost; the text is stopped."""
        with suppress(Failure):
            for rule_id in sorted(set(rule_ids)):
                self._count_stop(self._stops_key(rule_id))

    def stops(self) -> dict[str, RuleStops]:
        """Return the stops of each rule that has stopped a text."""
        prefix = "forbidden-stops:"
        items = with_prefix(self._records, self._partition, prefix)
        return {
            item.key.sort.removeprefix(prefix): RuleStops(item.value["count"], item.value["at"])
            for item in items
        }

    def forget(self) -> None:
        """Delete all rules of an account that is being deleted."""
        for prefix in ("forbidden:", "forbidden-pass:", "forbidden-stops:"):
            for item in with_prefix(self._records, self._partition, prefix):
                self._records.write(Delete(item.key))
        self._records.write(Delete(self._head))

    @until_written("rules")
    def _change(self, plan: Callable[[KnownRules], Sequence[RuleEntry]]) -> bool:
        """Write what `plan` makes of the present rules. Return False if that is nothing."""
        known = self.known()
        entries = list({entry.id: entry for entry in plan(known)}.values())
        count = len({*known.rules, *(entry.id for entry in entries)})
        if count > RULES_MAX:
            raise OverLimit("forbid.rules", maximum=RULES_MAX, actual=count, unit="rules")
        if not entries:
            return False
        version = known.version
        try:
            for start in range(0, len(entries), _AT_ONCE):
                part = entries[start : start + _AT_ONCE]
                head = Put(self._head, {}, expect=version or ABSENT)
                puts = (Put(self._key(entry.id), entry.as_json()) for entry in part)
                version = self._records.write(head, *puts)[0] or version
        finally:  # what any thread has read until now is old, also if another process was faster
            with self._lock:
                self._read_at = -math.inf
        return True

    def _read_all(self, head: Item) -> KnownRules:
        rules: dict[str, ForbiddenRule] = {}
        keys: dict[str, bytes] = {}
        for item in with_prefix(self._records, self._partition, "forbidden:"):
            entry = rule_from_json(item.value)
            if isinstance(entry, TombstoneKey):
                keys[entry.id] = entry.secret
            else:
                rules[entry.id] = entry
        return KnownRules(head.counter, rules, keys)

    def _key(self, entry_id: str) -> Key:
        return Key(self._partition, f"forbidden:{entry_id}")

    def _pass_key(self, rule_id: str, workspace_id: str, path: str) -> Key:
        return Key(self._partition, f"forbidden-pass:{rule_id}:{workspace_id}:{path}")

    def _stops_key(self, rule_id: str) -> Key:
        return Key(self._partition, f"forbidden-stops:{rule_id}")

    @until_written("rules")
    def _count_stop(self, key: Key) -> None:
        item = self._records.get(key)
        count = 1 if item is None else item.value["count"] + 1
        value = {"count": count, "at": stamp_of(self._clock.now())}
        self._records.write(Put(key, value, expect=item.counter if item else ABSENT))

    def _later(self, before: ForbiddenRule | None) -> Stamp:
        """Return a stamp of now that is later than the last change of the rule, whoever made it."""
        return next_stamp(self._clock.now(), *([before.at] if before else []))

    def check_right(self, deed: str) -> None:
        """Raise Forbidden if the caller may not change the rules."""
        if not self._may_change:
            raise Forbidden(deed)


def _joined(before: ForbiddenRule | None, rule: ForbiddenRule) -> ForbiddenRule:
    """Return a rule that covers both: a text that was forbidden everywhere stays so."""
    if before is None or before.is_lifted:
        return rule
    is_everywhere = before.workspace_id is None or before.workspace_id != rule.workspace_id
    return replace(
        rule,
        workspace_id=None if is_everywhere else rule.workspace_id,
        forgetting_id=rule.forgetting_id or before.forgetting_id,
    )


def _is_news(known: KnownRules, entry: RuleEntry) -> bool:
    if isinstance(entry, TombstoneKey):
        return entry.id not in known.keys
    return is_later(entry, known.rules.get(entry.id))
