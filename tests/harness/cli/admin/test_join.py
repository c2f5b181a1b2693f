"""`harness join`: a second machine joins a home in S3, as processes against a real server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.cli.terminal import COMMAND_S_MAX, Terminal
from tests.machines import SOAK
from tests.servers import BUCKET, READER, S3Server
from workspaces.ids import new_id


@pytest.fixture
def location() -> str:
    return f"s3://{BUCKET}/{new_id('test')}"


@pytest.fixture
def first(tmp_path: Path, seaweedfs: S3Server, location: str) -> Terminal:
    return Terminal(tmp_path / "first", {**seaweedfs.environment(), "HARNESS_S3": location})


@pytest.fixture
def second(tmp_path: Path, seaweedfs: S3Server) -> Terminal:
    """Another machine: what it knows of the first one is what a person types."""
    return Terminal(tmp_path / "second", seaweedfs.environment())


def test_a_second_machine_joins_attaches_a_workspace_and_continues_its_history(
    first: Terminal, second: Terminal, location: str
) -> None:
    first("run", "Remember that the release day is Thursday.").done()
    first("agent", "set", "assistant", "--system", "You are brief.").done()
    first("sync").done()
    joined = second("join", location, "--json").done().json
    account = first("account", "show", "--json").done().json
    assert joined["account"]["id"] == account["id"]
    assert joined["account"]["ownerId"] == account["ownerId"]
    assert joined["key"].startswith("wh_")
    listed = second("workspace", "attach", "--json").done().json["workspaces"]
    notes = first("workspace", "show", "notes", "--json").done().json
    assert listed == [{"id": notes["id"], "name": "notes", "attached": False, "problem": None}]
    attached = second("workspace", "attach", "notes", "--json").done().json
    assert attached["namespace"] == notes["namespace"]
    assert "release day is Thursday" in second("cat", "notes", "MEMORY.md").done().out
    assert second("agent", "show", "assistant", "--json").done().json["config"]["system"] == (
        "You are brief."
    )
    said = second("run", "When is the release day?").done()
    assert "Thursday" in said.out
    again = second("join", location, "--json").done().json
    assert (again["joined"], again["key"]) == (False, None)


def killed(harness: Terminal, number: int, *arguments: str) -> bool:
    """Run a command that dies before its write of this number; whether it did."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.harness.cli.killed", str(number), *arguments],
        env=harness.environment(),
        capture_output=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
    return ended.returncode != 0


def writes_of(count: int) -> list[int]:
    """Return every tenth write, and under SOAK each: a process for each takes its time."""
    return [*range(0, count + 1, 1 if SOAK else 10)]


def test_a_join_killed_at_any_write_succeeds_when_run_again(
    tmp_path: Path, first: Terminal, seaweedfs: S3Server, location: str
) -> None:
    first("write", "notes", "MEMORY.md", stdin=b"one\n").done()
    first("sync").done()
    account = first("account", "show", "--json").done().json["id"]
    for number in writes_of(40):
        second = Terminal(tmp_path / f"second-{number}", seaweedfs.environment())
        was_killed = killed(second, number, "join", location)
        again = second("join", location, "--json").done().json
        assert again["account"]["id"] == account
        assert second("account", "list", "--json").done().json["accounts"][0]["id"] == account
        second("workspace", "attach", "notes").done()
        assert second("cat", "notes", "MEMORY.md").done().out == "one\n"
        if not was_killed:
            return
    pytest.fail("a join writes more often than was tried")


def test_an_attach_killed_at_any_write_succeeds_when_run_again(
    tmp_path: Path, first: Terminal, seaweedfs: S3Server, location: str
) -> None:
    for name in ("MEMORY.md", "notes/x.md"):
        first("write", "notes", name, stdin=b"one\n").done()
    first("sync").done()
    log = [one["revision"] for one in first("log", "notes", "--json").done().json]
    for number in writes_of(60):
        second = Terminal(tmp_path / f"second-{number}", seaweedfs.environment())
        second("join", location).done()
        was_killed = killed(second, number, "workspace", "attach", "notes")
        second("workspace", "attach", "notes").done()
        assert second("cat", "notes", "notes/x.md").done().out == "one\n"
        told = second("log", "notes", "--json").done().json
        assert [one["revision"] for one in told if one["revision"] in log] == log
        # Files that had come before their history did are told as what they are.
        assert {one["author"] for one in told if one["revision"] not in log} <= {"sync"}
        second("agent", "show", "assistant").done()
        if not was_killed:
            return
    pytest.fail("an attachment writes more often than was tried")


def test_a_workspace_deletion_killed_at_any_write_is_completed_later(
    tmp_path: Path, first: Terminal, second: Terminal, location: str, seaweedfs: S3Server
) -> None:
    first("sync").done()
    second("join", location).done()
    client, prefix = seaweedfs.client(), location.removeprefix(f"s3://{BUCKET}/")
    for number in writes_of(60):
        name = f"plans-{number}"
        first("workspace", "create", name).done()
        first("write", name, "x.md", stdin=b"one\n").done()
        namespace = first("workspace", "show", name, "--json").done().json["namespace"]
        first("sync").done()
        second("workspace", "attach", name).done()
        second("write", name, "x.md", stdin=b"edited offline\n").done()
        was_killed = killed(first, number, "workspace", "rm", name)
        first("workspace", "rm", name)  # it is gone, or goes now
        for machine in (first, second):
            machine("sync").done()
            names = [w["name"] for w in machine("workspace", "list", "--json").json["workspaces"]]
            assert name not in names, number
            assert not (machine.home / "workspaces" / namespace).exists(), number
        status = second("status", "--json").done().json["machines"]
        assert [one["paths"] for one in status if one["subject"] == name] == [["x.md"]], number
        for part in (namespace, f".history/{namespace}"):
            listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/{part}/")
            assert listed["KeyCount"] == 0, number
        if not was_killed:
            client.close()
            return
    pytest.fail("a deletion writes more often than was tried")


def test_a_workspace_deleted_while_a_machine_was_offline_is_not_recreated(
    first: Terminal, second: Terminal, location: str
) -> None:
    first("write", "notes", "MEMORY.md", stdin=b"one\n").done()
    first("sync").done()
    second("join", location).done()
    second("workspace", "attach", "notes").done()
    second("write", "notes", "MEMORY.md", stdin=b"edited offline\n").done()
    alone = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    refused = first("workspace", "rm", "notes", "--force", **alone)
    refused.refused("unavailable", "--storage local")
    first("workspace", "rm", "notes", "--force").done()
    created = first("workspace", "create", "notes", "--json").done().json
    first("write", "notes", "MEMORY.md", stdin=b"anew\n").done()
    first("sync").done()
    told = second("sync", "--json").done()
    assert told.json["notes"]["deleted"] is True
    assert told.json["notes"]["unpushed"] == ["MEMORY.md"]
    assert "never pushed: MEMORY.md" in told.stderr
    kept = Path(told.json["notes"]["trash"]) / "files" / "MEMORY.md"
    assert kept.read_text() == "edited offline\n"
    assert str(kept.parent) in second("status").done().out
    attached = second("workspace", "attach", "notes", "--json").done().json
    assert attached["id"] == created["id"]
    assert second("cat", "notes", "MEMORY.md").done().out == "anew\n"


def test_attaching_a_workspace_with_a_missing_pack_succeeds_with_a_warning(
    first: Terminal, second: Terminal, location: str, seaweedfs: S3Server
) -> None:
    for number in range(2):
        first("write", "notes", "MEMORY.md", stdin=b"%d\n" % number).done()
        first("sync").done()
    second("join", location).done()
    namespace = first("workspace", "show", "notes", "--json").done().json["namespace"]
    client, prefix = seaweedfs.client(), location.removeprefix(f"s3://{BUCKET}/")
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/.history/{namespace}/")
    packs = [one["Key"] for one in listed["Contents"] if one["Key"].endswith(".bundle")]
    client.delete_object(Bucket=BUCKET, Key=packs[0])
    client.close()
    attached = second("workspace", "attach", "notes", "--json").done()
    assert attached.json["name"] == "notes"
    assert "missing or damaged" in attached.stderr
    assert "harness sync --check" in attached.stderr
    assert second("cat", "notes", "MEMORY.md").done().out == "1\n"
    assert "1 damaged packs" in first("sync", "--check").done().out
    again = second("workspace", "attach", "notes").done()
    assert "missing" not in again.stderr
    made = {one["revision"] for one in first("log", "notes", "--json").done().json}
    assert made < {one["revision"] for one in second("log", "notes", "--json").done().json}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "is unreachable"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key does not match"),
        (
            {"AWS_ACCESS_KEY_ID": READER.access, "AWS_SECRET_ACCESS_KEY": READER.secret},
            "lack a permission",
        ),
    ],
)
def test_an_unusable_s3_location_is_refused_with_a_remedy_at_join_and_sync(
    first: Terminal, second: Terminal, location: str, variables: dict[str, str], says: str
) -> None:
    first("write", "notes", "MEMORY.md", stdin=b"one\n").done()
    first("sync").done()
    second("join", location, **variables).refused(says, "→")
    second("join", location).done()
    if says != "lack a permission":  # who may only read finds that there is nothing to be told
        second("sync", **variables).refused(says, "→")
        second("sync", "--json", **variables).refused(says)
        second("workspace", "attach", **variables).refused(says, "→")
    second("workspace", "attach", "notes").done()
    second("write", "notes", "MEMORY.md", stdin=b"two\n").done()
    second("sync", **variables).refused(says, "→")
    told = second("run", "Remember tea.", "--json", **variables).done()
    assert told.json["durable"] == {"files": "here", "history": "here"}
    assert says in told.stderr


def test_an_impossible_join_or_attach_is_refused_with_a_remedy(
    tmp_path: Path, first: Terminal, second: Terminal, location: str
) -> None:
    second("join", location).refused("harness sync")
    second("join", "https://bucket").refused("s3://bucket/prefix")
    second("workspace", "attach").refused("HARNESS_S3")
    first("sync").done()
    other = Terminal(tmp_path / "other", second.variables)
    other("write", "notes", "mine.md", stdin=b"mine\n").done()
    other("join", location).refused("data of its own", "--home")
    assert other("cat", "notes", "mine.md").done().out == "mine\n"
    second("join", location).done()
    second("workspace", "attach", "nowhere").refused("lists")
    found = {one["check"]: one for one in second("doctor", "--json").json}
    assert found["machines"]["state"] == "ok"
    assert "this home already belongs to the account" in second("join", location).done().out
