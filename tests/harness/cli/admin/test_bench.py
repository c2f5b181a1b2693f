"""`harness bench recall`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.cli.terminal import Terminal


def test_bench_recall_measures_a_folder_of_questions(harness: Terminal, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    (place / "a.md").write_text("- green tea at nine\n")
    question = {"question": "When is tea?", "category": "time", "evidence": [["a.md", 1]]}
    (place / "questions.jsonl").write_text(json.dumps(question))
    shown, document, refused = harness.all(
        ("bench", "recall", str(place)),
        ("bench", "recall", str(place), "--json", "--peer"),
        ("bench", "recall", str(tmp_path / "absent")),
    )
    assert "recall@10" in shown.done().out
    assert "precision" in shown.out
    measured = document.done().json
    assert (measured["recall@1"], measured["precision"], measured["returned"]) == (1.0, 1.0, 1)
    assert measured["peers"]["fts5 porter"]["recall@1"] == 1.0
    refused.refused("there is no directory")
    assert not harness.home.exists()
