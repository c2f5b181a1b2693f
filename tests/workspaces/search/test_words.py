from __future__ import annotations

import pytest

from workspaces.search.words import exact_names, fold, query_terms, terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café", "cafe"),
        ("Cafe\u0301", "CAFÉ"),
        ("STRASSE", "straße"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ﬁne", "fine"),
        ("ＡＢＣ１", "abc1"),
        ("Привет", "ПРИВЕТ"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("مُحَمَّد", "محمد"),
        ("한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
    ],
)
def test_equivalent_letters_are_folded_alike(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("私は緑茶が好きです", "緑茶"),
        ("私は緑茶が好きです", "茶"),
        ("เขาชอบดื่มชาเขียว", "ชาเขียว"),
        ("학교에서 공부한다", "학교"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("iPhone手机很贵", "手机"),
        ("Grüße aus Köln", "grusse koln"),
        ("she doesn't mind", "mind"),
        ("Martha's cat", "martha"),
        ("the meeting of 2023-05-08", "8 May 2023"),
        ("on 8 May, 2023", "May 8 2023"),
        ("see src/app/main.py:42", "src/app/main.py"),
        ("see src/app/main.py", "main.py"),
    ],
)
def test_query_terms_match_another_spelling_of_the_text(text: str, query: str) -> None:
    assert set(query_terms(query)) <= set(terms(text))


def test_stop_words_are_dropped_from_a_query_with_other_words() -> None:
    assert list(query_terms("when did she go to the harbour")) == ["go", "harbour"]
    assert set(query_terms("to be or not to be")) == {"to", "be", "or", "not"}
    assert query_terms("?!") == {}


@pytest.mark.parametrize(
    "text",
    [
        "mem_3209466d330e",
        "notes/plan.md",
        "JIRA-1234",
        "ann@example.org",
        "v1.2.3",
        "10.0.0.1",
        "HARNESS_HOME",
        "MEMORY.md",
        "4711",
        "e14c9864",
    ],
)
def test_an_identifier_is_an_exact_name(text: str) -> None:
    assert fold(text) in exact_names(fold(f"Look, ({text}): there."))


@pytest.mark.parametrize(
    "text", ["well-known", "3rd", "5pm", "2023", "e.g.", "plain", "don't", "…"]
)
def test_an_ordinary_word_is_no_exact_name(text: str) -> None:
    assert exact_names(fold(f"it is {text} here")) == []
