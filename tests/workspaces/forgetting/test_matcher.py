from __future__ import annotations

import hmac

from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.forgetting.matcher import Matcher, bytes_with_marks, with_marks
from workspaces.forgetting.tombstone import TextTombstone, digest, tombstone_of
from workspaces.forgetting.words import words_of

KEY = bytes(range(32))
SECRET = tombstone_of("the code is 4711", KEY)
OTHER = tombstone_of("Ada lives in Graz", KEY)
MATCHER = Matcher([SECRET, OTHER], KEY)

WORD = st.sampled_from(["the", "code", "is", "4711", "Ada", "lives", "in", "Graz", "x", "é", "茶"])
GAP = st.sampled_from([" ", "  ", "\n", ".\n", "\r\n", " **", ", ", "_", "\u200b \u200b", "\u00a0"])
TEXTS = st.lists(st.tuples(WORD, GAP), max_size=30).map(lambda pairs: "".join(map("".join, pairs)))
LINES = st.lists(
    st.sampled_from(["the code is 4711", "the code", "is 4711", "Ada lives", "in Graz", "x", ""]),
    max_size=8,
).map("\n".join)


def found(text: str, matcher: Matcher = MATCHER) -> list[tuple[str, str]]:
    return [(text[start:end], one) for start, end, one in matcher.find(text)]


def test_other_case_blanks_line_ends_punctuation_and_marks_are_found() -> None:
    for text in (
        "- The code is: 4711.",
        "> THE\tCODE\n> is **4711**",
        "the_code-is/4711",
        "th\u00ade co\u200bde is ４７１１",
    ):
        assert [one for _, one in found(text)] == [SECRET.id], text


def test_what_says_it_in_other_words_is_not_found() -> None:
    for text in ("code: 4711", "thecode is 4711", "the code is 47110", "the code, is it 4711", ""):
        assert found(text) == []


def test_only_the_words_are_replaced_and_what_stands_around_them_stays() -> None:
    assert MATCHER.replaced("a (the code is 4711)!\nb") == f"a ({SECRET.mark})!\nb"


def test_line_ends_inside_a_place_stay() -> None:
    text = "1\r\n- the code\r\n  is\n  4711!\n5"
    assert MATCHER.replaced(text) == f"1\r\n- {SECRET.mark}\r\n\n!\n5"


def test_an_excerpt_of_a_long_text_is_found_from_its_window_on() -> None:
    words = [f"w{n}" for n in range(50)]
    matcher = Matcher([one := tombstone_of(" ".join(words), KEY)], KEY)
    assert matcher.replaced(f"a {' '.join(words)} b") == f"a {one.mark} b"
    assert matcher.replaced(f"a {' '.join(words[9:41])} b") == f"a {one.mark} b"
    assert matcher.find(" ".join(words[9:40])) == []


def test_overlapping_places_become_one() -> None:
    first, second = tombstone_of("a b c", KEY), tombstone_of("b c d e", KEY)
    matcher = Matcher([first, second], KEY)
    assert matcher.replaced("x a b c d e y") == f"x {first.mark} y"


def test_a_file_that_is_no_text_goes_whole_if_it_holds_the_text() -> None:
    assert bytes_with_marks(b"\xff\xfe\x00 nothing", MATCHER.find) == b"\xff\xfe\x00 nothing"
    assert bytes_with_marks(b"\xff the code is 4711 \xfe", MATCHER.find) is None
    assert bytes_with_marks("\ufeffThe code is 4711".encode("utf-16-le"), MATCHER.find) is None
    assert bytes_with_marks(b"\xff" + "The code is 4711".encode("utf-16-be"), MATCHER.find) is None
    assert bytes_with_marks(b"the code is 4711\n", MATCHER.find) == f"{SECRET.mark}\n".encode()


def test_the_hash_is_hmac_sha256_of_the_words_joined_by_one_blank() -> None:
    whole = hmac.new(KEY, b"the code is 4711", "sha256").digest()
    assert whole.startswith(digest(b"the code is 4711", KEY))
    assert SECRET.digests == (digest(b"the code is 4711", KEY),)
    long_key = bytes(100)
    assert Matcher([tombstone_of("a b c", long_key)], long_key).find("a b c")


@given(TEXTS)
@settings(deadline=None, max_examples=100)
def test_all_windows_are_found_as_a_slow_search_finds_them(text: str) -> None:
    covered = {n for start, end, _ in MATCHER.find(text) for n in range(start, end)}
    words = words_of(text)
    slow: set[int] = set()
    for tombstone in (SECRET, OTHER):
        for n in range(len(words.texts) - tombstone.words + 1):
            if _is(words.texts[n : n + tombstone.words], tombstone):
                slow |= set(range(words.starts[n], words.ends[n + tombstone.words - 1]))
    assert covered == slow


@given(TEXTS)
@settings(deadline=None, max_examples=100)
def test_after_replacing_nothing_is_found_and_every_other_word_and_line_is_there(text: str) -> None:
    replaced = MATCHER.replaced(text)
    assert MATCHER.find(replaced) == []
    assert replaced.count("\n") == text.count("\n")
    for mark in (SECRET.mark, OTHER.mark):
        replaced = replaced.replace(mark, " ")
    kept = with_marks(text, MATCHER.find(text))
    for mark in (SECRET.mark, OTHER.mark):
        kept = kept.replace(mark, " ")
    assert kept == replaced


@given(LINES, LINES, LINES)
@settings(deadline=None, max_examples=150)
def test_a_change_that_brings_a_text_is_found_and_one_that_does_not_is_not(
    head: str, middle: str, tail: str
) -> None:
    before, after = f"{head}\n{tail}", f"{head}\n{middle}\n{tail}"
    changed = MATCHER.find_changed(before, after)
    whole = MATCHER.find(after)
    assert set(changed) <= set(whole)
    assert len(changed) >= len(whole) - len(MATCHER.find(before))
    if not MATCHER.find(before):
        assert changed == whole
    assert MATCHER.find_changed(after, after) == []


def test_a_text_that_a_deleted_line_brings_together_is_found() -> None:
    before, after = "a\nthe code\nwas not\nis 4711\nb\n", "a\nthe code\nis 4711\nb\n"
    assert [after[s:e] for s, e, _ in MATCHER.find_changed(before, after)] == ["the code\nis 4711"]


def test_a_text_that_stood_there_before_is_no_change() -> None:
    before = "x\n- the code is 4711\ny\n"
    assert MATCHER.find_changed(before, f"new\n{before}new\n".replace("x", "z")) == []
    assert len(MATCHER.find_changed(before, f"{before}- the code is 4711\n")) == 1


def test_an_empty_matcher_finds_nothing() -> None:
    matcher = Matcher([], KEY)
    assert not matcher and matcher.find("a") == [] and matcher.replaced("a") == "a"


def _is(window: list[str], tombstone: TextTombstone) -> bool:
    return digest(" ".join(window).encode(), KEY) in tombstone.digests
