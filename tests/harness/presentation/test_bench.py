"""The benchmark of recall: its figures, and which folders are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.presentation.bench import measure
from workspaces.errors import NotFound, Refused


def folder(root: Path, *questions: object) -> Path:
    (root / "notes").mkdir(parents=True)
    (root / "notes/a.md").write_text("# Drinks\n\n- green tea at nine\n- red wine at ten\n")
    (root / "notes/b.md").write_text("- the boat is blue\n")
    (root / "questions.jsonl").write_text("\n".join(json.dumps(one) for one in questions))
    return root


TEA = {"question": "When is tea?", "category": "time", "evidence": [["notes/a.md", 3]]}
BOTH = {"question": "boat wine", "evidence": [["notes/b.md", 1], ["notes/a.md", 9]]}
WRONG = {"question": "boat", "category": "colour", "evidence": [["notes/a.md", 3]]}


def test_benchmark_figures_are_means_over_the_questions(tmp_path: Path) -> None:
    measured = measure(folder(tmp_path / "x", TEA, BOTH, WRONG)).as_json()
    assert measured["recall@1"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-4)
    assert measured["recall@10"] == measured["recall@20"] == pytest.approx(0.5)
    assert measured["hit@10"] == pytest.approx(2 / 3, abs=1e-4)
    assert measured["mrr"] == pytest.approx(2 / 3, abs=1e-4)
    assert (measured["questions"], measured["lines"]) == (3, 4)
    by_category = measured["by_category"]
    assert isinstance(by_category, dict)
    assert by_category["time"]["mrr"] == 1
    assert by_category["colour"]["recall@20"] == 0
    wanted = (
        "recall@1 recall@5 recall@10 recall@20 hit@10 mrr precision returned"
        " p50_ms p95_ms build_s lines questions"
    )
    assert measured.keys() == {*wanted.split(), "by_category"}
    assert measured["precision"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-4)
    assert measured["returned"] == pytest.approx(4 / 3, abs=0.01)


def test_plain_engines_are_asked_the_same_questions(tmp_path: Path) -> None:
    asked = {"question": 'green? "wine" (OR)', "evidence": [["notes/a.md", 4]]}
    root = folder(tmp_path / "x", TEA, WRONG, asked, {**WRONG, "question": "is it?"})
    measured = measure(root, with_peers=True).as_json()
    peers = measured["peers"]
    assert isinstance(peers, dict)
    assert peers.keys() == {"fts5 porter", "fts5 unicode61"}
    for figures in peers.values():
        assert (figures["questions"], figures["recall@5"]) == (4, 0.5)
        assert figures["by_category"]["time"]["mrr"] == 1


def test_a_benchmark_uses_an_embedder(tmp_path: Path) -> None:
    root = folder(tmp_path / "x", {"question": "ocean ship?", "evidence": [["notes/b.md", 1]]})
    assert measure(root).as_json()["recall@1"] == 0

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [
            [1.0, 0.1] if {"boat", "ship?"} & set(text.split()) else [0.1, 1.0] for text in texts
        ]

    assert measure(root, embedder=embed).as_json()["recall@1"] == 1


def test_a_folder_of_folders_is_benchmarked_as_a_whole(tmp_path: Path) -> None:
    folder(tmp_path / "one", TEA)
    folder(tmp_path / "two", WRONG)
    told: list[tuple[int, int]] = []
    measured = measure(tmp_path, lambda *how_far: told.append(how_far)).as_json()
    assert (measured["questions"], measured["mrr"], measured["lines"]) == (2, 0.5, 8)
    assert told == [(1, 2), (2, 2)]


def test_a_benchmark_leaves_no_files_in_its_folder(tmp_path: Path) -> None:
    root = folder(tmp_path / "x", TEA)
    before = sorted(root.rglob("*"))
    measure(root)
    assert sorted(root.rglob("*")) == before


def test_an_invalid_benchmark_folder_is_refused_naming_the_place(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        measure(tmp_path / "absent")
    with pytest.raises(NotFound, match="questions"):
        measure(tmp_path)
    root = folder(tmp_path / "x", TEA, {"question": "tea?"})
    with pytest.raises(Refused, match=r"questions\.jsonl:2"):
        measure(root)
    (root / "questions.jsonl").write_text("{nonsense")
    with pytest.raises(Refused, match="is not JSON"):
        measure(root)
    (root / "questions.jsonl").write_text('{"question": "x", "evidence": []}')
    with pytest.raises(Refused, match="too few"):
        measure(root)
