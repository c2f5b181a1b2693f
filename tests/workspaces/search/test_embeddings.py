from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.workspaces.search.texts import Texts
from workspaces.search import embeddings
from workspaces.search.index import Index
from workspaces.search.stem import stem
from workspaces.search.words import terms

_ALIKE = {stem(word): stem(other) for word, other in (("physician", "doctor"), ("puppy", "dog"))}
DIMENSIONS = 64


class Concepts:
    """Texts whose words mean the same have the same vector: deterministic, local, of no use beyond tests."""

    def __init__(self, name: str = "concepts") -> None:
        self.name = name
        self.asked: list[str] = []
        self.failure: Exception | None = None

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if self.failure is not None:
            raise self.failure
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        total = [0.0] * DIMENSIONS
        for word in terms(text):
            concept = _ALIKE.get(word, word)
            seed = hashlib.sha256(concept.encode()).digest()
            numbers = random.Random(seed)
            total = [number + numbers.gauss(0, 1) for number in total]
        return total


TEXTS = {
    "a": "- the physician is on leave\n- the boat is blue\n",
    "b": "- a car\n- the dog barks\n",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def places(index: Index, texts: Texts, query: str, limit: int = 1) -> list[tuple[str, int]]:
    return [(one.path, one.line) for one in index.find(texts, query, limit=limit)]


def test_a_line_with_the_same_meaning_in_other_words_is_found(file: Path) -> None:
    texts = Texts(**TEXTS)
    assert places(Index(file), texts, "doctor") == []
    index = Index(file, Concepts())
    assert places(index, texts, "doctor") == [("a.md", 1)]
    found = index.find(texts, "puppy", limit=1)[0]
    assert (found.path, found.line) == ("b.md", 2)
    assert found.why[0].startswith("similar meaning (0.")


def test_word_and_meaning_scores_are_fused_and_an_exact_name_ranks_first(file: Path) -> None:
    texts = Texts(**TEXTS, c="- JIRA-77 is done\n- a puppy sleeps\n- dog\n")
    index = Index(file, Concepts())
    assert places(index, texts, "dog JIRA-77")[0] == ("c.md", 1)
    found = index.find(texts, "the dog barks", limit=3)
    assert (found[0].path, found[0].line) == ("b.md", 2)
    plain = Index(file.with_name("plain.db")).find(texts, "the dog barks", limit=1)[0]
    similarity = 1.0
    assert found[0].score == pytest.approx(embeddings.fuse(plain.score, similarity), abs=0.02)


def test_a_moved_text_is_not_embedded_again(file: Path) -> None:
    texts = Texts(**TEXTS)
    embedder = Concepts()
    index = Index(file, embedder)
    places(index, texts, "dog")
    assert sorted(embedder.asked) == sorted(["dog", *"".join(TEXTS.values()).strip().split("\n")])
    embedder.asked.clear()
    texts.set("b.md", None)
    texts.set("z.md", "- new\n" + TEXTS["b"])
    places(index, texts, "dog")
    assert embedder.asked == ["- new", "dog"]
    again = Concepts()
    places(Index(file, again), texts, "dog")
    assert again.asked == ["dog"]


def test_vectors_of_another_embedder_are_discarded(file: Path) -> None:
    texts = Texts(**TEXTS)
    places(Index(file, Concepts("one")), texts, "dog")
    other = Concepts("two")
    places(Index(file, other), texts, "dog")
    assert len(other.asked) == 5


def test_a_failing_embedder_leaves_recall_to_words_and_is_named_in_the_result(file: Path) -> None:
    texts = Texts(**TEXTS)
    embedder = Concepts()
    embedder.failure = RuntimeError("no such model")
    index = Index(file, embedder)
    (found,) = index.find(texts, "dog", limit=1)
    assert (found.path, found.line) == ("b.md", 2)
    assert "no such model" in found.why[-1]
    embedder.failure = None
    assert "no such model" not in str(index.find(texts, "dog", limit=1)[0].why)
    embedder.failure = RuntimeError("gone again")
    assert "gone again" in index.find(texts, "dog", limit=1)[0].why[-1]


@pytest.mark.parametrize("answer", [[], [[1.0]] * 9, [[1.0], [1.0, 2.0]], "nonsense", None])
def test_an_invalid_answer_of_an_embedder_is_a_failure(file: Path, answer: object) -> None:
    index = Index(file, lambda texts: answer)  # type: ignore[arg-type, return-value]
    (found,) = index.find(Texts(a="- dog\n"), "dog", limit=1)
    assert "found by words only" in found.why[-1]


def test_a_large_index_is_embedded_in_steps_by_queries_and_fully_by_catching_up(file: Path) -> None:
    texts = Texts(a="".join(f"- note {n}\n" for n in range(700)))
    embedder = Concepts()
    index = Index(file, embedder)
    places(index, texts, "note")
    assert len(embedder.asked) == 4 * 64 + 1
    index.catch_up(texts, lambda done, total: None)
    assert len(embedder.asked) == 700 + 1


def test_a_path_filter_applies_to_matches_by_meaning(file: Path) -> None:
    texts = Texts(**TEXTS)
    found = Index(file, Concepts()).find(texts, "puppy", limit=5, keep=lambda path: path == "a.md")
    assert {one.path for one in found} <= {"a.md"}


def test_the_preselection_by_signs_finds_the_nearest_vector(file: Path) -> None:
    chance = random.Random(4)
    words = [f"word{n}" for n in range(300)]
    lines = [f"- {' '.join(chance.sample(words, 3))}" for _ in range(600)]
    texts = Texts(a="\n".join([*lines, "- the dog barks at night"]))
    index = Index(file, Concepts())
    index.catch_up(texts, lambda done, total: None)
    found = index.find(texts, "puppy barking night", limit=1)[0]
    assert found.line == 601
