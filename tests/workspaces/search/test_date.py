from __future__ import annotations

import pytest

from workspaces.search.stem import stem
from workspaces.search.words import query_terms, terms


@pytest.mark.parametrize("written", ["8 May 2023", "May 8th, 2023", "8th of May, 2023", "2023/5/8"])
def test_a_date_is_found_in_every_spelling(written: str) -> None:
    text = f"(on {written})"
    assert "2023-05-08" in terms(text)
    assert "2023-05-08" in query_terms("2023-05-08")
    assert {"8", stem("may"), "2023"} <= set(terms(text))


def test_an_ambiguous_or_invalid_date_is_no_date_term() -> None:
    assert "2023-05-08" in terms("8 May 2023")
    assert "2023-05-08" not in terms("5/8/2023")
    assert "2023-13-08" not in terms("2023-13-08 is no day")
