"""`harness sync` and shared workspaces, as processes against a real S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli.terminal import Terminal
from tests.servers import BUCKET, S3Server
from workspaces.ids import new_id, version_of


@pytest.fixture
def shared(tmp_path: Path, seaweedfs: S3Server) -> Terminal:
    location = f"s3://{BUCKET}/{new_id('test')}"
    return Terminal(tmp_path / "home", {**seaweedfs.environment(), "HARNESS_S3": location})


def root_of(harness: Terminal) -> Path:
    return Path(harness("path", "notes").done().out.strip())


def synced(harness: Terminal, *more: str) -> dict[str, Any]:
    return harness("sync", "notes", "--json", *more).done().json["notes"]


def test_a_new_workspace_is_shared_and_synced_when_s3_is_configured(shared: Terminal) -> None:
    assert shared("workspace", "show", "notes", "--json").done().json["config"] == {
        "storage": {"provider": "s3"}
    }
    report = synced(shared)
    assert set(report["pushed"]) >= {"MEMORY.md"}
    assert report["durable"] == {"files": "s3", "history": "s3"}
    again = synced(shared)
    assert again["pushed"] == again["pulled"] == again["refused"] == []
    assert again["requests"] == 2
    assert "nothing to do" in shared("sync").done().out


def test_status_lists_the_files_that_only_this_machine_has(shared: Terminal) -> None:
    synced(shared)
    assert [line["state"] for line in shared("status", "--json").json["workspaces"]] == ["ok"]
    (root_of(shared) / "new.md").write_text("x\n")
    rows = shared("status", "--json").done().json["workspaces"]
    assert [(row["state"], row.get("onlyHere")) for row in rows] == [
        ("ok", None),
        ("pending", ["new.md"]),
        ("pending", None),
    ]
    shown = shared("status").done().out
    assert "1 file is only on this machine: new.md" in shown
    assert "`harness sync notes` sends what S3 lacks" in shown


def test_a_sync_dry_run_prints_the_plan_and_a_mass_deletion_stops_the_sync(
    shared: Terminal,
) -> None:
    root = root_of(shared)
    for number in range(5):
        (root / f"{number}.md").write_text("x\n")
    synced(shared)
    (root / "new.md").write_text("x\n")
    planned = synced(shared, "--dry-run")
    assert planned["plan"] == [{"action": "push", "path": "new.md"}]
    assert "push" in shared("sync", "--dry-run").done().out
    (root / "new.md").unlink()
    for file in [path for path in root.rglob("*") if path.is_file()]:
        file.unlink()
    stopped = shared("sync", "notes")
    assert stopped.code == 1
    assert "--accept-deletions" in stopped.stderr
    assert "would stop and ask" in shared("sync", "--dry-run").done().out
    assert len(synced(shared, "--accept-deletions")["pushed"]) >= 5


def test_a_file_that_cannot_be_synced_is_reported(shared: Terminal, seaweedfs: S3Server) -> None:
    root = root_of(shared)
    (root / "a:b.md").write_text("x\n")
    namespace = shared("workspace", "show", "notes", "--json").done().json["namespace"]
    prefix = shared.variables["HARNESS_S3"].removeprefix(f"s3://{BUCKET}/")
    client = seaweedfs.client()
    client.put_object(Bucket=BUCKET, Key=f"{prefix}/{namespace}/one\nleft alone.md", Body=b"x")
    client.close()
    for more in (["--dry-run"], []):
        refused = synced(shared, *more)["refused"]
        assert [one["path"] for one in refused] == ["a:b.md", "one\nleft alone.md"]
        assert all(one["reason"] for one in refused)
        told = shared("sync", *more).done().out.splitlines()
        assert sum("left alone.md" in line or "a:b.md" in line for line in told) == 2


def test_a_missing_workspace_directory_is_reported_and_other_workspaces_are_synced(
    shared: Terminal,
) -> None:
    shared("workspace", "create", "other").done()
    synced(shared)
    root = root_of(shared)
    root.rename(root.with_name("away"))
    refused = shared("sync").refused("notes", "is missing", "mount its file system")
    assert "other" in refused.out
    shared("run", "What is green?").refused("notes", "is missing")
    listed = shared("workspace", "list", "--json").done().json["workspaces"]
    assert {one["name"]: one["path"] for one in listed}["notes"] == str(root)
    found = {one["check"]: one for one in shared("doctor", "--json").json}
    assert (found["workspaces"]["state"], found["clock"]["state"]) == ("broken", "ok")
    assert shared("status", "--json").done().json["tasks"] == []
    root.mkdir(mode=0o700)
    shared("sync", "notes").refused("mass_deletion", "harness restore")
    (shared.home / "sync" / f"{root.name}.db").unlink()
    assert "MEMORY.md" in synced(shared)["pulled"]
    root.rename(root.with_name("away again"))
    shared("workspace", "rm", "notes", "--force").done()


def test_a_conditional_write_is_checked_against_s3(shared: Terminal, seaweedfs: S3Server) -> None:
    shared("write", "notes", "x.md", "--if-version", "none", stdin=b"one\n").done()
    stale = shared("write", "notes", "x.md", "--if-version", "none", stdin=b"two\n")
    assert (stale.code, "already" in stale.stderr) == (1, True)
    record = shared("workspace", "show", "notes", "--json").done().json
    prefix = shared.variables["HARNESS_S3"].removeprefix(f"s3://{BUCKET}/")
    key = f"{prefix}/{record['namespace']}/x.md"
    client = seaweedfs.client()
    assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"one\n"
    client.put_object(Bucket=BUCKET, Key=key, Body=b"theirs\n")
    client.close()
    stale = shared("write", "notes", "x.md", "--if-version", version_of(b"one\n"), stdin=b"ours\n")
    assert (stale.code, "conflict" in stale.stderr) == (1, True)
    assert shared("cat", "notes", "x.md").done().out == "theirs\n"


def test_a_turn_pulls_changes_before_and_pushes_changes_after(
    shared: Terminal, seaweedfs: S3Server
) -> None:
    synced(shared)
    record = shared("workspace", "show", "notes", "--json").done().json
    prefix = shared.variables["HARNESS_S3"].removeprefix(f"s3://{BUCKET}/")
    key = f"{prefix}/{record['namespace']}/MEMORY.md"
    client = seaweedfs.client()
    client.put_object(Bucket=BUCKET, Key=key, Body=b"# Memory\n\n- cats are quiet\n")
    said = shared("run", "Remember that tea is green.", "--json").done().json
    assert said["durable"] == {"files": "s3", "history": "s3"}
    there = client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    client.close()
    assert "cats are quiet" in there
    assert "tea is green" in there


def test_an_unreachable_s3_stops_no_turn_and_loses_no_change(shared: Terminal) -> None:
    synced(shared)
    alone = Terminal(shared.home, {**shared.variables, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    said = alone("run", "Remember that tea is green.", "--json")
    assert said.code == 0
    document = said.json
    assert "revisions" in document
    assert document["durable"]["files"] == "here"
    failed = alone("sync", "notes")
    assert (failed.code, "unavailable" in failed.stderr) == (1, True)
    synced(shared)


def test_doctor_detects_an_s3_server_that_ignores_conditional_writes(
    shared: Terminal, rclone_s3: S3Server
) -> None:
    found = {one["check"]: one for one in shared("doctor", "--json").done().json}
    assert found["s3"]["state"] == "ok"
    liar = {**rclone_s3.environment(), "HARNESS_S3": shared.variables["HARNESS_S3"]}
    found = {one["check"]: one for one in Terminal(shared.home, liar)("doctor", "--json").json}
    assert found["s3"]["state"] == "broken"
    assert "overwrite each other" in found["s3"]["detail"]


def test_a_home_without_s3_names_the_missing_setting(tmp_path: Path) -> None:
    harness = Terminal(tmp_path / "home", {})
    refused = harness("workspace", "create", "x", "--storage", "s3", "--json")
    assert refused.code == 1
    error = refused.json["error"]
    assert (error["code"], error["field"]) == ("invalid", "config.storage.provider")
    assert "HARNESS_S3" in error["remedy"]
    assert "only on this machine" in harness("sync", "notes").stderr
    assert "No workspace is shared in S3" in harness("sync").stderr
    wrong = Terminal(tmp_path / "other", {"HARNESS_S3": "https://bucket"})("workspace", "list")
    assert (wrong.code, "s3://bucket/prefix" in wrong.stderr) == (1, True)
