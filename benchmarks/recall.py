"""What recall costs: beside plain FTS5 over the same lines, as many questions at a time.

The notes are made here: words of a vocabulary as uneven as a language's, under headings, each line by one
of a few names. Questions take some words of a line, as people ask about what they have half forgotten.

Both sides are all computing, from files that are in memory; so what is measured is the processor's time
of the thread, which whoever else uses the machine disturbs least.
"""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import quantiles

from benchmarks.ratio import report
from harness.memory.similar import Similar, word_set
from workspaces.accounts.account import default_owner
from workspaces.clock import SystemClock
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.search.index import Index
from workspaces.search.words import STOP_WORDS
from workspaces.storage.in_memory import MemoryRecords
from workspaces.tree.scan import YOUNG_S

LINES = (1_000, 10_000, 100_000)
AT_MOST = {1_000: 2.5, 10_000: 1.0, 100_000: 0.37}
"""Of FTS5's time: 1, 3 and 10 ms where that takes 0.4, 3 and 27."""

LINES_OF_A_NOTE = 100
QUESTIONS = 200
SMALL_WORDS = sorted(STOP_WORDS)
NAMES = [f"Name{letter}" for letter in "abcdefghijklmnopqrst"]


class Notes:
    """A source in memory: what is compared is the search, not the reading of files."""

    def __init__(self, lines: int, chance: random.Random) -> None:
        words = [_word(chance) for _ in range(50_000)]
        weights = list(accumulate(1 / (rank + 5) for rank in range(len(words))))

        def line() -> str:
            told = chance.choices(words, cum_weights=weights, k=chance.randint(5, 15))
            small = chance.choices(SMALL_WORDS, k=len(told))
            pairs = " ".join(f"{a} {b}" for a, b in zip(small, told, strict=True))
            return f"- {chance.choice(NAMES)}: {pairs}"

        self.texts: dict[str, str] = {}
        for note in range(lines // LINES_OF_A_NOTE):
            body = "\n".join(line() for _ in range(LINES_OF_A_NOTE - 1))
            self.texts[f"notes/{note:04}.md"] = f"# {chance.choice(words)} {note}\n\n{body}\n"
        self._versions = dict.fromkeys(self.texts, 0)
        self._chance = chance

    def states(self) -> dict[str, str]:
        return {name: str(version) for name, version in self._versions.items()}

    def read(self, name: str) -> bytes:
        return self.texts[name].encode()

    def append(self, name: str, line: str) -> None:
        self.texts[name] += f"{line}\n"
        self._versions[name] += 1

    def lines(self) -> list[str]:
        return [line for text in self.texts.values() for line in text.splitlines() if line]

    def questions(self, count: int) -> list[str]:
        lines = [line for line in self.lines() if line.startswith("- ")]
        return [_question(self._chance.choice(lines), self._chance) for _ in range(count)]


def main() -> None:
    for lines in LINES:
        notes = Notes(lines, random.Random(lines))
        with tempfile.TemporaryDirectory() as place:
            measure(notes, lines, Path(place))
    live()
    similar()


def live() -> None:
    """The whole way, with the look at the files that comes before every answer."""
    with tempfile.TemporaryDirectory() as place:
        home, clock = Home(Path(place)), SystemClock()
        home.prepare()
        records = MemoryRecords(clock)
        owner = default_owner(records, clock)
        workspace = Workspaces(owner, home, records, clock, template=lambda _: {}).create("notes")
        notes = Notes(100_000, random.Random(1))
        for name, text in notes.texts.items():
            file = workspace.root / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        workspace.recall.catch_up()
        time.sleep(YOUNG_S + 0.1)  # what has just been written is read again each time
        questions = notes.questions(50)
        ours = p95(lambda question: workspace.recall.find(question), questions)
        floor = p95(
            lambda _: [entry.stat() for entry in os.scandir(workspace.root / "notes")], questions
        )
        report(
            f"100,000 lines in 1,000 files, with looking at them / stat ({ours * 1e3:.1f} ms)",
            ours,
            floor,
            at_most=None,
        )


def measure(notes: Notes, lines: int, place: Path) -> None:
    index = Index(place / "index.db")
    begin = time.thread_time()
    index.catch_up(notes)
    built = time.thread_time() - begin
    plain = fts5(notes, place / "fts5.db")
    questions = notes.questions(QUESTIONS)
    states = notes.states()
    notes.states = lambda: states  # told at once, as FTS5 is told nothing at all
    ours = p95(lambda question: index.find(notes, question, limit=10), questions)
    peer = p95(plain, questions)
    report(
        f"{lines:,} lines: p95 of a question / FTS5 without stop words ({ours * 1e3:.2f} ms)",
        ours,
        peer,
        at_most=AT_MOST[lines],
    )
    print(f"  built in {built:.2f} s", flush=True)
    del notes.states
    opened, found = fresh(notes, index, place / "index.db")
    print(f"  opening {opened * 1e3:.2f} ms; a new line is found within {found * 1e3:.1f} ms")
    index.close()


def fresh(notes: Notes, index: Index, file: Path) -> tuple[float, float]:
    """Opening the index, with its look at what is there; and asking for a line that was just added."""
    opening: list[float] = []
    finding: list[float] = []
    for number in range(20):
        other = Index(file)
        begin = time.thread_time()
        other.catch_up(notes)
        opening.append(time.thread_time() - begin)
        other.close()
        notes.append("notes/0003.md", f"- Name: the code word is Rumpelstilz{number}")
        begin = time.thread_time()
        (hit,) = index.find(notes, f"Rumpelstilz{number}", limit=1)
        finding.append(time.thread_time() - begin)
        assert hit.text.endswith(str(number))
    return max(opening), max(finding)


def fts5(notes: Notes, file: Path) -> Callable[[str], object]:
    """Every line a row; the words of a question that are no stop words, any of them, by bm25."""
    database = sqlite3.connect(file)
    tokens = "porter unicode61 remove_diacritics 2"
    database.execute(f"CREATE VIRTUAL TABLE line USING fts5(text, tokenize='{tokens}')")
    database.executemany("INSERT INTO line VALUES (?)", ((line,) for line in notes.lines()))
    database.commit()

    def ask(question: str) -> object:
        words = [word for word in question.lower().split() if word not in STOP_WORDS]
        match = " OR ".join(f'"{word}"' for word in words)
        query = "SELECT rowid, text FROM line WHERE line MATCH ? ORDER BY rank LIMIT 10"
        return database.execute(query, (match,)).fetchall()

    return ask


def similar() -> None:
    chance = random.Random(5)
    words = [_word(chance) for _ in range(3_000)]
    weights = list(accumulate(1 / (rank + 5) for rank in range(len(words))))
    rows = {
        f"fact {n}": " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(4, 20)))
        for n in range(10_000)
    }
    kept = Similar()
    for key, text in rows.items():
        kept.put(key, text)
    asked = [_varied(chance.choice(list(rows.values())), chance) for _ in range(200)]
    sets = {key: word_set(text) for key, text in rows.items()}

    def naive(text: str) -> object:
        mine = word_set(text)
        return [key for key, other in sets.items() if len(mine & other) > 0.8 * len(mine | other)]

    ours, peer = p95(kept.find, asked), p95(naive, asked[:20])
    told = f"similar among 10 000 rows: p95 / comparing with each ({ours * 1e3:.3f} ms)"
    report(told, ours, peer, at_most=0.05)


def p95(ask: Callable[[str], object], questions: Sequence[str]) -> float:
    times: list[float] = []
    for question in (questions[0], *questions):
        begin = time.thread_time()
        ask(question)
        times.append(time.thread_time() - begin)
    return quantiles(times[1:], n=20)[-1]


def _word(chance: random.Random) -> str:
    return "".join(
        chance.choice("bcdfghklmnprstvz") + chance.choice("aeiou")
        for _ in range(chance.randint(2, 4))
    )


def _question(line: str, chance: random.Random) -> str:
    name, _, rest = line.removeprefix("- ").partition(": ")
    told = [word for word in rest.split() if word not in STOP_WORDS]
    return f"when did {name} {' the '.join(chance.sample(told, min(4, len(told))))}"


def _varied(text: str, chance: random.Random) -> str:
    words = text.split()
    if chance.random() < 0.5:
        words[chance.randrange(len(words))] = "another"
    return " ".join(words)


if __name__ == "__main__":
    main()
