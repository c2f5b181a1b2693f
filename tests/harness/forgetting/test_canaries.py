"""Canaries in every kind of place of three homes, and of a bucket that keeps versions. After forgetting, no
byte of them is left, and nothing else is gone. Put back into any kind of place, one of them is found again.

What looks for them is a program of its own (`scan`). It reads bytes, and knows nothing of the harness.
"""

from __future__ import annotations

import random
import re
import shutil
from itertools import repeat
from pathlib import Path
from typing import Any

from harness.backup.create import create
from harness.forgetting.forgetting import Forgetting
from harness.forgetting.forgettings import Forgettings
from harness.forgetting.selection import ForgettingRequest
from harness.forgetting.verify import verify
from tests.harness.forgetting.canaries import (
    FREED,
    PATTERN,
    free_a_page,
    phrase,
    plant,
    plant_beside,
)
from tests.harness.forgetting.found_by_scan import found_by_scan
from tests.harness.forgetting.kept_lines import check_kept, kept_by
from tests.harness.forgetting.test_put_back import PLACES
from tests.harness.forgetting.versioned_bucket import VersionedBucket
from tests.harness.laptops import Laptop
from tests.machines import SOAK
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.paths import WorkspacePath
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.storage.s3.blobs import S3Blobs

DIRTY = phrase("amber")
OFFLINE = phrase("birch")
NEIGHBOUR = "a wren nests beside the gate"
CUT = MemoryPrefix(FaultyBlobs(MemoryBlobs(), repeat(StoreFault.BEFORE), "no connection"))


def forget(laptop: Laptop) -> Forgetting:
    forgettings = laptop.harness.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(match=PATTERN))
    kinds = {one.place.where for one in planned.forgetting.found}
    assert {"file", "history", "record", "object", "pack", "version"} <= kinds
    return forgettings.run_here(forgettings.start(planned).id)


def heard(laptop: Laptop) -> None:
    """Sync as `harness sync` does."""
    laptop.sync()
    done = laptop.harness.rooms.forgettings.run_pending()
    assert [one for one in done if one.status != "done"] == []


def machines_of(laptop: Laptop, forgetting: Forgetting) -> dict[str, bool]:
    """Return whether each machine has heard of a forgetting."""
    shown = laptop.harness.rooms.forgettings.show(forgetting.id)
    return {one.id: one.heard_at is not None for one in shown.machines}


def test_no_byte_of_any_canary_is_left_on_three_machines(
    tmp_path: Path, versioned: tuple[Any, str]
) -> None:
    bucket, clock = VersionedBucket(*versioned), ManualClock()
    store = S3Blobs(bucket.name, "shared")
    a = Laptop(tmp_path / "a", store, clock, joins=False)
    garden = plant(a.harness, a.home)
    _delete_a_neighbour(a)
    a.sync()
    b, c = (Laptop(tmp_path / name, store, clock) for name in "bc")
    machines = (a, b, c)
    for one in (b, c):
        one.attach("notes")
        plant_beside(garden, one.harness, one.home)
        one.sync()
    for one in machines:
        one.sync()
    c.prefix = CUT
    c.again()
    c.put("notes", "own.md", f"written offline: {DIRTY}\nand more\n")
    c.harness.run(f"I think that {OFFLINE}.", conversation="c9")
    by = c.harness.rooms.principal.author("api")
    c.workspaces.get("notes").write("unshared.md", f"- tea\n- {OFFLINE}\n", by=by)

    free_a_page(garden)
    revisions = [one.id for one in a.workspaces.get("notes").log()]
    before = [kept_by(one.harness, revisions if one is a else ()) for one in machines]
    homes = [one.home for one in machines]
    found = found_by_scan(garden.phrases, *homes, bucket.save(tmp_path / "before"))
    for word, where in garden.where.items():
        assert any(one.startswith(str(a.home)) for one in found[phrase(word)]), where
    in_page = {one.partition(": ")[2] for one in found[garden.of(FREED)]}
    assert "state.db" in in_page
    assert "state.db (a row)" not in in_page
    assert len([one for one in found.values() if f"{tmp_path / 'before'}: " in str(one)]) > 10

    done = forget(a)
    assert done.status == "done", done.waits_for
    assert found_by_scan(garden.phrases, a.home, bucket.save(tmp_path / "first")) == {}
    ids = [one.home_paths().machine for one in machines]
    assert machines_of(a, done) == dict(zip(ids, (True, False, False), strict=True))

    c.prefix = store
    c.again()
    c.workspaces.sync("notes").push([WorkspacePath("own.md")])  # before it hears
    late = bucket.save(tmp_path / "late")
    assert [*found_by_scan(garden.phrases, late)] == [DIRTY]
    for one in (b, c, a, b):
        heard(one)
    assert machines_of(a, done) == dict.fromkeys(ids, True)
    create(a.home, str(tmp_path / "backup"))
    create(c.home, str(tmp_path / "backup of c"))

    places = (*homes, tmp_path / "backup", tmp_path / "backup of c", bucket.save(tmp_path / "last"))
    assert found_by_scan(garden.phrases, *places) == {}
    assert found_by_scan([NEIGHBOUR], tmp_path / "last") != {}, (
        "a deleted workspace without a canary"
    )
    for one, old in zip(machines, before, strict=True):
        check_kept(old, kept_by(one.harness, revisions if one is a else ()))
        texts = one.texts("notes")
        assert re.fullmatch(r"written offline: \[forgotten f_.{8}\]\nand more\n", texts["own.md"])
        assert re.fullmatch(r"- tea\n- \[forgotten f_.{8}\]\n", texts["unshared.md"])
    forgettings = a.harness.rooms.forgettings
    check_verify(forgettings, done.id, garden.phrases[0], bucket, tmp_path / "backup")
    store.close()


def _delete_a_neighbour(laptop: Laptop) -> None:
    workspaces = laptop.workspaces
    workspaces.create("neighbour")
    laptop.put("neighbour", "a.md", f"{NEIGHBOUR}\n")
    workspaces.sync("neighbour").run()
    workspaces.delete("neighbour")


def check_verify(
    forgettings: Forgettings, forgetting: str, text: str, bucket: VersionedBucket, backup: Path
) -> None:
    """Check that `verify` finds nothing, and then a text that is put back into each kind of place."""

    def found() -> tuple[str, ...]:
        return verify(forgettings, forgetting, text, also=[backup]).found

    assert found() == ()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    root = forgettings.home.root / "put-back"
    for place in PLACES if SOAK else random.Random(seed).sample(list(PLACES), 2):
        root.mkdir()
        PLACES[place](root, text)
        assert found(), place
        assert not [one for one in found() if not one.startswith(("put-back", "the name"))], place
        shutil.rmtree(root)
    (backup / "late").write_text(text)
    assert [one.endswith("late") for one in found()] == [True]
    (backup / "late").unlink()
    key = f"shared/.records/{forgettings.principal.account_id}/agents/old.json"
    for body in (text, "another"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body.encode())
    (only,) = found()
    assert "agents/old.json, version " in only
