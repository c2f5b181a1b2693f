"""Recall over several workspaces of an account."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.memory.recall import age_of, answer, recall, since_of
from workspaces.errors import Refused
from workspaces.revision import Author

PERSON = Author("ann", "usr_1", "api")


def test_recall_over_several_workspaces_returns_one_ranking(harness: Harness) -> None:
    for name in ("one", "two"):
        harness.workspaces.create(name)
    one, two = (harness.workspaces.get(name) for name in ("one", "two"))
    one.write("a.md", "- green tea\n- red wine\n", by=PERSON)
    two.write("b.md", "- the green tea from JIRA-77\n- something else\n", by=PERSON)
    places = [("one", one), ("two", two)]
    hits = recall(places, "green tea", limit=2)
    assert {hit.workspace for hit in hits} == {"one", "two"}
    assert recall(places, "green tea JIRA-77", limit=1)[0].workspace == "two"
    shown = recall(places, "JIRA-77 tea", limit=1)[0].as_json()
    assert shown == {
        "path": "b.md",
        "line_number": 1,
        "content": "- the green tea from JIRA-77",
        "score": shown["score"],
        "workspace": "two",
        "kind": "other",
        "updated_at": two.log()[0].at,
        "author": "ann",
        "revision": two.history.tip(),
        "why": shown["why"],
    }
    assert shown["why"][0].startswith("exact match: ")
    assert 0 < shown["score"] < 2


def test_an_answer_stops_where_lines_fit_less_and_says_where(harness: Harness) -> None:
    place = harness.workspaces.create("one")
    lines = "- we deploy on Friday evening\n- red wine\n- the boat\n- a cat\n- tea in the evening\n"
    place.write("MEMORY.md", lines, by=PERSON)
    question = "do we deploy on Friday evening?"
    hits = recall([("one", place)], question)
    assert len(hits) > 1
    found = answer(hits, question)
    assert [hit.line.content for hit in found.hits] == ["- we deploy on Friday evening"]
    assert found.cut is not None
    assert found.cut.as_json() == {
        "shown": 1,
        "behind": len(hits) - 1,
        "lowest": hits[0].line.score,
    }
    uncut = answer(hits, question, "off")
    assert (uncut.hits, uncut.cut, uncut.nothing_known) == (hits, None, False)


def test_an_answer_is_empty_if_nothing_bears_on_the_question(harness: Harness) -> None:
    place = harness.workspaces.create("one")
    place.write("a.md", "".join(f"- the meeting {n} is over\n" for n in range(100)), by=PERSON)
    question = "which violin teacher cancelled the meeting?"
    hits = recall([("one", place)], question)
    found = answer(hits, question)
    assert (list(found.hits), found.cut, found.nothing_known) == ([], None, True)
    assert answer(hits, question, "off").hits == hits
    listed = answer(recall([("one", place)], ""), "")
    assert (len(listed.hits), listed.cut, listed.nothing_known) == (10, None, False)


def test_headings_and_comments_of_a_template_are_no_answers(harness: Harness) -> None:
    place = harness.workspaces.create("one")
    for nothing in ("what are my tasks?", "which facts and decisions are pinned?"):
        assert answer(recall([("one", place)], nothing), nothing).nothing_known
    text = place.read("MEMORY.md").text
    place.write("MEMORY.md", f"{text}\n- We deploy on Fridays.\n", by=PERSON)
    question = "when do we deploy?"
    hits = recall([("one", place)], question)
    assert [hit.line.content for hit in answer(hits, question).hits] == ["- We deploy on Fridays."]


def test_the_age_of_a_line_is_told_in_days() -> None:
    assert age_of(None, None) == "not in a revision yet"
    assert age_of("2026-01-31T14:00:00.000000Z", 0) == "2026-01-31, today"
    assert age_of("2026-01-31T14:00:00.000000Z", 1) == "2026-01-31, a day ago"
    assert age_of("2026-01-31T14:00:00.000000Z", 40) == "2026-01-31, 40 days ago"


def test_recall_since_accepts_a_date_or_a_time() -> None:
    assert since_of("2026-01-31") == "2026-01-31T00:00:00.000000Z"
    assert since_of("2026-01-31T14:00") == "2026-01-31T14:00:00.000000Z"
    assert since_of("2026-01-31T14:00+02:00") == "2026-01-31T12:00:00.000000Z"
    for nonsense in ("", "yesterday", "2026-02-31"):
        with pytest.raises(Refused, match="since"):
            since_of(nonsense)
