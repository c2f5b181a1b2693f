"""What the report says of machines that share a bucket, when no tombstone reaches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.forgetting.forgetting import Forgetting
from harness.forgetting.selection import ForgettingRequest
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.paths import WorkspacePath

SECRET = "the heron nests in Galway"


def forgotten(laptop: Laptop, **asked: Any) -> Forgetting:
    forgettings = laptop.harness.rooms.forgettings
    started = forgettings.start(forgettings.plan(ForgettingRequest(**asked)))
    return forgettings.show(forgettings.run_here(started.id).id)


def test_a_forgotten_revision_says_what_it_leaves_on_other_machines(tmp_path: Path) -> None:
    """Their files and histories follow. What they have not pushed, and what they alone hold, is named."""
    clock, prefix = ManualClock(), MemoryPrefix()
    a = Laptop(tmp_path / "a", prefix, clock, joins=False)
    a.put("notes", "a.md", f"{SECRET}\n")
    a.sync()
    b = Laptop(tmp_path / "b", prefix, clock)
    b.attach("notes")
    b.harness.run(f"I saw that {SECRET}.", conversation="c1")
    b.put("notes", "unpushed.md", f"{SECRET}\n")
    revision = a.workspaces.get("notes").history.log(path=WorkspacePath("a.md"), limit=1)[0].id

    done = forgotten(a, revision=revision)
    assert (done.status, done.machines) == ("done", ())
    (why,) = (one.why for one in done.unreachable if one.where == "other machines")
    assert "not pushed" in why and "conversations" in why and "`--text`" in why
    b.sync()
    assert SECRET not in b.texts("notes")["a.md"]
    assert SECRET in b.texts("notes")["unpushed.md"]  # as the report says

    done = forgotten(a, text=SECRET)
    assert [one.where for one in done.unreachable if one.where == "other machines"] == []
    b.sync()
    b.harness.rooms.forgettings.run_pending()
    a.sync()
    assert all(one.heard_at for one in a.harness.rooms.forgettings.show(done.id).machines)
    for laptop in (a, b):
        assert not [text for text in laptop.texts("notes").values() if SECRET in text]
    entries = b.harness.conversations.transcript(b.harness.conversation("c1")).entries()
    assert not [one for one in entries if SECRET in one.message.text]
