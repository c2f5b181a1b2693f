from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.paths import WorkspacePath
from workspaces.tree.merge import LINE_CHARACTERS_MAX, MergeResult, merge

NOTE = WorkspacePath("notes/a.md")


def merged(base: str, ours: str, theirs: str) -> MergeResult:
    found = merge(NOTE, base.encode(), ours.encode(), theirs.encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ("a\nb\n", "a\n", "a\nb\nc\n", "a\nc\n"),
        ("a\nb\nc\nd\ne\n", "a\nc\nd\ne\n", "a\nb\nc\nd\nE\n", "a\nc\nd\nE\n"),
        ("a", "a\nb", "a", "a\nb"),
        ("", "a\n", "", "a\n"),
        ("a\n", "b\n", "b\n", "b\n"),
    ],
)
def test_changes_in_different_places_are_merged(
    base: str, ours: str, theirs: str, result: str
) -> None:
    assert merged(base, ours, theirs).data.decode() == result


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        ("a\n", "a\nours\n", "a\ntheirs\n", "a\nours\ntheirs\n"),
        ("a\n", "a\nsame\nours\n", "a\nsame\ntheirs\n", "a\nsame\nours\ntheirs\n"),
        ("x\n", "x1\n", "x2\n", "x1\nx2\n"),
        ("", "ours\n", "theirs\n", "ours\ntheirs\n"),
        ("a", "a\nours", "a\ntheirs", "a\nours\ntheirs"),
        ("", "x\nx\nx\ny\n", "x\nx\nx\nx\nx\n", "x\nx\nx\ny\nx\nx\n"),
        ("x\ny\n", "", "x\ny2\n", "y2\n"),
    ],
)
def test_lines_that_both_sides_wrote_at_the_same_place_are_all_in_the_merge(
    base: str, ours: str, theirs: str, result: str
) -> None:
    found = merged(base, ours, theirs)
    assert found.data.decode() == result
    assert found.overlaps == 1


def test_a_line_removed_on_a_single_side_is_removed_by_the_merge() -> None:
    found = merged("keep\ngone\nkeep too\n", "keep\nkeep too\n", "keep\ngone\nkeep too\nnew\n")
    assert found.data == b"keep\nkeep too\nnew\n"


FRONT = "---\nkey: a\npinned: false\ntags:\n  - x\n---\nbody\n"


def test_front_matter_is_merged_key_by_key() -> None:
    ours = FRONT.replace("pinned: false", "pinned: true")
    theirs = FRONT.replace("  - x", "  - x\n  - y").replace("body", "body of theirs")
    assert merged(FRONT, ours, theirs) == MergeResult(
        b"---\nkey: a\npinned: true\ntags:\n  - x\n  - y\n---\nbody of theirs\n"
    )


def test_a_key_changed_on_both_sides_takes_the_later_value_and_is_reported() -> None:
    ours, theirs = FRONT.replace("key: a", "key: b"), FRONT.replace("key: a", "key: c")
    for later, kept in (("ours", b"key: b"), ("theirs", b"key: c")):
        found = merge(NOTE, FRONT.encode(), ours.encode(), theirs.encode(), later=later)  # type: ignore[arg-type]
        assert found is not None
        assert found.clashes == ("key",)
        assert kept in found.data
        assert not found.is_clean


def test_a_key_removed_on_a_single_side_is_removed_by_the_merge() -> None:
    found = merged(FRONT, FRONT.replace("pinned: false\n", ""), FRONT.replace("key: a", "key: z"))
    assert found.data == b"---\nkey: z\ntags:\n  - x\n---\nbody\n"


def test_front_matter_removed_here_and_changed_there_keeps_its_fences() -> None:
    changed = FRONT.replace("key: a", "key: b")
    for later in ("ours", "theirs"):
        found = merge(NOTE, FRONT.encode(), b"body\n", changed.encode(), later=later)  # type: ignore[arg-type]
        assert found is not None
        assert found.data in {b"body\n", b"---\nkey: b\n---\nbody\n"}
    assert merged(FRONT, "body\n", FRONT).data == b"body\n"


def test_a_code_file_is_merged_only_if_the_changes_do_not_touch() -> None:
    path, base = WorkspacePath("tool.py"), b"one\ntwo\nthree\n"
    found = merge(path, base, b"ONE\ntwo\nthree\n", b"one\ntwo\nTHREE\n")
    assert found == MergeResult(b"ONE\ntwo\nTHREE\n")
    assert merge(path, base, b"ours\ntwo\nthree\n", b"theirs\ntwo\nthree\n") is None
    yaml = WorkspacePath("a.yaml")
    assert merge(yaml, b"---\na: 1\n---\n", b"---\na: 2\n---\n", b"---\na: 3\n---\n") is None


@pytest.mark.parametrize(
    ("path", "ours", "theirs"),
    [
        ("decisions/2026-01-01-x.md", b"one", b"two"),
        ("a.bin", b"\xff\xfe", b"two"),
        ("a.md", b"one\0", b"two"),
        ("a.md", b"x" * (LINE_CHARACTERS_MAX + 1), b"two"),
    ],
)
def test_a_file_that_cannot_be_merged_has_no_merge_result(
    path: str, ours: bytes, theirs: bytes
) -> None:
    assert merge(WorkspacePath(path), b"base", ours, theirs) is None
    assert merge(WorkspacePath(path), ours, ours, theirs) == MergeResult(theirs)


_lines = st.lists(st.sampled_from([*"abcdefgh", ""]), max_size=8)


def _as_text(lines: list[str]) -> str:
    return "\n".join(lines)


@given(_lines, _lines, _lines)
def test_a_merge_loses_no_line_of_either_side(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    found = merged(_as_text(base), _as_text(ours), _as_text(theirs))
    kept = set(found.data.decode().split("\n"))
    assert set(ours) - {*base, ""} <= kept
    assert set(theirs) - {*base, ""} <= kept
    assert kept <= {*base, *ours, *theirs, ""}


@given(_lines, _lines)
def test_merging_an_unchanged_side_yields_the_other_side(base: list[str], side: list[str]) -> None:
    old, new = _as_text(base), _as_text(side)
    assert merged(old, new, old).data == merged(old, old, new).data == new.encode()
    assert merged(old, new, new).data == new.encode()


@given(_lines, _lines, _lines)
def test_both_machines_find_the_same_overlaps(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    one = merged(_as_text(base), _as_text(ours), _as_text(theirs))
    other = merged(_as_text(base), _as_text(theirs), _as_text(ours))
    assert one.overlaps == other.overlaps
    if one.is_clean:
        assert one.data == other.data


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from("abcdefghijklmnop"), min_size=4, max_size=12, unique=True),
    st.data(),
)
def test_a_merge_without_overlaps_equals_the_merge_by_git(
    tmp_path_factory: pytest.TempPathFactory, base: list[str], data: st.DataObject
) -> None:
    middle = len(base) // 2
    ours = [data.draw(st.sampled_from(["1", "2"])), *base[1:]]
    theirs = [*base[:-1], *data.draw(st.lists(st.sampled_from(["3", "4"]), max_size=2))]
    found = merged(*("\n".join(lines) + "\n" for lines in (base, ours, theirs)))
    place = tmp_path_factory.mktemp("merge")
    for name, lines in (("base", base), ("ours", ours), ("theirs", theirs)):
        (place / name).write_text("\n".join(lines) + "\n")
    told = _git_merge(place)
    assert middle
    if told is not None:
        assert found.data == told


def _git_merge(place: Path) -> bytes | None:
    names = [str(place / name) for name in ("ours", "base", "theirs")]
    ended = subprocess.run(["git", "merge-file", "-p", *names], capture_output=True)
    return ended.stdout if ended.returncode == 0 else None
