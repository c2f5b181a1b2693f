"""The gate of an account: what it counts, what uses up a pass, and drafts of rules."""

from __future__ import annotations

import pytest

from workspaces.clock import ManualClock
from workspaces.errors import Forbidden, ForbiddenText, Refused
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.forgetting.pattern_search import PatternSearch
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.ids import AccountId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.timestamp import stamp_of

SECRET = "the key lies under the pot"


def vowels(text: str) -> list[tuple[int, int]]:
    return [(at, at + 1) for at, letter in enumerate(text) if letter in "AEIOU"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def texts(clock: ManualClock) -> ForbiddenTexts:
    records = RuleRecords(AccountId("acct_1"), MemoryRecords(clock), clock)
    return ForbiddenTexts(records, PatternSearch(lambda: None), {"vowels": vowels})


def test_what_a_rule_stops_is_counted_and_the_count_is_nobody_elses(
    texts: ForbiddenTexts, clock: ManualClock
) -> None:
    (made,) = texts.records.forbid_texts([SECRET], by="ada")
    vowel = texts.forbid_detected("vowels", by="ada")
    version = texts.records.known().version
    assert texts.records.stops() == {}
    with pytest.raises(ForbiddenText):
        texts.refuse("the note", SECRET)
    assert texts.marked("nothing here") == "nothing here"
    clock.advance(60)
    assert texts.marked(f"{SECRET}, AAA").startswith("[forgotten")
    marking = texts.marking()
    marking("E"), marking("e")
    texts.marking({vowel})("A")  # an event that is told once more: it was counted the first time
    found = {rule: one.count for rule, one in texts.records.stops().items()}
    assert found == {made.id: 2, vowel: 2}
    assert texts.records.stops()[vowel].at == stamp_of(clock.now())
    assert texts.records.known().version == version
    texts.records.forget()
    assert texts.records.stops() == {}


def test_a_pass_is_used_up_only_by_a_change_that_passes(texts: ForbiddenTexts) -> None:
    (made,) = texts.records.forbid_texts([SECRET], by="ada")
    vowel = texts.forbid_detected("vowels", by="ada")
    gate, after = texts.of_workspace("ws_1"), f"{SECRET}\nA\n".encode()
    texts.records.pass_once(made.id, "ws_1", "a.md")
    for _ in range(2):
        (left,) = gate.changed("a.md", None, after, take_pass=True)
        assert (left.line, left.rule_id) == (2, vowel)
    assert len(gate.changed("b.md", None, after, take_pass=True)) == 2
    texts.records.pass_once(vowel, "ws_1", "a.md")
    assert gate.changed("a.md", None, after, take_pass=True) == []
    assert len(gate.changed("a.md", None, after, take_pass=True)) == 2


def test_a_draft_finds_what_the_rule_would_and_is_no_rule(texts: ForbiddenTexts) -> None:
    drafted = texts.text_draft(SECRET)
    (found,) = drafted.find("x\n**The key** lies under\nthe pot.")
    assert (found.start, found.end) == (4, 32)
    assert [one.start for one in texts.detector_draft("vowels").find("xAyE")] == [1, 3]
    assert texts.records.known().rules == {} and texts.records.entries() == {}
    with pytest.raises(Refused):
        texts.text_draft("pot")
    assert texts.text_draft("pot", allow_short=True).find("a POT")
    with pytest.raises(Refused):
        texts.detector_draft("nothing")


def test_a_user_may_not_see_what_is_forbidden_but_is_counted(clock: ManualClock) -> None:
    store = MemoryRecords(clock)
    account = AccountId("acct_1")
    owner = RuleRecords(account, store, clock)
    (made,) = owner.forbid_texts([SECRET], by="ada")
    records = RuleRecords(account, store, clock, may_change=False)
    texts = ForbiddenTexts(records, PatternSearch(lambda: None), {})
    with pytest.raises(Forbidden):
        records.list()
    with pytest.raises(ForbiddenText):
        texts.refuse("the note", SECRET)
    assert owner.stops()[made.id].count == 1
