"""The cached check of a git tree equals the full check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.errors import Refused
from workspaces.history.git import tree_check
from workspaces.history.git.tree_check import TreeChecker

NAMES = st.lists(st.sampled_from(["a.md", "b.md", "notes", "x", "facts"]), unique=True, max_size=4)
MODES = st.lists(st.sampled_from(["100644", "40000"]), min_size=5, max_size=5)
IDS = st.binary(min_size=20, max_size=20)
ENTRIES = st.builds(lambda names, modes: list(zip(modes, names, strict=False)), NAMES, MODES)


def tree(entries: list[tuple[str, str]], ids: list[bytes]) -> bytes:
    parts = [f"{m} {n}\0".encode() + i for (m, n), i in zip(entries, ids, strict=False)]
    return b"".join(parts)


@given(st.lists(st.tuples(ENTRIES, st.lists(IDS, min_size=4, max_size=4)), max_size=30))
def test_the_check_of_a_tree_does_not_depend_on_trees_checked_before(
    trees: list[tuple[list[tuple[str, str]], list[bytes]]],
) -> None:
    known = TreeChecker()
    for entries, ids in trees:
        data = tree(entries, ids)
        told = known.check(data)
        assert told == TreeChecker().check(data)
        files = [name for mode, name in entries if mode == "100644"]
        below = [(len(n), i.hex()) for (m, n), i in zip(entries, ids, strict=False) if m == "40000"]
        assert told.extent == (len(files), 1, max((len(name) for _, name in entries), default=0))
        assert list(told.below(data)) == below


def test_object_ids_that_look_like_tree_entries_are_accepted() -> None:
    known, odd = TreeChecker(), b"100644 b.md\x00" + b"\0" * 8
    for one in (bytes(20), odd, b"120000 evil\x00" + b"1" * 8):
        assert known.check(b"100644 a.md\0" + one) == ((1, 1, 4), ())


def test_a_bad_tree_as_long_as_a_known_tree_is_refused() -> None:
    known, one = TreeChecker(), bytes(20)
    known.check(b"100644 a.md\0" + one)
    for bad in (b"120000 a.md\0", b"100644 a:md\0", b"100644 .git\0", b"160000 a.md\0"):
        with pytest.raises(Refused):
            known.check(bad + one)


def test_the_cache_of_checked_trees_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_check, "KEPT_MAX", 3)
    known = TreeChecker()
    for number in range(1, 20):
        assert known.check(b"100644 " + b"n" * number + b"\0" + bytes(20)).extent.bytes == number
        assert len(known._cache) <= 3
    large = b"".join(b"100644 %05d\0" % n + bytes(20) for n in range(2_000))
    assert known.check(large).extent.files == 2_000
    assert len(large) not in known._cache


def test_a_malformed_tree_is_refused_at_its_first_byte() -> None:
    with pytest.raises(Refused, match="is an invalid tree"):
        TreeChecker().check(b"0" * 100_000)
