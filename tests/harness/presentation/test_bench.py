"""The benchmark of recall: its figures, and which folders are refused."""

from __future__ import annotations

import json
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
        "recall@1 recall@5 recall@10 recall@20 hit@10 mrr p50_ms p95_ms build_s lines questions"
    )
    assert measured.keys() == {*wanted.split(), "by_category"}


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
