"""What counts of a long unit, and which lines of a ranking are shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.workspaces.search.texts import Texts
from workspaces.search import ranking
from workspaces.search.index import Index


@dataclass(frozen=True)
class Line:
    score: float
    is_named: bool = False
    is_heading: bool = False
    bears: bool = True


def shown(*lines: Line) -> list[float]:
    lowest = ranking.lowest_shown(lines)
    return [] if lowest is None else [one.score for one in lines if ranking.is_shown(one, lowest)]


def test_the_cut_is_at_half_of_the_best_score() -> None:
    assert shown(Line(0.8), Line(0.5), Line(0.41), Line(0.39)) == [0.8, 0.5, 0.41]


def test_nothing_is_shown_if_no_line_bears_on_the_query() -> None:
    assert shown() == shown(Line(0.3, bears=False), Line(0.2, bears=False)) == []
    assert shown(Line(0.9, is_heading=True), Line(0.3, bears=False)) == []


def test_a_heading_is_shown_only_if_the_query_names_it() -> None:
    assert shown(Line(0.9, is_heading=True), Line(0.5), Line(0.3)) == [0.5, 0.3]
    assert shown(Line(0.2, is_heading=True, is_named=True), Line(0.9)) == [0.2, 0.9]


def test_a_score_that_bears_in_a_small_index_is_too_low_in_a_large_one() -> None:
    assert ranking.bears(0.2, 10)
    assert not ranking.bears(0.2, 1000)
    assert ranking.bears(0.5, 10**6)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("length", [1, 80, 160, 1_000])
def test_a_weight_keeps_the_frequency_within_four_percent(count: int, length: int) -> None:
    share = ranking.share_of(length)
    kept = ranking._STRENGTH[ranking.weight(count, share)]  # pyright: ignore[reportPrivateUsage]
    assert kept == pytest.approx(count * share, rel=0.04)


def test_a_long_line_that_mentions_everything_ranks_after_a_short_one(tmp_path: Path) -> None:
    other = " ".join(f"word{n}" for n in range(600))
    long, short = f"- the violin, the harbour, {other}\n", "- the violin is at the harbour\n"
    index = Index(tmp_path / "x.db")
    found = index.find(Texts(a=long * 3, b=short), "violin harbour", limit=5)
    assert (found[0].path, found[0].bears) == ("b.md", True)
    assert max(one.score for one in found if one.path == "a.md") < found[0].score / 2


def test_a_question_with_one_common_word_is_not_answered(tmp_path: Path) -> None:
    texts = Texts(a="".join(f"- the meeting {n} is about budget{n}\n" for n in range(200)))
    index = Index(tmp_path / "x.db")
    unknown = index.find(texts, "which violin teacher cancelled the meeting?", limit=5)
    assert unknown
    assert ranking.lowest_shown(unknown) is None
    known = index.find(texts, "when is the meeting about budget7?", limit=5)
    assert ranking.lowest_shown(known) is not None
