"""The short parse of a commit for its tree and stamp equals the full parse."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from workspaces.history.git.commit import commit_bytes, parse_commit, parse_tree_and_stamp
from workspaces.history.git.objects import ObjectId
from workspaces.revision import Author, RevisionId, message
from workspaces.timestamp import Stamp

ID = "a" * 40
HEAD = f"tree {ID}\nparent {'b' * 40}\nauthor x <x@y> 1 +0000\ncommitter x <x@y> 1 +0000\n"
AT = "At: 2026-01-01T00:00:00.000001Z"
REVISION = RevisionId("c" * 40)

LINES = st.lists(
    st.sampled_from(
        [AT, "At: yesterday", "At: ", "At:", " At: x", "At", "Source: turn", "Agent: x\x0bAt: y",
         "Agent: \u2028At: z", "Agent: ä", "", "", "subject", "k: \x85At: n", "Agent: x\rAt: y"]
    ),
    max_size=7,
)  # fmt: skip


@given(LINES, st.sampled_from(["", "\n", "\n\n", " \n"]), st.sampled_from(["", "encoding x\n"]))
@example(["subject", "", AT, "Source: turn"], "\n", "")
@example(["subject", "", AT, "Agent: x\x0bAt: y"], "\n", "")
@example(["subject", "", AT, "At: yesterday"], "\n", "")
def test_the_short_parse_of_any_commit_equals_the_full_parse(
    lines: list[str], end: str, more: str
) -> None:
    data = (HEAD + more + "\n" + "\n".join(lines) + end).encode()
    commit = parse_commit(REVISION, data)
    assert parse_tree_and_stamp(REVISION, data) == (commit.tree, commit.at)


@given(st.text(max_size=30), st.text(max_size=30), st.lists(st.just(REVISION), max_size=3))
def test_the_short_parse_reads_the_tree_and_stamp_of_a_recorded_revision(
    name: str, told: str, parents: list[RevisionId]
) -> None:
    author, at = Author(name, "id", "turn", {"Agent": told}), Stamp(AT.removeprefix("At: "))
    before = [parse_commit(parent, HEAD.encode()) for parent in parents]
    data = commit_bytes(ObjectId(ID), before, author, at, message([], author, at))
    assert parse_tree_and_stamp(REVISION, data) == (ID, at)
