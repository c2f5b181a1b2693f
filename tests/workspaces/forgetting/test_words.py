from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.forgetting.words import folded, words_of

TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab Z9.*_\n\r\t-"),
        st.sampled_from("ßÉéσςΣİıﬁ①Ⓐ½ªＡ\u0301\u0323\u0345\u00ad\u200b\u200d\ufe0f\u2028\x85"),
        st.sampled_from("株式会社㍿ｶﾞガ日한글ㄱㅏ각\u1112\u1161\u11abเขาहिन्दी"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The key is 4711", "the KEY\n  is:  **4711**!"),
        ("Café au lait", "cafe\u0301 AU\u00adLAIT".replace("\u00ad", " ")),
        ("STRASSE", "straße"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ﬁne ＡＢＣ１", "fine abc1"),
        ("pass\u200bword\ufe0f", "password"),
        ("Thurs\u00adday", "Thursday"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("㍿", "株 式 会 社"),
        ("한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
        ("snake_case", "snake case"),
        ("> - [x] `a` | <b>", "x a b"),
    ],
)
def test_texts_that_a_reader_takes_for_the_same_have_the_same_words(one: str, other: str) -> None:
    assert folded(one) == folded(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("cafe", "café"), ("keyword", "key word"), ("4711", "4 711"), ("مُحَمَّد", "محمد")],
)
def test_texts_with_other_words_are_told_apart(one: str, other: str) -> None:
    assert folded(one) != folded(other)


def test_each_character_of_a_script_without_spaces_is_a_word() -> None:
    assert words_of("私は緑茶 iPhone手机").texts == [*"私は緑茶", "iphone", *"手机"]
    assert words_of("हिन्दी में").texts == ["हिन्दी", "में"]


@given(TEXTS)
@settings(deadline=None, max_examples=150)
def test_words_stand_where_they_say_and_in_order(text: str) -> None:
    words = words_of(text)
    assert len(words.texts) == len(words.starts) == len(words.ends)
    assert words.starts == sorted(words.starts) and words.ends == sorted(words.ends)
    for word, start, end in zip(*words, strict=True):
        assert word and 0 <= start < end <= len(text)
        # what stands there has the word, alone or among the words of the same piece
        assert word in words_of(text[start:end]).texts


@given(TEXTS)
@settings(deadline=None, max_examples=150)
def test_folding_and_composing_change_no_words(text: str) -> None:
    once = words_of(text).texts
    assert words_of(" ".join(once)).texts == once
    assert words_of(unicodedata.normalize("NFC", text)).texts == once
    assert words_of(unicodedata.normalize("NFD", text)).texts == once


@given(TEXTS, TEXTS)
@settings(deadline=None, max_examples=100)
def test_a_line_end_separates_the_words_of_two_texts(one: str, other: str) -> None:
    joined = words_of(f"{one}\n{other}").texts
    assert joined == words_of(one).texts + words_of(f"\n{other}").texts
