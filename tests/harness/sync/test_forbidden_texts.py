"""What is forbidden on one machine is forbidden on all, and a text that comes in is mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.conditions import ANY
from workspaces.errors import ForbiddenText

SECRET = "the code is 4711"
NOTE = "notes/a.md"


@pytest.fixture
def prefix() -> MemoryPrefix:
    return MemoryPrefix()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def a(tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock) -> Laptop:
    first = Laptop(tmp_path / "a", prefix, clock, joins=False)
    first.put("notes", NOTE, "# A\n\n- tea\n")
    first.sync()
    return first


@pytest.fixture
def b(a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock) -> Laptop:
    del a
    second = Laptop(tmp_path / "b", prefix, clock)
    second.attach("notes")
    return second


def forbid(laptop: Laptop, **fields: str) -> str:
    return laptop.harness.rooms.forbidding.forbid(fields).id


def rules(laptop: Laptop) -> list[str]:
    return [rule.id for rule in laptop.harness.rooms.forbidding.list()]


def entry(laptop: Laptop, rule_id: str) -> str:
    return f".records/{laptop.harness.rooms.principal.account_id}/forbidden/{rule_id}.json"


def test_a_rule_travels_with_its_key_and_is_lifted_everywhere(
    a: Laptop, b: Laptop, clock: ManualClock
) -> None:
    rule, pattern = forbid(a, text=SECRET), forbid(b, match="ACME-[0-9]+")
    a.sync()
    assert b.sync() and a.sync()
    assert sorted(rules(a)) == sorted(rules(b)) == sorted([rule, pattern])
    with pytest.raises(ForbiddenText):
        b.workspaces.get("notes").write(NOTE, f"- {SECRET}\n")
    stored = a.prefix.store.read(entry(a, rule)).data.decode()
    assert "4711" not in stored and json.loads(stored)["words"] == 4
    clock.advance(5)
    b.harness.rooms.forbidding.lift(rule)
    b.sync()
    a.sync()
    assert rules(a) == rules(b) == [pattern]
    a.workspaces.get("notes").write(NOTE, f"- {SECRET}\n")


def test_a_text_that_comes_from_another_machine_is_mended_and_sent_back(
    a: Laptop, b: Laptop
) -> None:
    rule = forbid(a, text=SECRET)
    b.put("notes", NOTE, "# A\n\n- tea\n- The code\n  is **4711**, you know\n")
    b.put("notes", "new.md", f"{SECRET}\n")
    b.sync()  # it has not heard of the rule
    a.sync()
    mended = f"# A\n\n- tea\n- [forgotten {rule}]\n**, you know\n"
    for laptop in (a, b):
        laptop.sync()
        assert laptop.texts("notes")[NOTE] == mended
        assert laptop.texts("notes")["new.md"] == f"[forgotten {rule}]\n"
        assert laptop.workspaces.get("notes").edits.problems() == []
    stored = [a.prefix.store.read(stat.name).data for stat in a.prefix.walk("fs-")]
    assert not any(b"4711" in data for data in stored)


def test_a_merge_with_a_forbidden_text_keeps_all_other_lines(a: Laptop, b: Laptop) -> None:
    rule = forbid(a, text=SECRET)
    a.put("notes", NOTE, "# A\n\n- green tea\n")
    b.put("notes", NOTE, f"# A\n\n- tea\n- {SECRET}\n- from b\n")
    b.sync()
    a.sync()
    b.sync()
    for laptop in (a, b):
        text = laptop.texts("notes")[NOTE]
        assert "4711" not in text and f"[forgotten {rule}]" in text
        assert "green tea" in text and "from b" in text


MENDED = "# A\n\n- tea\n- the code is out\n"


def hold_back(a: Laptop, path: str = NOTE) -> None:
    forbid(a, text=SECRET)
    a.put("notes", path, f"# A\n\n- tea\n- {SECRET}\n")


def mend(a: Laptop, b: Laptop, path: str = NOTE) -> str:
    """Take the text out of the file, and return what both machines have then."""
    a.put("notes", path, MENDED)
    for laptop in (a, b, a):
        laptop.sync()
    assert a.texts("notes") == b.texts("notes")
    assert a.workspaces.get("notes").edits.problems() == []
    return a.texts("notes")[path]


def test_a_change_of_a_file_that_is_held_back_counts_for_readers_and_is_merged_later(
    a: Laptop, b: Laptop
) -> None:
    hold_back(a)
    b.put("notes", NOTE, "# A, by b\n\n- tea\n")
    b.put("notes", "other.md", "other\n")
    b.sync()
    for _ in range(2):
        a.sync()
        revisions = len(a.workspaces.get("notes").history.log(limit=20))
        b.sync()
    notes = a.workspaces.get("notes")
    assert "4711" in a.texts("notes")[NOTE] and a.texts("notes")["other.md"] == "other\n"
    assert notes.read(NOTE).text == "# A, by b\n\n- tea\n"
    a.put("notes", "later.md", "later\n")
    a.sync()
    b.sync()
    assert b.texts("notes")["later.md"] == "later\n"
    assert len(notes.history.log(limit=20)) == revisions + 1  # the syncs between made none
    (problem,) = notes.edits.problems()
    assert (problem.path, problem.kind) == (NOTE, "forbidden") and "line 4" in problem.detail
    assert mend(a, b) == "# A, by b\n\n- tea\n- the code is out\n"


def test_a_deletion_of_a_file_that_is_held_back_deletes_nothing_of_it(a: Laptop, b: Laptop) -> None:
    hold_back(a)
    (b.workspaces.get("notes").root / NOTE).unlink()
    b.sync()
    a.sync()
    assert "4711" in a.texts("notes")[NOTE]
    assert [one.path for one in a.workspaces.get("notes").edits.problems()] == [NOTE]
    assert mend(a, b) == MENDED


def test_a_new_file_that_is_held_back_is_merged_with_that_of_another_machine(
    a: Laptop, b: Laptop
) -> None:
    hold_back(a, "new.md")
    b.put("notes", "new.md", "from b\n")
    b.sync()
    a.sync()
    assert a.workspaces.get("notes").read("new.md").text == "from b\n"
    text = mend(a, b, "new.md")
    assert "from b\n" in text and "- the code is out\n" in text


def test_an_entry_that_is_not_valid_is_listed_and_changes_nothing(a: Laptop, b: Laptop) -> None:
    rule = forbid(a, text=SECRET)
    a.sync()
    name = entry(a, rule)
    value = json.loads(a.prefix.store.read(name).data)
    for bad in (b"{", json.dumps({**value, "words": 99}).encode(), b"[" * 10_000):
        a.prefix.store.write(name, bad, expect=ANY)
        followed = b.follow()
        assert rules(b) == []
        assert [one.name for one in followed.troubles] == [f"forbidden/{rule}.json"]
    a.follow()  # it knows the rule and puts it back
    b.follow()
    assert rules(b) == [rule]
