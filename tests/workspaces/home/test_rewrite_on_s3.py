"""A text taken out of a real bucket that keeps versions, and of three homes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from tests.workspaces.conftest import AGENT
from tests.workspaces.home.test_rewrite import MARK, SECRET, held_bytes
from tests.workspaces.home.test_rewrite_shared import filled, forget, holds_secret
from tests.workspaces.replicas import Replica
from workspaces.home.locations import bucket_at
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.in_memory import MemoryRecords

REFUSED: Any = {
    "Error": {"Code": "AccessDenied", "Message": "the object is locked"},
    "ResponseMetadata": {"HTTPStatusCode": 403},
}


def versions(client: Any, bucket: str) -> list[tuple[str, bytes]]:
    """Every version of every object that the bucket still has."""
    page = client.list_object_versions(Bucket=bucket)
    assert not page["IsTruncated"]
    assert not [mark["Key"] for mark in page.get("DeleteMarkers", ()) if "a.md" in mark["Key"]]
    return [
        (
            one["Key"],
            client.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])[
                "Body"
            ].read(),
        )
        for one in page["Versions"]
    ]


def test_no_version_of_any_object_has_the_text(tmp_path: Path, versioned: tuple[Any, str]) -> None:
    client, bucket = versioned
    place: SharedBucket = bucket_at(f"s3://{bucket}/shared")
    records = MemoryRecords()
    a, b = (Replica(tmp_path / name, records, place) for name in "ab")
    filled(a, b)
    a.workspace.write("gone.md", f"{SECRET}\n", by=AGENT)
    a.sync.run()
    a.workspace.delete("gone.md", by=AGENT)
    a.sync.run()
    b.workspace.write("own.md", "written offline\n", by=AGENT)
    b.put("dirty.md", f"pushed before it heard: {SECRET}\n")
    assert sum(holds_secret(data) for _, data in versions(client, bucket)) >= 4

    forget(a)
    left = versions(client, bucket)
    assert not [name for name, data in left if holds_secret(data)]
    assert len([name for name, _ in left if name.endswith("/a.md")]) == 1

    b.sync.push([WorkspacePath("dirty.md")])  # it has not read the new head yet
    assert [name for name, data in versions(client, bucket) if holds_secret(data)]
    a.sync.run()
    b.sync.run()
    forget(b)
    a.sync.run()
    c = Replica(tmp_path / "c", records, place)
    c.sync.run()
    texts = {
        "a.md": f"one\nmy {MARK}\nthree\n",
        "b.md": "b\n",
        "dirty.md": f"pushed before it heard: {MARK}\n",
        "own.md": "written offline\n",
    }
    for one in (a, b, c):
        assert one.texts() == texts
    assert a.workspace.history.tip() == b.workspace.history.tip() == c.workspace.history.tip()
    for one in (a, b, c):
        one.sync.run()
        assert not holds_secret(held_bytes(one.home.root)), one.home.root.name
    assert not [name for name, data in versions(client, bucket) if holds_secret(data)]
    place.close()


def test_versions_that_the_store_keeps_are_named(
    tmp_path: Path, versioned: tuple[Any, str]
) -> None:
    client, bucket = versioned
    place = bucket_at(f"s3://{bucket}")
    records = MemoryRecords()
    a, b = (Replica(tmp_path / name, records, place) for name in "ab")
    filled(a, b)

    def refuse(model: Any, params: dict[str, Any], **_: Any) -> None:
        del model
        if b"a.md" in str(params["url_path"]).encode() and "versionId" in params["query_string"]:
            raise ClientError(REFUSED, "DeleteObject")

    connected = place.store._bucket.connected()  # pyright: ignore[reportAttributeAccessIssue]
    connected.client.meta.events.register("before-call.s3.DeleteObject", refuse)
    done = forget(a)
    assert done.not_erased == ("a.md",)
    assert [name for name, data in versions(client, bucket) if holds_secret(data)]
    assert all(
        name.endswith("a.md") for name, data in versions(client, bucket) if holds_secret(data)
    )
    assert not a.workspace.history.is_replaced, "it is done as far as it can be"
    place.close()
