from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.workspaces.search.texts import Texts
from workspaces.search.index import Index, ScoredUnit

SEED = int(os.environ.get("SEED", random.randrange(10**6)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "search" / "x.db"


@pytest.fixture
def index(file: Path) -> Index:
    return Index(file)


def places(found: list[ScoredUnit]) -> list[tuple[str, int]]:
    return [(one.path, one.line) for one in found]


def find(index: Index, texts: Texts, query: str, limit: int = 10) -> list[tuple[str, int]]:
    return places(index.find(texts, query, limit=limit))


def test_a_line_with_all_query_words_ranks_before_a_line_with_half_of_them(index: Index) -> None:
    texts = Texts(
        a="# Trips\n- Ann went to Oslo\n- Bob stays\n", b="- Oslo is cold\n- Ann is here\n"
    )
    assert find(index, texts, "when did Ann go to Oslo?")[0] == ("a.md", 2)


def test_a_query_that_names_a_subject_ranks_lines_of_that_subject_first(index: Index) -> None:
    texts = Texts(a="- Bob: told Ann about the violin\n", b="- Ann: told Bob about the violin\n")
    assert find(index, texts, "Ann violin")[0] == ("b.md", 1)
    assert find(index, texts, "Bob violin")[0] == ("a.md", 1)


def test_a_question_ranks_after_a_statement(index: Index) -> None:
    texts = Texts(a="- Which colour has the boat?\n", b="- The colour the boat has is blue\n")
    assert find(index, texts, "boat colour") == [("b.md", 1), ("a.md", 1)]


def test_lines_are_found_by_their_heading(index: Index) -> None:
    texts = Texts(a="# Harbour\n- open at nine\n# Museum\n- open at ten\n")
    found = index.find(texts, "harbour open", limit=2)
    assert places(found)[0] == ("a.md", 2)
    assert "under a match for: harbour" in found[0].why


def test_lines_are_found_by_their_file_name(index: Index) -> None:
    texts = Texts(**{"notes/harbour": "- open at nine\n", "notes/museum": "- open at ten\n"})
    assert find(index, texts, "harbour open")[0] == ("notes/harbour.md", 1)


def test_lines_with_equal_scores_are_ordered_by_path_and_line(index: Index) -> None:
    far = "\n- same\n" + "- x\n" * 5 + "- same\n"
    texts = Texts(**dict.fromkeys("bdac", "# y\n" + "- x\n" * 5 + far + "- x\n" * 5))
    found = index.find(texts, "same", limit=20)
    assert len({one.score for one in found[:8]}) == 1
    assert places(found[:8]) == [(f"{name}.md", line) for name in "abcd" for line in (8, 14)]


def test_an_empty_query_lists_lines_in_order(index: Index) -> None:
    texts = Texts(b="- three\n", a="- one\n\n- two\n")
    assert find(index, texts, "  ", limit=2) == [("a.md", 1), ("a.md", 3)]
    assert find(index, texts, "") == [("a.md", 1), ("a.md", 3), ("b.md", 1)]


def test_a_query_without_a_matching_word_finds_nothing(index: Index) -> None:
    assert find(index, Texts(a="- one\n"), "?!") == []
    assert find(index, Texts(a="- one\n"), "absent") == []


def test_the_reasons_of_a_result_name_the_matched_words(index: Index) -> None:
    texts = Texts(a="- Ann: likes tea\n", b="- Ann\n")
    found, _ = index.find(texts, "What does Ann drink, tea?", limit=5)
    assert found.why == ("match: ann, tea", "begins with a name from the query")


def test_neighbouring_lines_raise_the_score_only_in_ordered_text(
    file: Path,
) -> None:
    rest = ["- zebra", "- blank"]
    ordered = [f"- about word{n // 4}" for n in range(200)]
    shuffled = random.Random(3).sample(ordered, len(ordered))
    scores: list[float] = []
    for name, lines in (("ordered", ordered), ("shuffled", shuffled)):
        index = Index(file.with_name(f"{name}.db"))
        found = index.find(Texts(a="\n".join([*lines, *rest])), "zebra", limit=5)
        assert found[0].line == 201
        scores.append({one.line: one.score for one in found}.get(202, 0.0))
    assert scores[0] > 0.5
    assert scores[1] < 0.1


NAMES = ("mem_3209466d330e", "src/app/main.py", "JIRA-1234", "Zbigniew", "Project Nightingale")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", ["{}", "what about {} and the tea in the kitchen?"])
def test_an_exact_name_in_a_single_line_ranks_that_line_first(
    index: Index, name: str, question: str
) -> None:
    many = "".join(f"- Ann: the tea in the kitchen is green {n}\n" for n in range(300))
    texts = Texts(a=many, b=f"# x\n- is that ({name})?\n" + many)
    found = index.find(texts, question.format(name), limit=3)
    assert (found[0].path, found[0].line) == ("b.md", 2)
    assert found[0].is_named
    assert found[0].why[0].startswith("exact match")
    assert not found[1].is_named if len(found) > 1 else True


def test_an_exact_name_in_two_lines_singles_out_neither_line(index: Index) -> None:
    texts = Texts(a="- JIRA-1234 is open\n", b="- JIRA-1234 is open\n")
    assert [one.is_named for one in index.find(texts, "JIRA-1234", limit=5)] == [False, False]


def test_text_without_spaces_is_found_by_any_part(index: Index) -> None:
    texts = Texts(a="- 私は緑茶が好きです\n- 今日は雨です\n", b="- เขาชอบดื่มชาเขียว\n")
    assert find(index, texts, "緑茶")[0] == ("a.md", 1)
    assert find(index, texts, "雨")[0] == ("a.md", 2)
    assert find(index, texts, "ชาเขียว")[0] == ("b.md", 1)


def test_filters_apply_before_the_limit(index: Index) -> None:
    texts = Texts(a="- tea\n" * 300, b="- tea and more words than that to be worse\n")
    found = index.find(texts, "tea", limit=1, keep=lambda path: path == "b.md")
    assert places(found) == [("b.md", 1)]
    found = index.find(texts, "tea", limit=2, only=lambda path, line, lines: line == 299)
    assert places(found) == [("a.md", 299)]


def test_only_changed_files_are_read_and_indexed_again(index: Index) -> None:
    texts = Texts(a="- tea\n", b="- coffee\n")
    find(index, texts, "tea")
    texts.reads.clear()
    texts.set("b.md", "- coffee\n- water\n")
    assert find(index, texts, "water") == [("b.md", 2), ("b.md", 1)]
    assert set(texts.reads) == {"b.md"}
    texts.set("b.md", None)
    assert find(index, texts, "coffee") == []


def test_indexing_resumes_correctly_after_a_crash(file: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.workspaces.search.texts import Texts\n"
        "from workspaces.search import index\n"
        "index.BATCH_UNITS = 50\n"
        "texts = Texts(**{f'n{n}': f'- tea {n}\\n' * 20 for n in range(30)})\n"
        "def told(done, total):\n"
        "    if done > total // 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "index.Index(Path(sys.argv[1])).catch_up(texts, told)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        env={**os.environ, "PYTHONPATH": "."},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    texts = Texts(**{f"n{n}": f"- tea {n}\n" * 20 for n in range(30)})
    index = Index(file)
    assert index.catch_up(texts) == 600
    assert len(set(texts.reads)) < 30
    assert same_as_new(index, texts, file, ["tea 7", "tea", "29"])


def test_a_damaged_or_outdated_index_file_is_rebuilt(file: Path) -> None:
    texts = Texts(a="- tea\n")
    for damage in (b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(damage)
        index = Index(file)
        assert find(index, texts, "tea") == [("a.md", 1)]
        index.close()
    with sqlite3.connect(file) as database:
        database.execute("UPDATE recall_state SET format = -1")
    database.close()
    assert find(Index(file), texts, "tea") == [("a.md", 1)]


def test_deleting_the_file_of_an_open_index_does_not_break_recall(file: Path) -> None:
    texts = Texts(a="- tea\n")
    index = Index(file)
    find(index, texts, "tea")
    file.unlink()
    texts.set("a.md", "- coffee\n")
    assert find(index, texts, "coffee") == [("a.md", 1)]
    assert find(Index(file), texts, "coffee") == [("a.md", 1)]


def test_an_index_that_cannot_be_stored_is_made_in_memory(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    texts, index = Texts(a="- tea\n"), Index(tmp_path / "x.db")
    assert find(index, texts, "tea") == [("a.md", 1)]
    assert index.stale_reason == ""


def same_as_new(index: Index, texts: Texts, file: Path, queries: list[str]) -> bool:
    """In all that they find: which of many equals are looked at closer depends on their units' numbers."""
    fresh = Index(file.with_name(f"fresh-{random.randrange(10**9)}.db"))
    for query in queries:
        mine, anew = (which.find(texts, query, limit=1000) for which in (index, fresh))
        assert [(a.path, a.line, a.text) for a in mine] == [(a.path, a.line, a.text) for a in anew]
        assert [a.score for a in mine] == pytest.approx([a.score for a in anew])
        assert [a.why for a in mine] == [a.why for a in anew]
    fresh.close()
    return True


_TOLD = "tea coffee water Ann Bob oslo boat blue green harbour JIRA-1 notes/a.md 緑茶 8 May 2023"
WORDS = _TOLD.split()


def some_text(chance: random.Random) -> str:
    def line() -> str:
        start = chance.choice(["- ", "- ", "# ", "  ", "- Ann: ", ""])
        return (
            start
            + " ".join(chance.choices(WORDS, k=chance.randint(0, 6)))
            + chance.choice(["", "?"])
        )

    return "\n".join(line() for _ in range(chance.randint(0, 40)))


def test_an_updated_index_answers_like_a_new_index(file: Path) -> None:
    """With two indexes on one file, as two processes have them."""
    chance = random.Random(SEED)
    print(f"SEED={SEED}")
    texts = Texts()
    both = [Index(file), Index(file)]
    names = [f"n{n}.md" for n in range(8)]
    for round_ in range(60):
        for name in chance.sample(names, chance.randint(1, 3)):
            known = texts.states()
            if name in known and chance.random() < 0.2:
                texts.set(name, None)
            elif name in known and chance.random() < 0.6:
                lines = (texts.read(name) or b"").decode().split("\n")
                lines.insert(chance.randrange(len(lines) + 1), some_text(chance).split("\n")[0])
                texts.set(name, "\n".join(lines))
            else:
                texts.set(name, some_text(chance))
        index = chance.choice(both)
        queries = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(3)]
        if round_ % 5 == 0:
            assert same_as_new(index, texts, file, queries)
        else:
            find(index, texts, queries[0])


def test_unit_numbers_are_reused(file: Path) -> None:
    """An index that is changed for years does not grow by it."""
    texts = Texts(a="- tea\n" * 10, b="- tea\n")
    index = Index(file)
    for size in [*range(10, 60), *range(60, 10, -1)] * 2:
        texts.set("a.md", "- tea\n" * size)
        texts.set("b.md", "- tea\n" * (70 - size))
        index.catch_up(texts)
    with sqlite3.connect(file) as database:
        (top,) = database.execute("SELECT max(base + room) FROM recall_file").fetchone()
        (units,) = database.execute("SELECT count(*) FROM recall_unit").fetchone()
    database.close()
    assert top < 400
    assert units == index.catch_up(texts)


def test_concurrent_threads_share_an_index_file(file: Path) -> None:
    texts = Texts(**{f"n{n}": f"- tea {n}\n" * 10 for n in range(20)})
    wrong: list[object] = []

    def ask() -> None:
        try:
            index = Index(file)
            for n in range(20):
                found = index.find(texts, f"{n} tea", limit=1)
                if found[0].path != f"n{n}.md":
                    wrong.append(found)
            index.close()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []


def test_a_file_that_never_stops_changing_does_not_delay_the_answer(index: Index) -> None:
    class Restless(Texts):
        def states(self) -> dict[str, str]:
            self.set("a.md", f"- tea {random.random()}\n")
            return super().states()

    assert find(index, Restless(a="- tea\n"), "tea") == [("a.md", 1)]
