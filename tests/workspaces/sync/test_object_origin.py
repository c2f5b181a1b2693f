from __future__ import annotations

import pytest

from tests.workspaces.replicas import Replica
from tests.workspaces.two_machines import a, b, machine, place, prefix
from workspaces.history.source import ADOPTED
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.sync.object_origin import origin_in, origins_of

__all__ = ["a", "b", "machine", "place", "prefix"]

TEA = WorkspacePath("facts/tea.md")
CALLER = Author("Ada", "usr_1", "api")
AGENT = Author("helper", "agent_1", "turn")
PINNED = "---\npinned: true\n---\n"


def write(at: Replica, text: str, by: Author) -> None:
    at.workspace.decided.write(TEA, text, by=by)


def origin(at: Replica) -> tuple[str, ...]:
    found = at.workspace.file_origins.origin_of(TEA)
    return found.created_at, found.updated_at, found.source, found.author


def received(at: Replica) -> tuple[str, ...]:
    """The origin at a machine that has the file and none of the writer's history."""
    assert at.workspace.decided.read(TEA).data
    at.workspace.decided.edit(TEA, lambda before: before, by=AGENT)  # brings the file here
    return origin(at)


@pytest.mark.parametrize(("writer", "source"), [(CALLER, "manual"), (AGENT, "auto")])
def test_a_file_without_its_history_has_the_origin_of_its_writers_machine(
    a: Replica, b: Replica, writer: Author, source: str
) -> None:
    write(a, "likes tea\n", writer)
    assert received(b) == origin(a)
    assert origin(b)[2:] == (source, writer.id)


def test_the_revision_has_the_stamp_that_the_store_was_told(a: Replica) -> None:
    write(a, "likes tea\n", CALLER)
    meta = a.sync._there.read(TEA).meta
    (newest, *_) = a.workspace.log()
    assert (meta["stamp"], meta["source"], meta["author"]) == (newest.at, "manual", CALLER.id)


def test_a_change_of_the_front_matter_leaves_the_body_to_its_author(a: Replica, b: Replica) -> None:
    write(a, "likes tea\n", AGENT)
    write(a, f"{PINNED}likes tea\n", CALLER)
    assert received(b)[1:] == origin(a)[1:]
    assert origin(b)[2:] == ("auto", AGENT.id)


def test_an_adopted_body_travels_as_a_persons(a: Replica) -> None:
    write(a, "likes tea\n", AGENT)
    a.workspace.adopt(TEA, by=CALLER)
    write(a, f"{PINNED}likes tea\n", AGENT)
    meta = a.sync._there.read(TEA).meta
    assert (meta["source"], meta["author"]) == ("manual", CALLER.id)


def test_what_a_third_machine_receives_has_the_first_ones_origin(a: Replica, b: Replica) -> None:
    write(a, "likes tea\n", CALLER)
    first = received(b)
    assert origins_of(b.workspace.history, [TEA])[TEA].words == {
        "stamp": first[1],
        "created": first[0],
        "source": "manual",
        "author": CALLER.id,
    }


def test_machines_agree_once_both_histories_are_one(a: Replica, b: Replica) -> None:
    write(a, "likes tea\n", CALLER)
    received(b)
    write(b, "likes coffee\n", CALLER)
    at_once = received(a)
    assert at_once == origin(b)
    for one in (a, b, a, b):
        one.sync.run()
    assert origin(a) == origin(b) == at_once
    assert a.workspace.history.tip() == b.workspace.history.tip()


def test_a_merge_of_two_persons_texts_is_a_persons(a: Replica, b: Replica) -> None:
    write(a, "one\n\ntwo\n", CALLER)
    a.sync.run()
    b.sync.run()
    a.put(TEA, "ONE\n\ntwo\n")
    a.sync.push([TEA])  # the file alone: its history comes later
    b.put(TEA, "one\n\nTWO\n")
    b.sync.push([TEA])
    assert b.texts()[TEA] == "ONE\n\nTWO\n"
    assert origin(b)[2] == "manual"


def test_an_edited_file_that_is_pushed_alone_says_whose_it_is(a: Replica, b: Replica) -> None:
    write(a, "likes tea\n", AGENT)
    a.sync.run()
    b.sync.run()
    a.put(TEA, "likes coffee\n")
    a.sync.push([TEA])
    assert received(b) == origin(a)
    assert origin(b)[2] == "manual"


def test_a_model_adopts_nothing_by_what_it_writes(a: Replica) -> None:
    write(a, "likes tea\n", AGENT.saying(ADOPTED, TEA))
    assert a.sync._there.read(TEA).meta["source"] == "auto"


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"stamp": "2026-01-01T00:00:00.000000Z"},
        {"stamp": "yesterday", "source": "manual"},
        {"stamp": "2026-01-01T00:00:00.000000Z", "source": "gospel"},
    ],
)
def test_metadata_without_a_valid_stamp_and_source_states_no_origin(meta: dict[str, str]) -> None:
    assert origin_in(meta) is None
