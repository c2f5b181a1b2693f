"""Near-duplicates: texts that share more than four fifths of their words."""

from __future__ import annotations

import os
import random

import pytest

from harness.memory.similar import Similar, similarity, word_set

SEED = int(os.environ.get("SEED", random.randrange(10**6)))


def keys(similar: Similar[str], text: str) -> list[str]:
    return [match.key for match in similar.find(text)]


def test_texts_are_similar_above_four_fifths_of_shared_words() -> None:
    similar: Similar[str] = Similar()
    similar.put("four", "a b c d")
    similar.put("nine", "b c d e f g h i j")
    assert keys(similar, "a b c d e") == []
    assert keys(similar, "b c d e f g h i j k") == ["nine"]
    assert similar.find("b c d e f g h i j k")[0].similarity == 0.9


def test_similarity_ignores_case_accents_order_and_punctuation() -> None:
    similar: Similar[str] = Similar()
    similar.put("cafe", "The Café is OPEN, daily!")
    assert keys(similar, "daily the cafe is open") == ["cafe"]


def test_a_text_without_words_is_similar_to_nothing() -> None:
    similar: Similar[str] = Similar()
    similar.put("empty", "…")
    assert similar.find("") == similar.find("…") == []
    similar.drop("empty")
    similar.drop("never there")


def test_similar_texts_are_ordered_by_similarity_then_by_age() -> None:
    similar: Similar[str] = Similar()
    similar.put("more", "a b c d e f g h i j")
    similar.put("second", "a b c d e f g h i")
    similar.put("third", "i h g f e d c b a")
    assert keys(similar, "a b c d e f g h i") == ["second", "third", "more"]
    similar.put("second", "a b c d e f g h i")
    assert keys(similar, "a b c d e f g h i") == ["third", "second", "more"]


@pytest.mark.parametrize("vocabulary", [6, 12, 60, 2000])
def test_the_similarity_index_finds_the_same_pairs_as_comparing_all(vocabulary: int) -> None:
    chance = random.Random(SEED)
    print(f"SEED={SEED}")
    similar: Similar[int] = Similar()
    texts: dict[int, str] = {}

    def some() -> str:
        if texts and chance.random() < 0.5:  # a variation of one that is there
            known = chance.choice(list(texts.values())).split()
            return " ".join([*known[1:], f"w{int(chance.paretovariate(0.5)) % vocabulary}"])
        size = chance.randint(0, 14)
        return " ".join(f"w{int(chance.paretovariate(0.5)) % vocabulary}" for _ in range(size))

    matches = 0
    for step in range(1500):
        key = chance.randrange(400)
        if chance.random() < 0.2:
            texts.pop(key, None)
            similar.drop(key)
        else:
            texts[key] = some()
            similar.put(key, texts[key])
        if step % 3 == 0:
            text = some()
            mine = word_set(text)
            naive = {
                key: similarity(mine, word_set(other))
                for key, other in texts.items()
                if 5 * len(mine & word_set(other)) > 4 * len(mine | word_set(other))
            }
            assert {one.key: one.similarity for one in similar.find(text)} == naive
            matches += len(naive)
    assert matches > 50
