"""Rewriting a history: what changes, what stays, and how old ids are found."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from workspaces.clock import ManualClock
from workspaces.errors import NotFound
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId

BY = Author("caller", "usr_2", "api")
SECRET, MARK = "secret", "[forgotten f_1]"


def redact(text: str) -> str:
    return text.replace(SECRET, MARK)


def redact_file(path: str, data: bytes) -> RedactedFile | None:
    if b"\xff" in data:
        return RedactedFile(None, 1)
    new = redact(data.decode())
    return RedactedFile(new.encode(), 1) if new != data.decode() else None


REDACTION = Redaction(redact_file, redact)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History.create(tmp_path / "h.git", ManualClock())


def record(history: History, by: Author = BY, **files: str | bytes | None) -> RevisionId:
    changes = {
        WorkspacePath(name.replace("__", "/") + ".md"): text.encode()
        if isinstance(text, str)
        else text
        for name, text in files.items()
    }
    return history.record(changes, by)


def rewrite(history: History, redaction: Redaction = REDACTION) -> dict[RevisionId, RevisionId]:
    tip = history.tip()
    rewritten = history.rewrite(redaction)
    assert tip is not None and rewritten is not None
    history.replace(rewritten.tip, expect=tip)
    history.erase_replaced()
    history.end_erasure()
    return dict(rewritten.renamed)


def files(history: History, revision: RevisionId) -> dict[str, bytes]:
    return {path: history.read(blob) for path, blob in history.tree(revision).items()}


def test_every_version_is_rewritten_and_nothing_else(history: History, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    words = ["tea", "coffee", "card", "house", f"my {SECRET} x", "Zürich", "42"]
    names = [WorkspacePath(name) for name in ("a.md", "b.md", "n/a.md", "n/deep/c.md", "n/d.md")]
    old: dict[RevisionId, dict[str, bytes]] = {}
    parents: dict[RevisionId, tuple[RevisionId, ...]] = {}
    for _ in range(40):
        text = "".join(chance.choice(words) + "\n" for _ in range(chance.randint(1, 6))).encode()
        data = chance.choice([text, text, text, None, b"\xff" + text])
        beside = {chance.choice(names): b"theirs\n" + text} if chance.random() < 0.3 else None
        tip = history.record({chance.choice(names): data}, BY, beside=beside)
        waiting = [tip]
        while waiting:
            one = waiting.pop()
            if one not in old:
                old[one], parents[one] = files(history, one), history.commit(one).parents
                waiting += parents[one]
    before = {one.id: one for one in history.log(limit=1000)}
    renamed = rewrite(history)
    for one, had in old.items():
        new = renamed.get(one, one)
        assert history.commit(new).parents == tuple(renamed.get(of, of) for of in parents[one])
        assert files(history, new) == {
            path: data.replace(SECRET.encode(), MARK.encode())
            for path, data in had.items()
            if b"\xff" not in data
        }
        assert history.commit(new).at == before[one].at
        assert history.resolve(one) == new
        assert (new == one) == (one not in renamed)
    done = subprocess.run(
        ["git", f"--git-dir={tmp_path / 'h.git'}", "fsck", "--strict", "--unreachable"],
        check=True,
        capture_output=True,
    )
    assert done.stdout == b""


def test_revisions_before_the_text_keep_their_ids(history: History) -> None:
    first = record(history, a="one\n")
    second = record(history, a=f"one\n{SECRET}\n")
    third = record(history, a="one\n")
    renamed = rewrite(history)
    assert first not in renamed
    assert {second, third} == set(renamed)
    assert history.resolve(second[:12]) == renamed[second]
    with pytest.raises(NotFound):
        history.resolve("0123456789")


def test_a_history_that_is_rewritten_twice_knows_all_ids(history: History) -> None:
    old = record(history, a=f"{SECRET} and other\n")
    middle = rewrite(history)[old]
    record(history, b="later\n")
    other = Redaction(
        lambda _path, data: (
            RedactedFile(data.replace(b"other", b"-"), 1) if b"other" in data else None
        )
    )
    new = rewrite(history, other)[middle]
    assert history.resolve(old) == history.resolve(middle) == new
    assert history.commit(new).trailers["Was"] == f"{old} {middle}"
    assert files(history, old) == {"a.md": f"{MARK} and -\n".encode()}


def test_a_subject_that_quotes_a_part_of_the_text_quotes_the_mark(history: History) -> None:
    line = "x" * 55 + " begins a " + SECRET
    record(history, a="one\n")
    record(history, a=f"one\n{line} that goes on\n")
    assert history.log(limit=1)[0].subject.endswith("…")
    assert "beg…" in history.log(limit=1)[0].subject
    hidden = Redaction(
        lambda _path, data: (
            RedactedFile(data.replace(line.encode(), MARK.encode()), 1)
            if line.encode() in data
            else None
        )
    )
    rewrite(history, hidden)
    assert history.log(limit=1)[0].subject == f"a.md: +1 −0 · {MARK} that goes on"


def test_names_trailers_and_people_are_rewritten(history: History) -> None:
    by = Author(f"Anna {SECRET}", SECRET, "api", {"Conversation": f"conv_1 about {SECRET}"})
    old = record(history, by, **{f"n__{SECRET}": "x\n", f"n__{SECRET}_2": "y\n", "n__z": "z\n"})
    restored = record(history, BY.saying("Restored", old), a="1\n")
    renamed = rewrite(history)
    commit = history.commit(renamed[old])
    assert commit.author == f"Anna {MARK}"
    assert commit.author_id == MARK.replace(" ", "-")
    assert commit.trailers["Conversation"] == f"conv_1 about {MARK}"
    assert set(files(history, renamed[old])) == {f"n/{MARK}.md", f"n/{MARK}_2.md", "n/z.md"}
    assert history.commit(renamed[restored]).trailers["Restored"] == renamed[old]
    assert SECRET not in history.log(limit=2)[1].subject


def test_two_names_that_become_one_get_numbers(history: History) -> None:
    upper = SECRET.upper()
    both = Redaction(lambda _path, _data: None, lambda text: redact(text).replace(upper, MARK))
    record(history, **{SECRET: "one\n", upper: "two\n", f"{SECRET}__below": "three\n"})
    rewrite(history, both)
    tip = history.tip()
    assert tip is not None
    assert files(history, tip) == {
        f"{MARK}.md": b"two\n",
        f"{MARK} 2.md": b"one\n",
        f"{MARK}/below.md": b"three\n",
    }


def test_other_refs_and_logs_do_not_keep_the_old_history(history: History, tmp_path: Path) -> None:
    old = record(history, a=f"{SECRET}\n")
    git = ["git", f"--git-dir={tmp_path / 'h.git'}"]
    subprocess.run([*git, "tag", "kept", old], check=True)
    subprocess.run([*git, "pack-refs", "--all", "--no-prune"], check=True)
    subprocess.run([*git, "update-ref", "--create-reflog", "refs/heads/other", old], check=True)
    history.keep(SECRET.encode())
    rewrite(history)
    assert history.tip() is not None
    shown = subprocess.run(
        [*git, "cat-file", "--batch-all-objects", "--batch"], check=True, capture_output=True
    )
    assert SECRET.encode() not in shown.stdout
    assert not (tmp_path / "h.git" / "logs").exists()
    assert history.resolve(old) == history.tip()


def test_a_crash_before_the_erasure_is_finished_by_the_next_packing(
    history: History, tmp_path: Path
) -> None:
    old = record(history, a=f"{SECRET}\n")
    rewritten = history.rewrite(REDACTION)
    assert rewritten is not None
    history.replace(rewritten.tip, expect=old)
    again = History(tmp_path / "h.git", ManualClock())
    assert again.needs_packing
    again.pack()
    assert not again.has(old)
    assert again.is_replaced, "what was made of the old history may be there still"


def received(history: History, other: History) -> RevisionId:
    """The newest revision of another history, with all that it has grown from."""
    tip = other.tip()
    assert tip is not None
    with history.quarantine() as quarantine:
        for _, bundle in other.bundles(tip, []):
            quarantine.take(bundle)
        history.receive(quarantine, tip)
    return tip


def test_a_history_that_has_nothing_of_ours_does_not_replace_it(
    history: History, tmp_path: Path
) -> None:
    record(history, a="ours\n")
    other = History.create(tmp_path / "other.git", ManualClock())
    record(other, BY.saying("Forgot", "f_1").saying("Was", "0" * 40), a="theirs\n")
    assert not history.is_replaced_by(received(history, other))


def test_a_rewritten_history_replaces_the_old_one_and_not_the_reverse(
    history: History, tmp_path: Path
) -> None:
    first = record(history, a=f"{SECRET}\n")
    other = History.create(tmp_path / "other.git", ManualClock())
    other.follow(received(other, history), {}, BY)
    record(history, b="ours alone\n")
    renamed = rewrite(other)
    theirs = received(history, other)
    assert theirs == renamed[first]
    assert history.is_replaced_by(theirs)
    assert not other.is_replaced_by(received(other, history))
