"""The rights in S3 that docs/operations.md names are enough, and reach nothing outside the prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from harness import Harness
from harness.bootstrap.join import join
from harness.sandboxes.none import NoSandbox
from tests.harness.cli.terminal import ROOT
from tests.servers import BUCKET, Keys, S3Server
from tests.workspaces.conftest import CALLER
from workspaces.home.locations import bucket_at
from workspaces.ids import new_id


@pytest.fixture
def prefix() -> str:
    return new_id("least")


@pytest.fixture
def keys(seaweedfs: S3Server, prefix: str) -> Iterator[Keys]:
    """Those of a user who has the documented rights, and no others."""
    page = (ROOT / "docs/operations.md").read_text()
    (policy,) = re.findall(r"```json\n(\{\"Version\".*?)```", page, re.DOTALL)
    filled = policy.replace("BUCKET", BUCKET).replace("PREFIX", prefix)
    iam = seaweedfs.client("iam")
    iam.create_user(UserName=prefix)
    made = iam.create_access_key(UserName=prefix)["AccessKey"]
    iam.put_user_policy(
        UserName=prefix, PolicyName="harness", PolicyDocument=json.dumps(json.loads(filled))
    )
    yield Keys(made["AccessKeyId"], made["SecretAccessKey"])
    iam.delete_user_policy(UserName=prefix, PolicyName="harness")
    iam.delete_access_key(UserName=prefix, AccessKeyId=made["AccessKeyId"])
    iam.delete_user(UserName=prefix)


def test_two_machines_work_with_the_documented_rights(
    tmp_path: Path,
    seaweedfs: S3Server,
    keys: Keys,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in seaweedfs.environment(keys=keys).items():
        monkeypatch.setenv(name, value)
    location = f"s3://{BUCKET}/{prefix}"
    with opened(tmp_path / "first", monkeypatch, s3=location) as first:
        assert first.run("Remember that tea is green.", conversation="c1").status == "done"
        notes = first.workspaces.get("notes")
        notes.decided.write("plan.md", b"# Plan\n", by=CALLER)
        gone = first.workspaces.create("gone")
        for name in ("notes", "gone"):
            first.workspaces.sync(name).run()
        notes.decided.delete("plan.md", by=CALLER)
        first.workspaces.sync("notes").run()
        published(first)
    monkeypatch.delenv("HARNESS_S3")
    join(tmp_path / "second", location)
    with opened(tmp_path / "second", monkeypatch) as second:
        assert second.following is not None
        second.following.attach("notes")
        second.workspaces.sync("notes").run()
        assert "tea is green" in second.workspaces.get("notes").read("MEMORY.md").text
    with opened(tmp_path / "first", monkeypatch, s3=location) as first:
        first.deletion.workspace("gone", force=True)
        first.run_jobs()
    place = bucket_at(location)
    assert list(place.files(gone.namespace).scan()) == []
    place.erase_past(notes.namespace, {"plan.md"})
    place.close()


def test_the_documented_rights_reach_nothing_outside_the_prefix(
    seaweedfs: S3Server, keys: Keys, prefix: str
) -> None:
    client = seaweedfs.client(keys=keys)
    for key in (f"{prefix}-else/a", f"else/{prefix}/a", "first"):
        for refused in (
            lambda key=key: client.put_object(Bucket=BUCKET, Key=key, Body=b""),
            lambda key=key: client.get_object(Bucket=BUCKET, Key=key),
            lambda key=key: client.delete_object(Bucket=BUCKET, Key=key),
            lambda key=key: client.list_objects_v2(Bucket=BUCKET, Prefix=key),
            lambda key=key: client.list_object_versions(Bucket=BUCKET, Prefix=key),
        ):
            assert denied(refused)
    assert denied(lambda: client.list_objects_v2(Bucket=BUCKET))


def denied(ask: Callable[[], Any]) -> bool:
    with pytest.raises(ClientError) as caught:
        ask()
    return caught.value.response["Error"]["Code"] == "AccessDenied"


def opened(home: Path, monkeypatch: pytest.MonkeyPatch, *, s3: str | None = None) -> Harness:
    if s3 is not None:
        monkeypatch.setenv("HARNESS_S3", s3)
    return Harness.open(home, sandbox=NoSandbox("not here"))


def published(harness: Harness) -> None:
    assert harness.following is not None
    assert harness.following.sync().troubles == []
