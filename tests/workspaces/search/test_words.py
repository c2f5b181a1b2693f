from __future__ import annotations

import pytest

from workspaces.search.stem import stem
from workspaces.search.words import exact_names, fold, query_terms, terms


@pytest.mark.parametrize(
    "forms",
    [
        "connect connects connected connecting connection connections",
        "hope hoping hoped hopes",
        "hop hopping hopped",
        "go goes going gone went",
        "buy bought buying buys",
        "party parties",
        "child children",
        "relational relation relate",
        "happy happiness",
        "agree agreed agrees",
    ],
)
def test_the_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1, [stem(form) for form in forms.split()]


@pytest.mark.parametrize("word", ["is", "x", "naïve", "日本", "a1b2c3", "s" * 60])
def test_what_is_no_english_word_is_left_as_it_is(word: str) -> None:
    assert stem(word) == word or word == "is"


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
def test_what_a_reader_takes_for_the_same_letters_is_folded_alike(one: str, other: str) -> None:
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
def test_a_query_finds_what_is_written_another_way(text: str, query: str) -> None:
    assert set(query_terms(query)) <= set(terms(text))


@pytest.mark.parametrize("written", ["8 May 2023", "May 8th, 2023", "8th of May, 2023", "2023/5/8"])
def test_a_day_is_found_however_it_is_written(written: str) -> None:
    text = f"(on {written})"
    assert "2023-05-08" in terms(text)
    assert "2023-05-08" in query_terms("2023-05-08")
    assert {"8", stem("may"), "2023"} <= set(terms(text))


def test_a_day_is_one_term_and_what_can_be_misread_is_none() -> None:
    assert "2023-05-08" in terms("8 May 2023")
    assert "2023-05-08" not in terms("5/8/2023")
    assert "2023-13-08" not in terms("2023-13-08 is no day")


def test_stop_words_are_left_out_of_a_query_that_has_others() -> None:
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
def test_what_is_spelled_is_kept_whole(text: str) -> None:
    assert fold(text) in exact_names(fold(f"Look, ({text}): there."))


@pytest.mark.parametrize(
    "text", ["well-known", "3rd", "5pm", "2023", "e.g.", "plain", "don't", "…"]
)
def test_what_is_said_is_no_exact_name(text: str) -> None:
    assert exact_names(fold(f"it is {text} here")) == []
