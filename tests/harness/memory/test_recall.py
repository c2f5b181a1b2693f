"""Recall over several workspaces of an account."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.memory.recall import recall, since_of
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
        "updated_at": two.log()[0].at,
        "author": "ann",
        "revision": two.tip(),
        "why": shown["why"],
    }
    assert shown["why"][0].startswith("exact match: ")
    assert 0 < shown["score"] < 2


def test_recall_since_accepts_a_date_or_a_time() -> None:
    assert since_of("2026-01-31") == "2026-01-31T00:00:00.000000Z"
    assert since_of("2026-01-31T14:00") == "2026-01-31T14:00:00.000000Z"
    assert since_of("2026-01-31T14:00+02:00") == "2026-01-31T12:00:00.000000Z"
    for nonsense in ("", "yesterday", "2026-02-31"):
        with pytest.raises(Refused, match="since"):
            since_of(nonsense)
