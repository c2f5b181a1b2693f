"""What it costs a writer to look for forgotten texts in what it writes."""

from __future__ import annotations

import random
import secrets
from hashlib import sha256

from benchmarks.ratio import compare, report
from workspaces.forgetting.matcher import Matcher
from workspaces.forgetting.tombstone import WORD_COUNTS_MAX, tombstone_of
from workspaces.search.words import terms

LINES = 2_000
WORDS = 3_000


def main() -> None:
    chance = random.Random(5)
    vocabulary = [
        "".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 11))) for _ in range(WORDS)
    ]
    text = "".join(f"- {' '.join(chance.choices(vocabulary, k=9))}.\n" for _ in range(LINES))
    line = f"- {' '.join(chance.choices(vocabulary, k=9))}.\n"
    after = text[: len(text) // 2] + line + text[len(text) // 2 :]
    key = secrets.token_bytes(32)

    def matcher(counts: int) -> Matcher:
        texts = (" ".join(chance.choices(vocabulary, k=n)) for n in range(3, 3 + counts))
        return Matcher([tombstone_of(one, key) for one in texts], key)

    one, sixteen = matcher(1), matcher(WORD_COUNTS_MAX)
    size = f"{len(text) // 1000} KB"
    data = after.encode()
    for claim, ours, peer in (
        (
            f"a whole file of {size}, one number of words: splitting it for recall",
            lambda: one.find(text),
            lambda: terms(text),
        ),
        ("… sixteen numbers", lambda: sixteen.find(text), lambda: terms(text)),
        (
            f"one new line in {size}, sixteen numbers: hashing the file",
            lambda: sixteen.find_changed(text, after),
            lambda: sha256(data).digest(),
        ),
        (
            "… splitting the file for recall",
            lambda: sixteen.find_changed(text, after),
            lambda: terms(text),
        ),
    ):
        report(claim, *compare(ours, peer, rounds=9), at_most=None)


if __name__ == "__main__":
    main()
