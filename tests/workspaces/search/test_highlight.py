from __future__ import annotations

import pytest

from workspaces.search.highlight import spans


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("- She went to the harbour", "when did she go to the harbours?", ["went", "harbour"]),
        ("Café und cafe", "CAFE", ["Café", "cafe"]),
        ("私は緑茶が好きです", "緑茶", ["緑茶"]),
        ("nothing of it", "tea", []),
        ("Ann's tea", "Ann tea?", ["Ann's", "tea"]),
    ],
)
def test_query_words_are_highlighted_in_any_form(text: str, query: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in spans(text, query)] == marked
