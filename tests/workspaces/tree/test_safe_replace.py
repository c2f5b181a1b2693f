"""Safe replace: a save by a person while a program or sync replaces the same file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import Replica
from tests.workspaces.two_machines import MEMORY, a, at_the_next_exchange, b, machine, place, prefix
from workspaces.errors import Unavailable
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import BLOB_BYTES_MAX
from workspaces.tree.conflict_copy import conflict_path
from workspaces.tree.port import Label

__all__ = ["a", "b", "machine", "place", "prefix"]

MOOD = "---\nmood: {}\n---\none\n"
DECISION = "decisions/d.md"


@pytest.fixture(params=["a program", "sync"])
def overtake(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., None]:
    def overtake(path: str, base: str, comes_in: str, **saves: Any) -> None:
        a.put(path, base)
        a.sync.run()
        b.sync.run()
        if request.param == "sync":
            b.put(path, comes_in)
            b.sync.run()
            at_the_next_exchange(a, monkeypatch, **saves)
        else:
            at_the_next_exchange(a, monkeypatch, **saves)
            seen = version_of(base.encode())
            a.workspace.write(path, comes_in, by=CALLER, expect=seen)
        a.sync.run()
        b.sync.run()
        assert a.texts() == b.texts()
        assert a.workspace.displaced() == []

    return overtake


def test_a_concurrent_save_is_merged_with_the_replacement(
    overtake: Callable[..., None], a: Replica
) -> None:
    overtake(MEMORY, "one\n", "one\ntold\n", before="first\none\n")
    assert a.texts() == {MEMORY: "first\none\ntold\n"}


def test_a_concurrent_save_of_the_same_bytes_changes_nothing(
    overtake: Callable[..., None], a: Replica
) -> None:
    overtake(MEMORY, "one\n", "one\ntold\n", before="one\ntold\n")
    assert a.texts() == {MEMORY: "one\ntold\n"}


def test_equal_lines_appended_before_and_after_the_exchange_are_both_preserved(
    overtake: Callable[..., None], a: Replica
) -> None:
    """Before the exchange, and again to what has come in."""
    overtake(MEMORY, "0\nx\n", "1\nx\n", before="0\nx\nx\n", after="1\nx\nx\nx\n")
    assert a.texts() == {MEMORY: "1\nx\nx\nx\nx\n"}


def test_equal_lines_appended_while_a_displaced_save_is_merged_are_both_preserved(
    overtake: Callable[..., None], a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again() -> None:
        at_the_next_exchange(a, monkeypatch, before="1\nx\n")

    overtake(MEMORY, "0\n", "1\n", before="0\nx\n", opened=again)
    assert a.texts() == {MEMORY: "1\nx\nx\n"}


def test_a_late_write_of_an_equal_line_to_the_displaced_file_is_appended(
    overtake: Callable[..., None], a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    shells: list[TextIO] = []

    def again() -> None:
        at_the_next_exchange(
            a, monkeypatch, opened=lambda: shells.append((a.root / MEMORY).open("a"))
        )

    def pause(_: float) -> None:
        while shells:
            with shells.pop() as shell:
                shell.write("x\n")

    a.sync._pause = pause
    overtake(MEMORY, "0\n", "1\n", before="0\nx\n", opened=again)
    assert a.texts() == {MEMORY: "1\nx\nx\n"}


@pytest.mark.parametrize(
    ("base", "comes_in", "saved"),
    [
        ("0\n", "0\ntold\n", "0\nmine\n"),
        ("", "told\n", "mine\n"),
        ("a", "a\ntold\n", "a\nmine\n"),
        ("a\nb\n", "a\nB\n", "A\nb\n"),
    ],
)
def test_a_save_repeated_before_and_after_the_exchange_counts_once(
    overtake: Callable[..., None], a: Replica, base: str, comes_in: str, saved: str
) -> None:
    overtake(MEMORY, base, comes_in, before=saved, after=saved)
    assert a.texts() == {MEMORY: saved}


def test_a_concurrent_save_is_merged_with_a_shell_append_to_the_new_file(
    overtake: Callable[..., None], a: Replica
) -> None:
    overtake(
        MEMORY,
        "0\n-\nmine\n-\nx\n",
        "1\n-\nmine\n-\nx\n",
        before="0\n-\nMINE\n-\nx\n",
        after="1\n-\nmine\n-\nx\nx\n",
    )
    assert a.texts() == {MEMORY: "1\n-\nMINE\n-\nx\nx\n"}


def test_a_concurrent_save_over_an_empty_file_is_merged_and_not_appended(
    overtake: Callable[..., None], a: Replica
) -> None:
    overtake(MEMORY, "", MOOD.format("glad"), before="---\nmood: mine\n---\nby hand\n")
    text = a.texts()[MEMORY]
    assert text.startswith("---\nmood: mine\n---\n")
    assert sorted(text.split("---\n")[2].splitlines()) == ["by hand", "one"]


@pytest.mark.parametrize(
    ("path", "base", "comes_in", "before"),
    [
        ("x.json", "", '{"a": 1}\n', '{"b": 2}\n'),
        (DECISION, "seen\n", "seen\ntold\n", "seen\nby hand\n"),
    ],
)
def test_a_concurrent_save_that_cannot_be_merged_becomes_a_conflict_copy(
    overtake: Callable[..., None], a: Replica, path: str, base: str, comes_in: str, before: str
) -> None:
    overtake(path, base, comes_in, before=before)
    second = conflict_path(WorkspacePath(path), version_of(before.encode()))
    assert a.texts() == {path: comes_in, second: before}


@pytest.mark.parametrize("taken_by", ["a file", "a directory"])
def test_a_conflict_copy_gets_another_name_if_its_name_is_taken(
    overtake: Callable[..., None], a: Replica, taken_by: str
) -> None:
    second = conflict_path(WorkspacePath(DECISION), version_of(b"mine\n"))
    a.put(second if taken_by == "a file" else f"{second}/in.md", "worked on\n")
    overtake(DECISION, "seen\n", "told\n", before="mine\n")
    assert sorted(a.texts().values()) == ["mine\n", "told\n", "worked on\n"]


def test_a_save_after_the_exchange_wins_over_the_displaced_save(
    overtake: Callable[..., None], a: Replica
) -> None:
    """Of what came in, or with the value that it had."""
    after = MOOD.format("second")
    overtake(
        MEMORY, MOOD.format("calm"), MOOD.format("glad"), before=MOOD.format("first"), after=after
    )
    assert a.texts() == {MEMORY: after}


def test_a_save_after_a_crash_wins_over_the_save_displaced_before_the_crash(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(_label: Label) -> None:
        raise Died

    a.put(MEMORY, MOOD.format("calm"))
    a.sync.run()
    at_the_next_exchange(a, monkeypatch, before=MOOD.format("first") + "by hand\n")
    monkeypatch.setattr(a.workspace._blobs, "look", die)
    with pytest.raises(Died):
        seen = version_of(MOOD.format("calm").encode())
        a.workspace.write(MEMORY, MOOD.format("told"), by=CALLER, expect=seen)
    again = machine("a")
    again.put(MEMORY, MOOD.format("an hour later"))
    again.workspace.edits.commit()
    again.sync.run()
    assert again.texts() == {MEMORY: MOOD.format("an hour later") + "by hand\n"}


def test_a_save_displaced_while_the_disk_was_full_is_merged_by_the_next_sync(
    a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the write has happened."""
    a.put(MEMORY, "one\n")
    a.sync.run()
    prepare = a.workspace._blobs.prepare

    def full(_files: Any) -> None:
        raise Unavailable("staging", "the disk is full")

    at_the_next_exchange(
        a,
        monkeypatch,
        before="one\nby hand\n",
        opened=lambda: monkeypatch.setattr(a.workspace._blobs, "prepare", full),
    )
    a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))
    assert a.texts() == {MEMORY: "one\ntold\n"}
    monkeypatch.setattr(a.workspace._blobs, "prepare", prepare)
    a.sync.run()
    assert sorted(a.texts()[MEMORY].split("\n")) == ["", "by hand", "one", "told"]


@pytest.mark.parametrize(
    ("base", "comes_in", "then"),
    [
        (MOOD.format("calm"), MOOD.format("glad"), MOOD.format("calm")),
        ("a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\n"),
        ("a\nb\nc\n", "a\nB\nc\n", None),
    ],
)
def test_a_displaced_save_equal_to_the_replacement_does_not_return_after_a_full_disk(
    a: Replica, monkeypatch: pytest.MonkeyPatch, base: str, comes_in: str, then: str | None
) -> None:
    def full(_data: bytes) -> None:
        raise Unavailable("history", "the disk is full")

    a.put("other.md", "other\n")
    a.put(MEMORY, base)
    a.sync.run()
    at_the_next_exchange(a, monkeypatch, before=comes_in)
    with monkeypatch.context() as patch:
        patch.setattr(a.workspace._safe_replace, "_store_object", full)
        a.workspace.write(MEMORY, comes_in, by=CALLER, expect=version_of(base.encode()))
    if then is None:
        (a.root / MEMORY).unlink()
    else:
        a.put(MEMORY, then)
    a.sync.run()
    assert a.texts().get(MEMORY) == then


def test_a_displaced_save_becomes_a_conflict_copy_beside_a_file_over_the_size_limit(
    a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    exchange = a.workspace._blobs.exchange

    def exchanged(label: Label, path: WorkspacePath) -> None:
        a.put(MEMORY, "one\nby hand\n")
        exchange(label, path)
        os.truncate(a.root / MEMORY, BLOB_BYTES_MAX + 1)

    monkeypatch.setattr(a.workspace._blobs, "exchange", exchanged)
    a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))
    a.sync.run()
    second = conflict_path(WorkspacePath(MEMORY), version_of(b"one\nby hand\n"))
    assert (a.root / second).read_text() == "one\nby hand\n"


def test_a_displaced_hard_link_is_put_back_unread_and_listed_as_a_problem(
    a: Replica, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A hard link goes back to where it was, and is a problem there."""
    secret = tmp_path / "secret"
    secret.write_text("one\nsecret\n")
    a.put(MEMORY, "one\n")
    a.sync.run()

    def linked() -> None:
        (a.root / MEMORY).unlink()
        os.link(secret, a.root / MEMORY)

    at_the_next_exchange(a, monkeypatch, opened=linked)
    a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))
    assert (a.root / MEMORY).samefile(secret)
    assert [one.path for one in a.workspace.edits.problems()] == [MEMORY]
    assert a.workspace.find_version(MEMORY, version_of(secret.read_bytes())) is None
