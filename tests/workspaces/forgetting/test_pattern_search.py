from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from workspaces.errors import OverLimit, Refused, Unavailable
from workspaces.forgetting.pattern_search import PatternSearch

SEARCH = PatternSearch(lambda: Path(sysconfig.get_path("scripts")) / "rg")


def test_places_are_counted_in_characters() -> None:
    text = "é\nx ACME-12 茶 ACME-3\r\n"
    found = [text[begin:end] for begin, end in SEARCH.spans(["ACME-[0-9]+"], text)]
    assert found == ["ACME-12", "ACME-3"]
    assert SEARCH.spans(["ACME-[0-9]+$"], text) == [(text.index("ACME-3"), len(text) - 2)]
    assert SEARCH.spans(["nothing"], text) == SEARCH.spans([], text) == []


def test_several_patterns_are_searched_at_once() -> None:
    assert SEARCH.spans(["b", "a"], "abc\0a") == [(0, 1), (1, 2), (4, 5)]


@pytest.mark.parametrize("pattern", ["", "a\nb", "a*", "\\b", "x|", "(", "(?=a)", "["])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(Refused):
        SEARCH.check(pattern)


def test_a_usable_pattern_passes_and_a_long_one_does_not() -> None:
    SEARCH.check("(?i)acme-[0-9]{6}")
    with pytest.raises(OverLimit):
        SEARCH.check("a" * 1_001)


def test_without_ripgrep_a_search_fails_and_hides_nothing() -> None:
    with pytest.raises(Unavailable, match="ripgrep"):
        PatternSearch(lambda: None).spans(["a"], "a")
