from __future__ import annotations

import json

import pytest

from workspaces.errors import OverLimit, Refused
from workspaces.forgetting.tombstone import (
    TEXT_CHARACTERS_MAX,
    WINDOW_WORDS_MAX,
    WORD_COUNTS_MAX,
    check_word_counts,
    tombstone_from_json,
    tombstone_of,
)

KEY = bytes(range(32))


def test_the_same_words_have_the_same_tombstone_under_one_key_alone() -> None:
    one = tombstone_of("The key is 4711.", KEY)
    assert tombstone_of("the KEY\nis\n*4711*", KEY) == one
    assert tombstone_of("the key is 4712", KEY).id != one.id
    other = tombstone_of("The key is 4711.", bytes(32))
    assert other.id != one.id and other.digests != one.digests


def test_a_tombstone_is_stored_without_its_text_and_read_back() -> None:
    one = tombstone_of("The key is 4711.", KEY)
    stored = json.dumps(one.as_json())
    assert "4711" not in stored and "key" not in stored
    assert tombstone_from_json(json.loads(stored)) == one
    assert one.mark == f"[forgotten {one.id}]"


@pytest.mark.parametrize(
    "change",
    [
        {"id": "f_123"},
        {"id": 5},
        {"words": 0},
        {"words": WINDOW_WORDS_MAX + 1},
        {"words": True},
        {"digests": ""},
        {"digests": "AAAA"},
        {"digests": "not base64!"},
    ],
)
def test_what_is_no_tombstone_is_refused(change: dict[str, object]) -> None:
    value = tombstone_of("The key is 4711.", KEY).as_json() | change
    with pytest.raises((ValueError, TypeError)):
        tombstone_from_json(value)


def test_a_long_text_is_kept_as_its_overlapping_windows() -> None:
    one = tombstone_of(" ".join(f"w{n}" for n in range(40)), KEY)
    assert one.words == WINDOW_WORDS_MAX
    assert len(one.digests) == 40 - WINDOW_WORDS_MAX + 1


def test_the_longest_text_fits_into_one_entry_of_the_registry() -> None:
    one = tombstone_of("".join(chr(0x4E00 + n) for n in range(TEXT_CHARACTERS_MAX)), KEY)
    assert len(json.dumps(one.as_json())) < 60_000


@pytest.mark.parametrize("text", ["", " \n", "---", "\u200b"])
def test_a_text_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no letter and no digit"):
        tombstone_of(text, KEY, allow_short=True)


@pytest.mark.parametrize("text", ["tea", "green tea", "12345678901"])
def test_a_short_text_needs_to_be_allowed(text: str) -> None:
    with pytest.raises(Refused, match="are asked for") as refused:
        tombstone_of(text, KEY)
    assert text not in str(refused.value)
    assert "--forbid-short" in str(refused.value.remedy)
    assert tombstone_of(text, KEY, allow_short=True).words == len(text.split())


@pytest.mark.parametrize("text", ["a b c", "123456789012", "李小龍"])
def test_three_words_or_twelve_characters_are_enough(text: str) -> None:
    assert tombstone_of(text, KEY).digests


def test_a_text_over_the_limit_is_refused() -> None:
    with pytest.raises(OverLimit):
        tombstone_of("a" * (TEXT_CHARACTERS_MAX + 1), KEY)


def test_an_account_has_at_most_so_many_numbers_of_words() -> None:
    ones = [tombstone_of("word " * n, KEY) for n in range(3, 3 + WORD_COUNTS_MAX)]
    check_word_counts(ones)
    with pytest.raises(OverLimit, match="different numbers of words"):
        check_word_counts([*ones, tombstone_of("word " * 25, KEY)])
