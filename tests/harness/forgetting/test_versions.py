"""A real bucket that keeps versions: no version of an object of the account has the text afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.forgetting.selection import ForgettingRequest
from harness.forgetting.verify import verify
from tests.harness.forgetting.scan import holders, plain, readings, streams
from tests.harness.laptops import Laptop
from workspaces.clock import ManualClock
from workspaces.storage.s3.blobs import S3Blobs

SECRET = "the heron nests in Galway"


def versions_with_text(client: Any, bucket: str) -> list[str]:
    page = client.list_object_versions(Bucket=bucket)
    assert not page["IsTruncated"]
    found: list[str] = []
    for one in page["Versions"]:
        at = {"Bucket": bucket, "Key": one["Key"], "VersionId": one["VersionId"]}
        data = client.get_object(**at)["Body"].read()
        if any(plain(SECRET) in text for part in streams(data) for text in readings(part)):
            found.append(one["Key"])
    return found


def test_no_version_keeps_it_and_verify_looks_at_all(
    tmp_path: Path, versioned: tuple[Any, str]
) -> None:
    client, bucket = versioned
    store = S3Blobs(bucket, "shared")
    a = Laptop(tmp_path / "a", store, ManualClock(), joins=False)
    a.put("notes", "notes/a.md", f"# A\n\n- {SECRET}\n- tea\n")
    a.harness.agents.patch("assistant", {"config": {"system": f"Know that {SECRET}."}})
    a.sync()
    assert len(versions_with_text(client, bucket)) >= 3

    forgettings = a.harness.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(text=SECRET))
    kinds = {one.place.where for one in planned.forgetting.found}
    assert {"file", "history", "record", "object", "pack"} <= kinds
    done = forgettings.run_here(forgettings.start(planned).id)
    assert done.status == "done", done.waits_for
    assert versions_with_text(client, bucket) == []
    assert holders(a.home, SECRET) == []
    assert verify(forgettings, done.id, SECRET).found == ()

    account = a.harness.rooms.principal.account_id
    key = f"shared/.records/{account}/agents/old.json"
    for body in (SECRET, "another"):
        client.put_object(Bucket=bucket, Key=key, Body=body.encode())
    (found,) = verify(forgettings, done.id, SECRET).found
    assert "agents/old.json, version " in found
    store.close()
