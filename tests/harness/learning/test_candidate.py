"""Facts that a model proposes: what is kept, under which key, and what is left out for which reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.learning.candidate import CANDIDATES_MAX, FACTS_MAX, FactCandidate, checked, planned
from harness.memory.facts.fact import Fact
from tests.harness.learning.saying import fact
from workspaces.history.source import Source
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.timestamp import Stamp

STAMP = Stamp("2026-01-01T00:00:00.000000Z")

TEN = "one two three four five six seven eight nine ten"


def row(key: str, value: str, source: Source = "auto") -> Fact:
    path, version = WorkspacePath(f"facts/{len(key)}.md"), Version("0")
    return Fact(
        id=f"mem_{key}",
        path=path,
        version=version,
        key=key,
        value=value,
        pinned=False,
        importance=0,
        created_at=STAMP,
        updated_at=STAMP,
        source=source,
        author="x",
    )


def kept(*proposed: Any, known: tuple[Fact, ...] = ()) -> tuple[list[str], dict[str, int]]:
    """The keys that would be stored in a workspace, and what was left out."""
    candidates, dropped = checked(list(proposed))
    plan = planned(candidates, {"workspace": known})
    return [one.key for one in plan.entries["workspace"]], dict(dropped + plan.dropped)


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("  API__base/url!! ", "auto:api-base-url"),
        ("数据库", "auto:fact"),
        ("", "auto:fact"),
        ("a" * 59 + "--b", "auto:" + "a" * 59),
        ("x" * 400, "auto:" + "x" * 60),
    ],
)
def test_a_key_is_a_slug_of_at_most_sixty_characters(key: str, stored: str) -> None:
    assert kept(fact(key)) == ([stored], {})


@pytest.mark.parametrize(
    ("confidence", "is_kept"),
    [(0.59, False), (0.6, True), (1, True), (1.01, False), (True, False), ("0.9", False)],
)
def test_a_fact_of_low_or_odd_confidence_is_left_out(confidence: Any, is_kept: bool) -> None:
    found, dropped = kept(fact(confidence=confidence))
    assert (bool(found), dropped) == (is_kept, {} if is_kept else {"unsure": 1})


def test_a_fact_without_confidence_is_left_out() -> None:
    without = {name: value for name, value in fact().items() if name != "confidence"}
    assert kept(without, fact("n", "x", float("nan"))) == ([], {"unsure": 2})


@pytest.mark.parametrize(
    "proposed",
    [None, "text", 7, [], {"key": "a"}, fact(value=" "), fact(value="x" * 2001), fact(value="a\0")],
)
def test_what_has_another_form_is_left_out_and_counted(proposed: Any) -> None:
    assert kept(proposed, fact("b")) == (["auto:b"], {"invalid": 1})


def test_a_reply_of_another_form_holds_nothing() -> None:
    for proposed in (None, {}, "facts", 3):
        assert checked(proposed) == ([], {})


def test_a_value_of_2000_characters_is_kept_whole() -> None:
    candidates, _ = checked([fact(value="x" * 2000)])
    assert len(candidates[0].value) == 2000


def test_at_most_five_facts_are_stored_and_few_are_looked_at() -> None:
    many = [fact(f"k{n}", f"number {n} is {'x' * n}") for n in range(CANDIDATES_MAX + 10)]
    found, dropped = kept(*many)
    assert found == [f"auto:k{n}" for n in range(FACTS_MAX)]
    assert dropped == {"too_many": len(many) - FACTS_MAX}


def test_what_looks_like_a_secret_is_left_out() -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLX"[:16].replace("0", "A").replace("1", "B")
    secret = fact("aws", f"The key is {key[:20]}")
    password = fact("database password", "hunter2-x9f8a7b6")
    assert kept(secret, fact("b"), password) == (["auto:b"], {"secret": 2})


def test_exactly_four_fifths_of_the_words_in_common_is_another_fact() -> None:
    """8 of 10 words; then 9 of 11, which is more than four fifths."""
    known = row("k", "one two three four five six seven eight nine")
    other = fact("n", "one two three four five six seven eight ten")
    assert kept(other, known=(known,)) == (["auto:n"], {})
    near = row("k", TEN)
    assert kept(fact("n", f"{TEN} eleven"), known=(near,)) == ([], {"known": 1})


def test_a_near_duplicate_of_any_row_or_of_a_kept_candidate_is_left_out() -> None:
    rows = tuple(row(f"k{n}", f"row {n} says {n * 7}") for n in range(300))
    theirs = replace(row("far", TEN), source="manual")
    found, dropped = kept(
        fact("a", f"Ten, nine {TEN}!"),
        fact("b", "a wholly new thing to know"),
        fact("c", "To know: a wholly NEW thing."),
        known=(*rows, theirs),
    )
    assert (found, dropped) == (["auto:b"], {"known": 2})


def test_a_corrected_number_updates_the_row_of_the_same_key() -> None:
    long = "the orders service in the harbour project runs on version {} of the database server"
    known = row("auto:db", long.format(15))
    assert kept(fact("db", long.format(16)), known=(known,)) == (["auto:db"], {})
    assert kept(fact("db", long.format(15)), known=(known,)) == ([], {"known": 1})


@pytest.mark.parametrize("source", ["manual", "director", "memorize"])
def test_a_row_that_extraction_did_not_write_is_never_overwritten(source: Source) -> None:
    known = row("auto:db", "It is SQLite.", source)
    assert kept(fact("db", "It is PostgreSQL."), known=(known,)) == ([], {"not_ours": 1})


def test_without_a_workspace_every_fact_is_the_agents() -> None:
    candidates = [
        FactCandidate("auto:a", "one", "workspace"),
        FactCandidate("auto:b", "two", "agent"),
    ]
    plan = planned(candidates, {"agent": ()})
    assert [one.key for one in plan.entries["agent"]] == ["auto:a", "auto:b"]
    plan = planned(candidates, {"workspace": ()})
    assert ([one.key for one in plan.entries["workspace"]], plan.dropped) == (
        ["auto:a"],
        {"no_place": 1},
    )
