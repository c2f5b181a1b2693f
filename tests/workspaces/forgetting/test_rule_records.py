from __future__ import annotations

import json
from dataclasses import replace

import pytest

from workspaces.clock import ManualClock
from workspaces.errors import Forbidden, NotFound, OverLimit, Refused
from workspaces.forgetting.rule import PATTERNS_MAX, ForbiddenRule, rule_from_json
from workspaces.forgetting.rule_records import PASS_S, RuleRecords
from workspaces.ids import AccountId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import RecordChange

ACCOUNT = AccountId("acct_1")
TEXT = "the code is 4711"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def rules(records: MemoryRecords, clock: ManualClock) -> RuleRecords:
    return RuleRecords(ACCOUNT, records, clock)


def test_what_is_stored_does_not_hold_the_text(rules: RuleRecords, records: MemoryRecords) -> None:
    made = rules.forbid_texts([TEXT, "Ada lives in Graz"], by="ada", forgetting_id="fg_1")
    assert [rule.id for rule in rules.list()] == sorted(one.id for one in made)
    stored = json.dumps([item.value for item in records.scan(f"account:{ACCOUNT}")])
    assert "4711" not in stored and "Graz" not in stored
    shown = rules.list()[0].shown()
    assert shown["forgettingId"] == "fg_1" and "digests" not in shown and "keyId" not in shown


def test_a_text_that_is_forbidden_again_keeps_its_id_and_counts_everywhere(
    rules: RuleRecords,
) -> None:
    (first,) = rules.forbid_texts([TEXT], by="ada", workspace_id="ws_1")
    assert rules.list()[0].workspace_id == "ws_1"
    (second,) = rules.forbid_texts([f"THE CODE is: {TEXT[-4:]}!"], by="ada", workspace_id="ws_2")
    assert first == second
    assert [rule.workspace_id for rule in rules.list()] == [None]


def test_a_reader_during_the_write_of_a_rule_does_not_keep_the_old_rules(
    clock: ManualClock,
) -> None:
    class ReadMeanwhile(MemoryRecords):
        def write(self, *changes: RecordChange) -> tuple[int, ...]:
            rules.known(max_age_s=PASS_S)
            return super().write(*changes)

    rules = RuleRecords(ACCOUNT, ReadMeanwhile(clock), clock)
    rule = rules.forbid_pattern("a+", by="ada")
    assert set(rules.known(max_age_s=PASS_S).rules) == {rule.id}


def test_another_process_hears_of_a_rule_at_once_or_within_the_age_it_allows(
    rules: RuleRecords, records: MemoryRecords, clock: ManualClock
) -> None:
    other = RuleRecords(ACCOUNT, records, clock)
    assert other.known().rules == {}
    rules.forbid_pattern("a+", by="ada")
    assert other.known(max_age_s=1).rules == {}
    assert len(other.known().rules) == 1
    clock.advance(2)
    rules.forbid_pattern("b+", by="ada")
    assert len(other.known(max_age_s=1).rules) == 2


def test_it_is_known_for_a_moment_that_there_is_no_rule(
    rules: RuleRecords, clock: ManualClock
) -> None:
    assert not rules.is_empty(max_age_s=1)
    rules.known()
    assert rules.is_empty(max_age_s=1)
    clock.advance(1)
    assert not rules.is_empty(max_age_s=1)
    rules.forbid_pattern("a+", by="ada")
    rules.known()
    assert not rules.is_empty(max_age_s=1)


def test_a_refused_text_leaves_no_rule_of_the_others(rules: RuleRecords) -> None:
    with pytest.raises(Refused):
        rules.forbid_texts([TEXT, "tea"], by="ada")
    assert rules.list() == []
    assert rules.forbid_texts(["tea"], by="ada", allow_short=True)


def test_limits_of_an_account(rules: RuleRecords) -> None:
    for number in range(PATTERNS_MAX):
        rules.forbid_pattern(f"a{number}", by="ada")
    rules.forbid_pattern("a1", by="ada")
    with pytest.raises(OverLimit, match="patterns"):
        rules.forbid_pattern("b", by="ada")
    with pytest.raises(OverLimit, match="different numbers of words"):
        rules.forbid_texts((" ".join("abcdefghijklmnopqrst"[:n]) for n in range(3, 20)), by="ada")


def test_a_lifted_rule_does_not_count_and_can_be_made_again(rules: RuleRecords) -> None:
    (made,) = rules.forbid_texts([TEXT], by="ada")
    assert rules.lift(made.id, by="bob").is_lifted
    assert rules.list() == []
    with pytest.raises(NotFound):
        rules.lift(made.id, by="bob")
    rules.forbid_texts([TEXT], by="ada")
    assert [rule.id for rule in rules.list()] == [made.id]


def test_two_machines_end_with_the_same_rules_and_both_keys(clock: ManualClock) -> None:
    one, other = (RuleRecords(ACCOUNT, MemoryRecords(clock), clock) for _ in range(2))
    one.forbid_texts([TEXT], by="ada")
    other.forbid_texts([TEXT, "Ada lives in Graz"], by="bob")
    pattern = other.forbid_pattern("a+", by="bob")
    assert one.adopt([*other.entries().values()])
    assert other.adopt([*one.entries().values()])
    assert not one.adopt([*other.entries().values()])
    assert one.entries() == other.entries() and len(one.known().keys) == 2
    one.lift(pattern.id, by="ada")
    assert other.adopt([*one.entries().values()])
    assert pattern.id not in {rule.id for rule in other.list()}
    assert not one.adopt([pattern])  # older than its lifting
    made = {machine.forbid_texts(["a b c d"], by="ada")[0].id for machine in (one, other)}
    assert len(made) == 1  # new ones have the same key


def test_a_rule_can_be_passed_once_for_one_file_and_not_for_long(
    rules: RuleRecords, clock: ManualClock
) -> None:
    rule = rules.forbid_pattern("a+", by="ada")
    rules.pass_once(rule.id, "ws_1", "a.md")
    assert not rules.may_pass(rule.id, "ws_1", "b.md", take=True)
    assert rules.may_pass(rule.id, "ws_1", "a.md", take=False)
    assert rules.may_pass(rule.id, "ws_1", "a.md", take=True)
    assert not rules.may_pass(rule.id, "ws_1", "a.md", take=True)
    rules.pass_once(rule.id, "ws_1", "a.md")
    clock.advance(PASS_S + 1)
    assert not rules.may_pass(rule.id, "ws_1", "a.md", take=True)
    with pytest.raises(NotFound):
        rules.pass_once("p_00000000", "ws_1", "a.md")


def test_a_user_key_may_not_change_or_see_the_rules(
    records: MemoryRecords, clock: ManualClock
) -> None:
    rules = RuleRecords(ACCOUNT, records, clock, may_change=False)
    for deed in (
        lambda: rules.forbid_texts([TEXT], by="ada"),
        lambda: rules.forbid_pattern("a", by="ada"),
        rules.list,
        lambda: rules.lift("p_1", by="ada"),
        lambda: rules.pass_once("p_1", "ws_1", "a.md"),
    ):
        with pytest.raises(Forbidden):
            deed()


def test_a_deleted_account_leaves_nothing(rules: RuleRecords, records: MemoryRecords) -> None:
    rules.forbid_texts([TEXT], by="ada")
    rules.forget()
    assert list(records.scan(f"account:{ACCOUNT}")) == []


def test_entries_of_the_bucket_are_checked(rules: RuleRecords) -> None:
    rules.forbid_texts([TEXT], by="ada")
    rules.forbid_pattern("a+", by="ada")
    rules.forbid_detected("keys", by="ada")
    for entry in rules.entries().values():
        value = entry.as_json()
        assert rule_from_json(json.loads(json.dumps(value))) == entry
        for name in value:
            with pytest.raises(Refused):
                rule_from_json({**value, name: ["x"]})
            if name not in ("workspaceId", "forgettingId"):
                with pytest.raises(Refused):
                    rule_from_json({one: value[one] for one in value if one != name})
        if isinstance(entry, ForbiddenRule) and entry.pattern:
            with pytest.raises(Refused):
                rule_from_json(replace(entry, pattern="b").as_json())
    with pytest.raises(Refused):
        rule_from_json([])
