"""Several machines of one account: what one forgets goes from all of them, and from the bucket."""

from __future__ import annotations

from pathlib import Path

from harness.forgetting.forgetting import Forgetting
from harness.forgetting.selection import ForgettingRequest
from harness.forgetting.verify import verify
from tests.harness.forgetting.scan import holders, plain, readings, streams
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.conditions import ANY

SECRET = "the heron nests in Galway"


def machine(tmp_path: Path, name: str, prefix: MemoryPrefix, clock: ManualClock) -> Laptop:
    laptop = Laptop(tmp_path / name, prefix, clock, joins=name != "a")
    if name == "a":
        laptop.put("notes", "notes/a.md", f"# A\n\n- {SECRET}\n- tea\n")
        laptop.sync()
    else:
        laptop.attach("notes")
    return laptop


def forget(laptop: Laptop) -> Forgetting:
    forgettings = laptop.harness.rooms.forgettings
    return forgettings.run_here(
        forgettings.start(forgettings.plan(ForgettingRequest(text=SECRET))).id
    )


def heard(laptop: Laptop) -> None:
    """As `harness sync` does."""
    laptop.sync()
    done = laptop.harness.rooms.forgettings.run_pending()
    assert [one.status for one in done if one.status != "done"] == [], done


def in_bucket(prefix: MemoryPrefix) -> list[str]:
    wanted = plain(SECRET)
    return [
        stat.name
        for stat in prefix.store.scan()
        for part in streams(prefix.store.read(stat.name).data)
        if any(wanted in one for one in readings(part))
    ]


def test_what_one_machine_forgets_goes_from_all(tmp_path: Path) -> None:
    prefix, clock = MemoryPrefix(), ManualClock()
    a, b, c = (machine(tmp_path, name, prefix, clock) for name in "abc")
    b.harness.run(f"I think that {SECRET}.", conversation="c1")
    c.harness.run(f"Remember that {SECRET}.", conversation="c2")
    a.harness.rooms.agents.patch("assistant", {"config": {"system": f"Know that {SECRET}."}})
    a.sync()
    c.put("notes", "own.md", f"written offline: {SECRET}\nand more\n")

    done = forget(a)
    assert done.status == "done", done.waits_for
    assert in_bucket(prefix) == []
    assert {one.id: one.heard_at is not None for one in done.machines} == {
        a.home_paths().machine: True,
        b.home_paths().machine: False,
        c.home_paths().machine: False,
    }

    c.workspaces.sync("notes").run(accept_deletions=True)  # it pushes before it hears
    heard(b)
    heard(c)
    heard(a)
    heard(b)
    for laptop in (a, b, c):
        assert holders(laptop.home, SECRET) == []
    assert in_bucket(prefix) == []
    mark = f"[forgotten {done.tombstones[0]}]"
    for laptop in (a, b, c):
        assert laptop.texts("notes")["notes/a.md"] == f"# A\n\n- {mark}\n- tea\n"
        assert laptop.texts("notes")["own.md"] == f"written offline: {mark}\nand more\n"
    assert all(one.heard_at for one in a.harness.rooms.forgettings.show(done.id).machines)

    forgettings = a.harness.rooms.forgettings
    assert verify(forgettings, done.id, SECRET).found == ()
    prefix.store.write(".records/left.json", SECRET.encode(), expect=ANY)
    account = a.harness.rooms.principal.account_id
    prefix.store.write(f".records/{account}/agents/x.json", SECRET.encode(), expect=ANY)
    assert verify(forgettings, done.id, SECRET).found != ()


def test_a_deleted_account_leaves_neither_rules_nor_forgettings(tmp_path: Path) -> None:
    prefix, clock = MemoryPrefix(), ManualClock()
    a = machine(tmp_path, "a", prefix, clock)
    forget(a)
    a.sync()
    rooms = a.harness.rooms
    assert [stat.name for stat in prefix.store.scan() if "/forbidden/" in stat.name]
    rooms.deletion.account()
    assert [stat.name for stat in prefix.store.scan() if "/forbidden/" in stat.name] == []
    assert rooms.forgettings.stored.list() == []
    assert rooms.forgettings.rules.entries() == {}
