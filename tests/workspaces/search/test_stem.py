from __future__ import annotations

import pytest

from workspaces.search.stem import stem


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
def test_all_forms_of_a_word_have_the_same_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1, [stem(form) for form in forms.split()]


@pytest.mark.parametrize("word", ["is", "x", "naïve", "日本", "a1b2c3", "s" * 60])
def test_a_word_that_is_not_english_is_not_stemmed(word: str) -> None:
    assert stem(word) == word or word == "is"
