"""Replication of the history in S3: packs and history head pushed, followed, folded, repaired, fetched."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from tests.workspaces.history.git.test_quarantine import Stranger
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import MEMORY, a, b, machine, place, prefix
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import MassDeletion, Refused, Unavailable
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.revision import RevisionId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.sync import history_head
from workspaces.sync.history_head import HistoryHead, head_bytes, parse_head
from workspaces.workspace_record import WorkspaceRecord

__all__ = ["a", "b", "machine", "place", "prefix"]

WAIT_S_MAX = 60.0


def packs(prefix: MemoryPrefix, of: Replica) -> MemoryPrefix:
    return prefix.below(f".history/{of.workspace.namespace}")


def head(prefix: MemoryPrefix, of: Replica) -> HistoryHead:
    return parse_head(packs(prefix, of).read("head.json").data)


def directory(of: Replica) -> Path:
    return of.home.history(of.workspace.namespace)


def fsck(of: Replica) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={directory(of)}", "fsck", "--strict", "--full"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return "\n".join(
        line for line in (done.stdout + done.stderr).splitlines() if "dangl" not in line
    )


def test_pushing_a_single_revision_takes_three_requests(a: Replica, prefix: MemoryPrefix) -> None:
    a.workspace.write(MEMORY, "one\n", by=AGENT)
    a.sync.run()
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    prefix.asked.clear()
    report = a.sync.push_dirty()
    assert report.durable.as_json() == {"files": "s3", "history": "s3"}
    kinds = [one.split(".")[-1] for one in prefix.asked]
    assert sorted(kinds[:2]) == ["bundle", "md"], "at the same time"
    assert kinds[2:] == ["json"]
    assert f"PUT {MEMORY}" in prefix.asked
    assert head(prefix, a).tip == a.workspace.history.tip()
    assert report.requests == 3


def test_push_dirty_pushes_the_pack_and_the_files_in_parallel(
    a: Replica, prefix: MemoryPrefix
) -> None:
    """Four requests, of which the pack waits for nothing and nothing but the head for it."""
    a.put(MEMORY, "one\n")
    a.sync.run()
    a.workspace.write("notes/a.md", "two\n", by=AGENT)
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    prefix.asked.clear()
    assert a.sync.push_dirty().requests == 4
    (pack,) = [one for one in prefix.asked if one.endswith(".bundle")]
    files = [one for one in prefix.asked if one != pack]
    assert files[:2] == ["PUT notes/a.md", f"PUT {MEMORY}"]
    assert prefix.asked[3] == files[2] == "PUT head.json"


def test_a_full_sync_pushes_the_pack_and_the_files_in_parallel(
    a: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.workspace.write(MEMORY, "one\n", by=AGENT)
    a.sync.run()
    a.workspace.write("notes/a.md", "two\n", by=AGENT)
    has_gone = threading.Event()
    write = MemoryPrefix.write

    def waiting(self: MemoryPrefix, name: str, data: bytes, **how: Any) -> Any:
        if name.endswith(".bundle"):
            has_gone.set()
        if name == "notes/a.md":
            assert has_gone.wait(WAIT_S_MAX)
        return write(self, name, data, **how)

    monkeypatch.setattr(MemoryPrefix, "write", waiting)
    prefix.asked.clear()
    assert a.sync.run().history
    assert [one for one in prefix.asked if one.startswith("PUT")][-1] == "PUT head.json"
    assert len(head(prefix, a).packs) == 2


def packed_ahead(of: Replica) -> None:
    replication, tip = of.sync._history_sync._replication, of.workspace.history.tip()
    assert replication is not None
    assert tip is not None
    replication.pack(tip)


def test_the_history_head_lists_an_early_pack_beside_the_packs_of_later_revisions(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    packed_ahead(a)
    assert len(head(prefix, a).packs) == 1
    a.workspace.write("notes/a.md", "three\n", by=AGENT)
    assert a.sync.run().history
    assert len(head(prefix, a).packs) == 3
    b.sync.run()
    assert b.workspace.log() == a.workspace.log()
    assert fsck(b) == ""


@pytest.mark.parametrize("what", ["moved", "deleted"])
def test_the_history_head_omits_an_early_pack_based_on_an_outdated_head(
    a: Replica, machine: Callable[[str], Replica], b: Replica, prefix: MemoryPrefix, what: str
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    packed_ahead(a)
    ahead = {stat.name for stat in packs(prefix, a).scan()}
    ahead -= {"head.json", *(pack.blob for pack in head(prefix, a).packs)}
    if what == "moved":
        b.workspace.write("notes/a.md", "three\n", by=AGENT)
        assert b.sync.run().history
    else:
        packs(prefix, a).delete("head.json", expect=ANY)
    assert a.sync.run().history
    assert ahead
    assert ahead.isdisjoint(pack.blob for pack in head(prefix, a).packs)
    c = machine("c")
    c.sync.run()
    assert c.workspace.log() == a.workspace.log()
    assert fsck(c) == ""


def test_a_pack_whose_early_push_failed_is_pushed_after_the_files(
    a: Replica, b: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    write, refused = MemoryPrefix.write, list[str]()

    def failing_once(self: MemoryPrefix, name: str, data: bytes, **how: Any) -> Any:
        if name.endswith(".bundle") and not refused:
            refused.append(name)
            raise Unavailable("S3", "does not answer")
        return write(self, name, data, **how)

    monkeypatch.setattr(MemoryPrefix, "write", failing_once)
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    assert a.sync.push_dirty().history
    assert refused
    b.sync.run()
    assert b.workspace.log() == a.workspace.log()


def test_the_history_head_does_not_move_while_a_file_is_not_pushed(
    a: Replica, b: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    first = head(prefix, a)
    write = MemoryPrefix.write

    def failing(self: MemoryPrefix, name: str, data: bytes, **how: Any) -> Any:
        if name == MEMORY:
            raise Unavailable("S3", "does not answer")
        return write(self, name, data, **how)

    a.workspace.write(MEMORY, "two\n", by=AGENT)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryPrefix, "write", failing)
        with pytest.raises(Unavailable):
            a.sync.push_dirty()
    assert len([one for one in packs(prefix, a).scan() if one.name.endswith(".bundle")]) == 2
    assert head(prefix, a) == first
    b.sync.run()
    assert b.texts() == {MEMORY: "one\n"}
    assert a.sync.push_dirty().history
    b.sync.run()
    assert b.workspace.log() == a.workspace.log()


def test_a_file_refused_by_the_store_is_not_reported_as_durable(
    a: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    write = MemoryPrefix.write

    def refusing(self: MemoryPrefix, name: str, data: bytes, **how: Any) -> Any:
        if name == "long.md":
            raise Refused("path", name, "is, below the prefix, longer than 1024 bytes")
        return write(self, name, data, **how)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryPrefix, "write", refusing)
        a.put("long.md", "two\n")
        for sync in (a.sync.push_dirty, a.sync.run, a.sync.push_dirty):
            durable = sync().durable
            assert durable.as_json() == {"files": "here", "history": "here"}
            assert head(prefix, a).tip != a.workspace.history.tip()
    assert a.sync.push_dirty().durable.as_json() == {"files": "s3", "history": "s3"}


def test_a_file_blocked_by_a_refused_remote_file_is_not_reported_as_durable(
    a: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.put("long.md", "one\n")
    a.sync.run()
    there = prefix.below(a.workspace.namespace)
    there.write("long.md", bytes(a.workspace.record.config.quota.file_bytes + 1), expect=ANY)
    for text in ("one\n", "two\n"):
        a.put("long.md", text)
        assert a.sync.run().durable.files == "here"
    there.delete("long.md", expect=ANY)
    assert a.sync.run().durable.as_json() == {"files": "s3", "history": "s3"}
    assert there.read("long.md").data == b"two\n"


def test_a_sync_stopped_by_mass_deletion_discards_the_fetched_history(
    a: Replica, b: Replica
) -> None:
    for number in range(4):
        a.put(f"{number}.md", "text\n")
    a.sync.run()
    b.sync.run()
    a.workspace.write(MEMORY, "news\n", by=AGENT)
    a.sync.run()
    for number in range(4):
        (b.root / f"{number}.md").unlink()
    with pytest.raises(MassDeletion):
        b.sync.run()
    assert not list(directory(b).glob("incoming-*"))
    assert b.workspace.history.tip() != a.workspace.history.tip()


def test_a_pulled_revision_keeps_its_author_and_trailers(a: Replica, b: Replica) -> None:
    a.workspace.write(MEMORY, "- likes tea\n", by=AGENT)
    a.workspace.write("notes/x.md", "deep\n", by=CALLER)
    a.sync.run()
    b.sync.run()
    assert b.workspace.log() == a.workspace.log()
    assert b.workspace.log(MEMORY)[0].trailers == {**AGENT.trailers, "Source": "turn"}
    assert b.workspace.origins.origins(WorkspacePath(MEMORY)) == [a.workspace.log(MEMORY)[0].id]
    b.workspace.write(MEMORY, "- likes tea\n- and cake\n", by=CALLER)
    b.sync.run()
    a.sync.run()
    assert a.workspace.history.tip() == b.workspace.history.tip()
    assert fsck(a) == fsck(b) == ""


def test_diverged_histories_are_joined_by_a_merge_revision(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "base\n")
    a.sync.run()
    b.sync.run()
    mine = a.workspace.write("a.md", "a\n", by=AGENT).revision
    yours = b.workspace.write("b.md", "b\n", by=CALLER).revision
    assert mine
    assert yours
    a.sync.run()
    b.sync.run()
    a.sync.run()
    (merge, *_) = a.workspace.log()
    assert a.workspace.history.tip() == b.workspace.history.tip() == merge.id
    assert merge.parents == tuple(sorted([mine, yours]))
    assert a.texts() == b.texts() == {MEMORY: "base\n", "a.md": "a\n", "b.md": "b\n"}
    assert {line.author for line in a.workspace.history.blame(WorkspacePath("a.md"))} == {
        AGENT.name
    }
    assert not a.workspace.edits.pending()
    assert not b.workspace.edits.pending()


def test_a_revision_is_pushed_only_after_its_files(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    first = a.workspace.history.tip()
    a.workspace.write(MEMORY, "two\n", by=AGENT)
    from workspaces.sync.report import SyncReport

    assert a.sync._history_sync.push(SyncReport())
    assert head(prefix, a).tip == first
    b.sync.run()
    assert b.texts() == {MEMORY: "one\n"}


def test_a_file_made_and_deleted_between_two_syncs_does_not_block_the_history(
    a: Replica, b: Replica
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    a.put("passing.md", "here\n")
    a.put(MEMORY, "two\n")
    a.workspace.edits.commit()
    (a.root / "passing.md").unlink()
    a.put(MEMORY, "one\n")  # as both sides have it
    report = a.sync.run()
    assert report.history
    b.sync.run()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    assert b.texts() == {MEMORY: "one\n"}
    assert len(b.workspace.log("passing.md")) == 2


def test_a_machine_with_equal_files_follows_the_history_without_a_new_revision(
    a: Replica, machine: Callable[[str], Replica]
) -> None:
    a.put(MEMORY, "one\n")
    a.put("notes/x.md", "x\n")
    a.sync.run()
    b = machine("b")
    b.put(MEMORY, "one\n")
    b.put("notes/x.md", "x\n")
    b.sync.run()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    assert not b.workspace.edits.pending()


def test_a_new_machine_fetches_every_revision(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_head, "PACKS_MAX", 4)
    for number in range(15):
        a.workspace.write(f"n/{number % 4}.md", f"{number}\n", by=AGENT)
        a.sync.push_dirty()
    a.sync.run()
    b = machine("b")
    b.sync.run()
    assert b.workspace.log(limit=100) == a.workspace.log(limit=100)
    assert len(b.workspace.log(limit=100)) == 15
    assert fsck(b) == ""


def test_a_machine_that_just_read_every_pack_does_not_list_the_packs(
    a: Replica, machine: Callable[[str], Replica], prefix: MemoryPrefix
) -> None:
    for number in range(3):
        a.workspace.write(MEMORY, f"{number}\n", by=AGENT)
        a.sync.push_dirty() if number else a.sync.run()
    b = machine("b")
    prefix.asked.clear()
    assert b.sync.run().history
    assert prefix.asked.count("LIST") == 1, "of the files"
    assert not b.sync._history_sync._replication.is_check_due()  # type: ignore[union-attr]
    a.workspace.write(MEMORY, "news\n", by=AGENT)
    a.sync.push_dirty()
    c = machine("c")
    damaged = head(prefix, a).packs[1]
    packs(prefix, a).write(damaged.blob, b"x", expect=ANY)
    assert not c.sync.run().history
    assert c.sync._history_sync._replication.is_check_due()  # type: ignore[union-attr]


def test_plain_git_restores_the_history_from_s3_as_documented(
    a: Replica, prefix: MemoryPrefix, tmp_path: Path
) -> None:
    """As docs/data.md says."""
    for number in range(3):
        a.workspace.write(MEMORY, f"{number}\n", by=AGENT)
        a.sync.push_dirty() if number else a.sync.run()
    for stat in packs(prefix, a).scan():
        (tmp_path / stat.name).write_bytes(packs(prefix, a).read(stat.name).data)
    recipe = (
        Path("docs/data.md").read_text().split("aws s3 cp --recursive s3://bucket/prefix/.history")
    )
    script = recipe[1].split("&& ", 1)[1].split("```")[0]
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True, timeout=60)
    log = ["git", "--git-dir=memory.git", "log", "--format=%H", "main"]
    told = subprocess.run(log, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == [one.id for one in a.workspace.log()]


def test_many_packs_are_folded_and_unlisted_packs_are_deleted_after_a_day(
    a: Replica, b: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_head, "PACKS_MAX", 4)
    store = packs(prefix, a)
    for number in range(4):
        a.workspace.write(MEMORY, f"{number}\n", by=AGENT)
        a.sync.push_dirty() if number else a.sync.run()
    before = head(prefix, a).packs
    assert len(before) == 4
    a.workspace.write(MEMORY, "one more\n", by=AGENT)
    a.sync.run()
    after = head(prefix, a).packs
    assert len(after) < 4
    assert {pack.blob for pack in before} <= {stat.name for stat in store.scan()}
    b.sync.run()
    assert b.workspace.log() == a.workspace.log()

    class Aged(type(a.sync._history_sync._replication._there)):  # type: ignore[misc, union-attr]
        def scan(self, prefix: str = "") -> Any:
            from dataclasses import replace

            return (replace(stat, modified=1.0) for stat in super().scan(prefix))

    replication = a.sync._history_sync._replication
    assert replication is not None
    replication._there.__class__ = Aged
    replication._sweep(after)
    assert {stat.name for stat in store.scan()} == {"head.json", *(pack.blob for pack in after)}


# Lost, cut and overwritten.


@pytest.mark.parametrize("damage", ["lost", "cut", "changed"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_pack_is_rebuilt_by_a_machine_that_has_its_revisions(
    a: Replica, b: Replica, machine: Callable[[str], Replica], prefix: MemoryPrefix,
    damage: str, which: int,
) -> None:  # fmt: skip
    for number in range(3):
        a.workspace.write(f"{number}.md", f"{number}\n", by=AGENT)
        a.sync.push_dirty() if number else a.sync.run()
    store = packs(prefix, a)
    pack = head(prefix, a).packs[which]
    data = store.read(pack.blob).data
    if damage == "lost":
        store.delete(pack.blob, expect=ANY)
    else:
        bad = data[:-5] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1])
        store.write(pack.blob, bad, expect=ANY)
    report = b.sync.run()
    assert report.unfollowed is not None
    assert not report.history
    assert b.texts() == a.texts(), "files go on"
    assert [one.kind for one in b.workspace.edits.problems()] == ["history"]
    with pytest.raises(Unavailable):
        b.workspaces.flush(b.workspace.record.id)
    assert a.sync.run(check=True).mended == [pack.name]
    assert b.sync.run().history
    assert b.workspace.edits.problems() == []
    a.sync.run()
    c = machine("c")
    c.sync.run()
    assert c.workspace.history.tip() == b.workspace.history.tip() == a.workspace.history.tip()
    assert fsck(c) == fsck(b) == ""


def test_a_deleted_history_head_is_written_again(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    packs(prefix, a).delete("head.json", expect=ANY)
    assert a.sync.run().history
    b.sync.run()
    assert b.workspace.history.tip() == a.workspace.history.tip()


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1, "tip": "x", "packs": []}',
        b"[" * 100_000,
        head_bytes(
            HistoryHead(
                RevisionId("a" * 40), (history_head.Pack("b" * 64, 5, RevisionId("a" * 40)),)
            )
        ),
        head_bytes(
            HistoryHead(
                RevisionId("a" * 40), (history_head.Pack("b" * 64, 2**50, RevisionId("a" * 40)),)
            )
        ),
    ],
)
def test_an_unusable_history_head_is_reported_and_stays_unchanged(
    a: Replica, prefix: MemoryPrefix, written: bytes
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    tip = a.workspace.history.tip()
    packs(prefix, a).write("head.json", written, expect=ANY)
    a.put(MEMORY, "two\n")
    report = a.sync.run()
    assert report.unfollowed is not None
    assert report.unfollowed.remedy or "limit" in str(report.unfollowed)
    assert report.pushed == [MEMORY]
    assert report.durable.as_json() == {"files": "s3", "history": "here"}
    assert packs(prefix, a).read("head.json").data == written
    assert tip in [one.id for one in a.workspace.log()]
    packs(prefix, a).delete("head.json", expect=ANY)
    assert a.sync.run().history


# What someone with access to the bucket makes of it.


def planted(prefix: MemoryPrefix, of: Replica, data: bytes, tip: str) -> None:
    from hashlib import sha256

    name = sha256(data).hexdigest()
    store = packs(prefix, of)
    store.write(f"{name}.bundle", data, expect=ANY)
    one = history_head.Pack(name, len(data), RevisionId(tip))
    store.write("head.json", head_bytes(HistoryHead(RevisionId(tip), (one,))), expect=ANY)


def test_an_unrelated_history_in_s3_is_merged_and_changes_no_file(
    a: Replica, b: Replica, prefix: MemoryPrefix, tmp_path: Path
) -> None:
    a.workspace.write(MEMORY, "ours\n", by=AGENT)
    a.sync.run()
    ours = a.workspace.history.tip()
    stranger = Stranger(tmp_path / "stranger.git")
    tip = stranger.commit(stranger.tree(("100644", b"evil.md", stranger.file)))
    planted(prefix, a, stranger.bundle(tip), tip)
    report = a.sync.run()
    assert report.history
    assert {ours, tip} <= {one.id for one in a.workspace.log()}
    assert a.texts() == {MEMORY: "ours\n"}, "a history writes no file"
    assert head(prefix, a).tip == a.workspace.history.tip()
    b.sync.run()
    assert b.texts() == a.texts()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    assert fsck(a) == ""


def test_an_outdated_history_head_removes_no_local_revision(
    a: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    old = packs(prefix, a).read("head.json").data
    a.put(MEMORY, "two\n")
    a.sync.run()
    tip = a.workspace.history.tip()
    packs(prefix, a).write("head.json", old, expect=ANY)
    assert a.sync.run().history
    assert a.workspace.history.tip() == tip == head(prefix, a).tip


def test_an_invalid_bundle_does_not_stop_the_sync_of_files(
    a: Replica, prefix: MemoryPrefix, tmp_path: Path
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    tip = a.workspace.history.tip()
    stranger = Stranger(tmp_path / "stranger.git")
    bad = stranger.commit(stranger.tree(("120000", b"a.md", stranger.file)))
    planted(prefix, a, stranger.bundle(bad), bad)
    a.put(MEMORY, "two\n")
    report = a.sync.run()
    assert "not a regular file" in str(report.unfollowed)
    assert report.pushed == [MEMORY]
    assert a.workspace.log()[1].id == tip
    assert not list(directory(a).glob("incoming-*"))


# A history that was lost here.


def test_a_missing_local_history_is_fetched_again_from_s3(
    a: Replica, machine: Callable[[str], Replica]
) -> None:
    a.workspace.write(MEMORY, "one\n", by=AGENT)
    a.sync.run()
    before = a.workspace.log()
    shutil.rmtree(directory(a))
    again = machine("a")
    with pytest.raises(Unavailable, match="missing") as caught:
        again.workspace.edits.commit()
    assert "harness sync" in str(caught.value.remedy)
    assert not directory(a).exists()
    assert [one.kind for one in again.workspace.edits.problems()] == ["history"]
    again.put(MEMORY, "one\ntwo\n")
    assert again.sync.pull().history
    assert again.workspace.log()[1:] == before
    assert again.workspace.log()[0].trailers["Source"] == "edit"
    assert fsck(again) == ""


def test_a_history_missing_here_and_in_s3_is_not_recreated_silently(
    a: Replica, prefix: MemoryPrefix, machine: Callable[[str], Replica]
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    shutil.rmtree(directory(a))
    packs(prefix, a).delete("head.json", expect=ANY)
    again = machine("a")
    with pytest.raises(Unavailable) as caught:
        again.sync.run()
    assert "git init --bare" in str(caught.value.remedy)
    assert again.texts() == {MEMORY: "one\n"}
    remedy = ["git", "init", "-q", "--bare", "--template=", "--initial-branch=main"]
    subprocess.run([*remedy, str(directory(a))], check=True, timeout=60)
    again.workspace.edits.commit()
    assert again.sync.run().history
    assert head(prefix, again).tip == again.workspace.history.tip()


def test_a_missing_history_of_a_local_workspace_refuses_writes_with_a_remedy(
    workspace: Any, open_workspaces: Callable[[], Any], home: Any
) -> None:
    workspace.write(MEMORY, "one\n", by=CALLER)
    shutil.rmtree(home.history(workspace.namespace))
    again = open_workspaces().get("notes")
    assert again.read(MEMORY).text == "one\n"
    for write in (
        lambda: again.edits.commit(),
        lambda: again.write(MEMORY, "two\n", by=CALLER),
        lambda: again.delete(MEMORY, by=CALLER, expect=version_of(b"one\n")),
    ):
        with pytest.raises(Unavailable, match="missing") as caught:
            write()
        assert "git init --bare" in str(caught.value.remedy)
    assert again.read(MEMORY).text == "one\n"
    assert not home.history(workspace.namespace).exists()


# Three machines, from one seed.


def test_histories_of_three_machines_converge_after_random_changes(
    machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    randomly = random.Random(seed)
    monkeypatch.setattr(history_head, "PACKS_MAX", 5)
    machines = [machine(name) for name in "abc"]
    made: set[str] = set()
    for number in range(60):
        one = randomly.choice(machines)
        name = randomly.choice((MEMORY, "notes/a.md", "notes/b.md", f"{number}.md"))
        match randomly.randrange(5):
            case 0:
                one.put(name, one.texts().get(name, "") + f"by hand {number}\n")
            case 1:
                text = one.texts().get(name, "")
                one.workspace.write(name, f"{text}by an agent {number}\n", by=AGENT)
            case 2:
                one.sync.push_dirty()
            case 3:
                one.sync.pull()
            case _:
                one.sync.run()
        made |= {revision.id for revision in one.workspace.log(limit=3)}
    for one in machines * 3:
        one.sync.run()
    made |= {revision.id for one in machines for revision in one.workspace.log(limit=1000)}
    tips = {one.workspace.history.tip() for one in machines}
    assert len(tips) == 1
    assert len({json.dumps(one.texts(), sort_keys=True) for one in machines}) == 1
    line = {revision.id for revision in machines[0].workspace.log(limit=1000)}
    assert made == line
    assert [fsck(one) for one in machines] == ["", "", ""]
    assert not any(one.workspace.edits.pending() for one in machines)


def test_a_conditional_write_reports_durable_files_and_a_history_not_yet_durable(
    a: Replica, prefix: MemoryPrefix
) -> None:
    written = a.workspace.write(MEMORY, "one\n", by=CALLER, expect=ABSENT)
    assert written.durable.as_json() == {"files": "s3", "history": "here"}
    told = a.workspace.write(MEMORY, "two\n", by=CALLER)
    assert told.durable.as_json() == {"files": "here", "history": "here"}


def test_a_write_requests_a_flush_and_a_sync_does_not(tmp_path: Path) -> None:
    heard: list[WorkspaceRecord] = []
    records, place = MemoryRecords(ManualClock()), SharedBucket("memory:", MemoryPrefix())
    a, b = (Replica(tmp_path / name, records, place, revised=heard.append) for name in "ab")
    a.workspace.write(MEMORY, "one\n", by=AGENT)
    assert [record.id for record in heard] == [a.workspace.record.id]
    a.sync.run()
    b.sync.run()
    assert len(heard) == 1
    b.put(MEMORY, "two\n")
    b.workspace.edits.commit()
    b.workspace.edits.commit()
    assert len(heard) == 2
    assert b.workspaces.flush(b.workspace.record.id)
