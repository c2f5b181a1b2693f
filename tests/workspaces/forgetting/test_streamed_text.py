"""A streamed text is marked as the whole text would be, however it arrives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import pytest

from harness.memory.card_numbers import find_card_numbers
from harness.memory.secrets import find_secrets
from harness.sandboxes.bundled_programs import ripgrep
from tests.machines import SOAK
from workspaces.forgetting import streamed_text
from workspaces.forgetting.pattern_search import PatternSearch, TextSpan
from workspaces.forgetting.rule import ForbiddenRule, detector_id, new_key, pattern_id
from workspaces.forgetting.rule_set import RuleSet
from workspaces.forgetting.streamed_text import HELD_CHARACTERS, StreamedText
from workspaces.forgetting.tombstone import tombstone_of
from workspaces.forgetting.words import PlacedWords, words_of
from workspaces.timestamp import Stamp

AT = Stamp("2026-01-01T00:00:00.000Z")
KEYS = [new_key(bytes([n]) * 32) for n in (1, 2)]
TEXTS = [
    "heron",
    "the heron",
    "heron nests in",
    "in Galway the heron nests",
    "鷺は巣",
    "株 ltd",
    "é a",
]
CARD, PEM = "4111 1111 1111 1111", "-----BEGIN PRIVATE KEY-----\nMIIEvQ\nx-y\n"
PIECES = [
    *(
        "the",
        "heron",
        "nests",
        "in",
        "Galway",
        "é",
        "e\u0301",
        "a",
        "鷺",
        "は",
        "巣",
        "㈱",
        "ltd",
        "ﬁ",
    ),
    *(" ", " ", " ", " ", " ", "\n", "\n", "\r\n", "\n\n", "**", "- ", "。", "“", "\u00ad"),
    *("\u0301", "\u200b", "…", CARD, "4111", PEM, "-----END PRIVATE KEY-----", "-----", "\uff9e"),
    *("가", "ᆨ", "password: hunter2hunter3x"),
]
FIXED = "the heron nests in Galway on Sundays, and a crane stands in Sligo"


def _detected(text: str) -> list[TextSpan]:
    return [(one.start, one.end) for one in find_secrets(text)]


DETECTORS = {"cards": find_card_numbers, "keys": _detected}


def rules_of(
    *texts: str, detectors: tuple[str, ...] = (), patterns: tuple[str, ...] = ()
) -> RuleSet:
    tombstones = [
        (KEYS[len(text) % 2], tombstone_of(text, KEYS[len(text) % 2].secret, allow_short=True))
        for text in texts
    ]
    rules = [
        ForbiddenRule(one.id, "text", AT, "me", key_id=key.id, tombstone=one)
        for key, one in tombstones
    ]
    rules += [
        ForbiddenRule(detector_id(one, None), "detector", AT, "me", detector=one)
        for one in detectors
    ]
    rules += [
        ForbiddenRule(pattern_id(one, None), "pattern", AT, "me", pattern=one) for one in patterns
    ]
    search = PatternSearch(lambda: ripgrep(None))
    return RuleSet(rules, {key.id: key.secret for key in KEYS}, search, DETECTORS)


def streamed(rules: RuleSet, pieces: Sequence[str]) -> str:
    stream = StreamedText(rules)
    return "".join([*map(stream.take, pieces), stream.rest()])


def cut(randomly: Random, text: str) -> list[str]:
    places = sorted(randomly.randrange(len(text) + 1) for _ in range(randomly.randrange(12)))
    if randomly.random() < 0.3:
        places = [*range(len(text))]
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def test_what_is_streamed_is_the_marked_whole_whatever_the_pieces() -> None:
    seed = int(os.environ.get("SEED", Random().randrange(10**9)))
    print("SEED", seed)
    randomly = Random(seed)
    for _ in range(60_000 if SOAK else 1_500):
        texts = randomly.sample(TEXTS, randomly.randrange(4))
        detectors = randomly.sample(["cards", "keys"], randomly.choice([0, 0, 1, 2]))
        rules = rules_of(*texts, detectors=tuple(detectors))
        text = "".join(randomly.choices(PIECES, k=randomly.randrange(40)))
        pieces = cut(randomly, text)
        assert streamed(rules, pieces) == rules.marked(text), (texts, detectors, pieces)


def test_a_pattern_is_found_in_whole_lines() -> None:
    rules = rules_of("the heron nests", patterns=("[0-9]{4}$", "^a.*b", "nests in"))
    text = "call 4711\nand 47110\na b a\nthe heron\nnests in 4711 a b\n1234"
    marked = rules.marked(text)
    assert marked.count("[forbidden p_") == 4 and "[forgotten f_" in marked
    for pieces in ([*text], [text], text.splitlines(keepends=True)):
        assert streamed(rules, pieces) == marked


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_no_more_is_held_back_than_the_words_that_may_still_matter(longest: int) -> None:
    words = FIXED.split()
    rules = rules_of(" ".join(f"w{n}" for n in range(longest)))
    stream = StreamedText(rules)
    for number, word in enumerate(words):
        stream.take(f"{word} ")
        held = stream.rest()
        assert held.split() == words[max(0, number + 2 - longest) : number + 1]
        stream.take(held)


def test_a_line_is_released_at_its_end_and_a_key_with_its_last_line() -> None:
    stream = StreamedText(rules_of(detectors=("keys",)))
    assert [stream.take(one) for one in ("tea", " and\nmil", "k\n")] == ["", "tea and\n", "milk\n"]
    assert stream.take(f"it: {PEM}more\n") == ""
    (rule,) = rules_of(detectors=("keys",)).rules
    marked = stream.take("-----END PRIVATE KEY----- ok\nthen\n")
    assert marked.startswith(f"it: [forbidden {rule.id}]") and marked.endswith(" ok\nthen\n")


def test_each_part_of_an_answer_is_searched_for_itself() -> None:
    rules = rules_of("the heron nests")
    stream = StreamedText(rules)
    assert stream.take("I see the heron", 1) == "I "
    assert stream.take("nests", 2) == "see the heron"
    stream.withdraw()
    assert stream.rest() == ""
    stream.take("the heron nests", 3)
    assert stream.take("s", 4) == f"[forgotten {rules.rules[0].id}]"


@pytest.mark.parametrize("piece", ["é", "…", "abc", "-----BEGIN PRIVATE KEY-----\nx\n"])
def test_a_text_without_a_place_to_cut_is_read_a_few_times_in_all(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = rules_of("the heron nests", detectors=("keys",) if "\n" in piece else ())
    read: list[int] = []

    def counting(text: str) -> PlacedWords:
        read.append(len(text))
        return words_of(text)

    monkeypatch.setattr(streamed_text, "words_of", counting)
    text = piece * (8_000 // len(piece)) + f" {FIXED}\n"
    assert streamed(rules, [*text]) == rules.marked(text)
    most = HELD_CHARACTERS * HELD_CHARACTERS + 20 * len(
        text
    )  # the first part is read at each piece
    assert sum(read) < most


def test_a_long_text_without_words_is_not_kept() -> None:
    stream = StreamedText(rules_of("the heron nests"))
    assert "".join(stream.take("- " * 50) for _ in range(100)) == "- " * 5_000
