"""Measure recall: notes, questions, and the lines that should be found.

A folder holds `questions.jsonl`, one object a line with `question`, `evidence` (pairs of a path and a line
number, from 1) and an optional `category`, and beside it the Markdown files that the paths name. A folder of
such folders is measured as a whole: each question is asked of its own folder. The index is made in a
temporary directory and deleted afterwards.

Recall at a depth is measured without the cut; `precision` and `returned` are those of an answer with it.
SQLite's FTS5 can be asked the same questions: each unit a row, any of the question's words that is no stop
word, the best by bm25.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, quantiles
from typing import Annotated

from pydantic import Field

from workspaces.errors import NotFound, Refused
from workspaces.search.embeddings import Embedder
from workspaces.search.index import Index
from workspaces.search.ranking import is_shown, lowest_shown
from workspaces.search.source import ENDINGS
from workspaces.search.unit import text_units
from workspaces.search.words import STOP_WORDS
from workspaces.validation import StrictModel, parse

QUESTIONS = "questions.jsonl"
DEPTH = 20
"""The number of results that are compared with the evidence."""

LIMIT = 10
"""The number of results of which an answer with the cut shows some: the default everywhere."""

PEERS = {"fts5 porter": "porter unicode61", "fts5 unicode61": "unicode61"}
"""Plain engines to compare with, and their tokenizers."""
_PEER_WORD = re.compile(r"[^\W_]+")

OnBenchProgress = Callable[[int, int], None]


class BenchQuestion(StrictModel):
    """One question of the benchmark."""

    question: Annotated[str, Field(min_length=1)]
    evidence: list[Annotated[list[str | int], Field(min_length=2, max_length=2)]]
    """Pairs of a path and a line, as lists: JSON has no pairs."""
    category: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one question: the rank of each of its lines, from 1, and the time it took."""

    category: str | None
    ranks: tuple[int | None, ...]
    seconds: float
    returned: int = 0
    """Lines of the answer with the cut."""
    right: int = 0
    """Those of them that are evidence."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of all questions."""

    answers: Sequence[QuestionResult]
    build_s: float
    lines: int
    peers: Mapping[str, Sequence[QuestionResult]]
    """The results of the peers, by name. They have no cut."""

    def as_json(self) -> dict[str, object]:
        times = sorted(answer.seconds * 1e3 for answer in self.answers)
        percentiles = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        categories = sorted({answer.category for answer in self.answers if answer.category})
        document: dict[str, object] = {
            **_figures(self.answers),
            **_cut_figures(self.answers),
            "p50_ms": round(percentiles[49], 3),
            "p95_ms": round(percentiles[94], 3),
            "build_s": round(self.build_s, 3),
            "lines": self.lines,
            "questions": len(self.answers),
            "by_category": {
                name: {
                    **_figures(of := [one for one in self.answers if one.category == name]),
                    **_cut_figures(of),
                    "questions": len(of),
                }
                for name in categories
            },
        }
        if self.peers:
            document["peers"] = {
                peer: {
                    **_figures(results),
                    "questions": len(results),
                    "by_category": {
                        name: _figures([one for one in results if one.category == name])
                        for name in categories
                    },
                }
                for peer, results in self.peers.items()
            }
        return document


class Folder:
    """The Markdown files of a directory that is not a workspace. They are read once."""

    def __init__(self, root: Path) -> None:
        self._texts = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.suffix.lower() in ENDINGS and path.is_file()
        }
        self._states = dict.fromkeys(self._texts, "read")

    def states(self) -> Mapping[str, str]:
        return self._states

    def read(self, name: str) -> bytes:
        return self._texts[name]


def measure(
    root: Path,
    on_progress: OnBenchProgress | None = None,
    *,
    embedder: Embedder | None = None,
    with_peers: bool = False,
) -> Measured:
    """Measure recall on a folder. `on_progress` receives the number of answered questions and the total.

    Raises: NotFound without questions; Refused for an invalid question.
    """
    folders = [(folder, list(_questions(folder))) for folder in _folders(root)]
    total = sum(len(questions) for _, questions in folders)
    answers: list[QuestionResult] = []
    peers: dict[str, list[QuestionResult]] = {name: [] for name in PEERS if with_peers}
    build_s, lines = 0.0, 0
    for folder, questions in folders:
        source = Folder(folder)
        with tempfile.TemporaryDirectory(prefix="recall-") as place:
            index = Index(Path(place) / "index.db", embedder)
            begin = time.perf_counter()
            lines += index.catch_up(source)
            build_s += time.perf_counter() - begin
            for question in questions:
                answers.append(_ask(index, source, question))
                if on_progress is not None:
                    on_progress(len(answers), total)
            index.close()
        for peer, results in peers.items():
            results += _ask_peer(PEERS[peer], source, questions)
    return Measured(answers, build_s, lines, peers)


def _ask(index: Index, source: Folder, question: BenchQuestion) -> QuestionResult:
    begin = time.perf_counter()
    hits = index.find(source, question.question, limit=DEPTH)
    seconds = time.perf_counter() - begin
    ranks = _ranks([(one.path, one.line) for one in hits], question)
    found = hits[:LIMIT]
    lowest = lowest_shown(found)
    shown = [] if lowest is None else [one for one in found if is_shown(one, lowest)]
    right = {(one.path, one.line) for one in shown} & {
        (path, line) for path, line in question.evidence
    }
    return QuestionResult(question.category, ranks, seconds, len(shown), len(right))


def _ranks(found: Iterable[tuple[str, int]], question: BenchQuestion) -> tuple[int | None, ...]:
    """Return the rank of each line of the evidence among the places that were found."""
    rank: dict[tuple[str | int, str | int], int] = {}
    for number, place in enumerate(found, 1):
        rank.setdefault(place, number)
    return tuple(rank.get((path, line)) for path, line in question.evidence)


def _ask_peer(
    tokenizer: str, source: Folder, questions: Sequence[BenchQuestion]
) -> Iterator[QuestionResult]:
    """Yield what plain FTS5 answers to the questions of a folder."""
    places: list[tuple[str, int]] = []
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE VIRTUAL TABLE unit USING fts5(text, tokenize='{tokenizer}')")
        for name in source.states():
            listed = list(text_units(name, source.read(name).decode(errors="replace")))
            places += ((name, unit.line) for unit in listed)
            database.executemany("INSERT INTO unit VALUES (?)", ((unit.text,) for unit in listed))
        for question in questions:
            words = dict.fromkeys(_PEER_WORD.findall(question.question.lower()))
            match = " OR ".join(f'"{word}"' for word in words if word not in STOP_WORDS)
            query = "SELECT rowid FROM unit WHERE unit MATCH ? ORDER BY rank LIMIT ?"
            begin = time.perf_counter()
            rows = database.execute(query, (match, DEPTH)).fetchall() if match else []
            seconds = time.perf_counter() - begin
            found: list[tuple[str, int]] = [places[number - 1] for (number,) in rows]
            ranks = _ranks(found, question)
            yield QuestionResult(question.category, ranks, seconds)


def _figures(answers: Sequence[QuestionResult]) -> dict[str, float]:
    """Return the figures over all questions, each the mean of the questions' figures.

    Recall at a depth is the share of a question's lines among that many first results. The reciprocal rank is
    that of the first of its lines.
    """

    def share(answer: QuestionResult, depth: int) -> float:
        return mean(rank is not None and rank <= depth for rank in answer.ranks)

    def reciprocal(answer: QuestionResult) -> float:
        return max(1 / rank if rank else 0.0 for rank in answer.ranks)

    return {
        **{
            f"recall@{depth}": round(mean(share(one, depth) for one in answers), 4)
            for depth in (1, 5, 10, 20)
        },
        "hit@10": round(mean(share(one, 10) > 0 for one in answers), 4),
        "mrr": round(mean(reciprocal(one) for one in answers), 4),
    }


def _cut_figures(answers: Sequence[QuestionResult]) -> dict[str, float]:
    """Return the number of lines that an answer with the cut has, and the share of them that is evidence.

    An empty answer has a share of 0."""
    return {
        "precision": round(mean(one.right / max(1, one.returned) for one in answers), 4),
        "returned": round(mean(one.returned for one in answers), 2),
    }


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise NotFound("directory", str(root))
    folders = [place.parent for place in (root / QUESTIONS, *sorted(root.glob(f"*/{QUESTIONS}")))]
    with_questions = [folder for folder in folders if (folder / QUESTIONS).is_file()]
    if not with_questions:
        remedy = f"put it into {root}, or name a folder of folders that have one"
        raise NotFound("file", QUESTIONS, remedy=remedy)
    return with_questions


def _questions(folder: Path) -> Iterator[BenchQuestion]:
    """Yield the questions of a folder that have evidence. The others cannot be measured."""
    file = folder / QUESTIONS
    count = 0
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            document = json.loads(line)
        except ValueError as error:
            raise Refused(where, line, "is not JSON") from error
        question = parse(BenchQuestion, document, within=where)
        if question.evidence:
            count += 1
            yield question
    if not count:
        raise Refused(str(file), count, "questions with evidence are too few to measure recall")
