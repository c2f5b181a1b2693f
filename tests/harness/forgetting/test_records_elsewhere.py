"""Forgetting where machines share records in DynamoDB or PostgreSQL, and large values in a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from harness import Harness
from harness.forgetting.forgetting import Forgetting
from harness.forgetting.selection import ForgettingRequest
from harness.forgetting.verify import verify
from harness.sandboxes.none import NoSandbox
from tests.dynamodb_server import REGION, dynamodb_url, make_table
from tests.harness.forgetting.canaries import PATTERN, plant_in_records
from tests.harness.forgetting.kept_lines import check_kept, kept_by
from tests.harness.forgetting.scan import all_holders
from tests.harness.forgetting.versioned_bucket import VersionedBucket
from tests.postgres_server import PostgresServer, schema_of
from workspaces.ids import new_id
from workspaces.storage.records import Key, Put

__all__ = ["dynamodb_url"]

OFF = NoSandbox("not in this test")
Dump = Callable[[], bytes]
"""Returns all records, as the database itself has them."""


@pytest.fixture
def bucket(versioned: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> VersionedBucket:
    monkeypatch.setenv("HARNESS_S3", f"s3://{versioned[1]}/shared")
    return VersionedBucket(*versioned)


def test_what_is_forgotten_goes_from_dynamodb(
    tmp_path: Path, bucket: VersionedBucket, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3.session

    table = new_id("table")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_url)
    monkeypatch.setenv("HARNESS_RECORDS", f"dynamodb:{table}")
    make_table(dynamodb_url, table)

    def dump() -> bytes:
        client = cast("Any", boto3.session.Session()).client("dynamodb")
        answer = cast("dict[str, Any]", client.scan(TableName=table))
        assert "LastEvaluatedKey" not in answer
        rows: list[Any] = answer["Items"]
        return "\n".join(row["sort"]["S"] + row["value"]["S"] for row in rows).encode()

    done = check_forgetting(tmp_path, bucket, dump, machines="a")
    assert "point-in-time recovery" in done.unreachable[0].why


def test_what_a_machine_forgets_goes_from_postgres_and_from_the_machine_beside_it(
    tmp_path: Path,
    bucket: VersionedBucket,
    postgres: PostgresServer,
    postgres_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HARNESS_RECORDS", postgres_address)
    table = f"{schema_of(postgres_address)}.harness_records"

    def dump() -> bytes:
        return b"\n".join(
            bytes(row[0]) for row in postgres.run(f"select sort || value from {table}")
        )

    done = check_forgetting(tmp_path, bucket, dump, machines="ab")
    assert "VACUUM FULL harness_records" in done.unreachable[0].why
    postgres.run(f"vacuum full {table}")
    postgres.run("checkpoint")
    toast = "(select reltoastrelid from pg_class where oid = %s::regclass)"
    paths = f"select pg_relation_filepath(%s), pg_relation_filepath({toast})"
    ((*files,),) = postgres.run(paths, table, table)
    kept = [(postgres.directory / "data" / os.fsdecode(file)).read_bytes() for file in files]
    assert [one for one in kept if b"canary" in one] == []


def check_forgetting(
    directory: Path, bucket: VersionedBucket, dump: Dump, *, machines: str
) -> Forgetting:
    """Check that canaries go from the homes, from the records and from the bucket, and nothing else does."""
    with ExitStack() as stack:
        return _forgotten(directory, bucket, dump, stack, machines)


def _forgotten(
    directory: Path, bucket: VersionedBucket, dump: Dump, stack: ExitStack, machines: str
) -> Forgetting:
    homes = [directory / name for name in machines]

    def holders(name: str, phrases: list[str]) -> set[str]:
        place = bucket.save(directory / name)
        (place / "records").write_bytes(dump())
        found = [all_holders(one, phrases) for one in (place, *homes)]
        return {one for each in found for names in each.values() for one in names}

    opened = [stack.enter_context(Harness.open(home, sandbox=OFF)) for home in homes]
    first, account = opened[0], opened[0].rooms.principal.account_id
    garden = plant_in_records(first, homes[0])
    large = f"I think that {garden.phrases[0]}. {'z ' * 40_000}"
    first.run(large, conversation="gone")
    first.conversations.delete(first.conversation("gone"))
    first.run_jobs()
    for one in opened:
        one.workspaces.sync("notes").run()
    revisions = [one.id for one in first.workspaces.get("notes").log()]
    before = kept_by(first, revisions)
    assert "records" in holders("before", garden.phrases)

    forgettings = first.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(match=PATTERN))
    kinds = {one.place.where for one in planned.forgetting.found}
    assert kinds >= {"record", "conversation", "queued event", "large value", "run"}
    done = forgettings.run_here(forgettings.start(planned).id)
    assert done.status == "done", done.waits_for
    for other in opened[1:]:
        other.rooms.forgettings.hear()
        other.workspaces.sync("notes").run()
        assert {one.status for one in other.rooms.forgettings.run_pending()} == {"done"}

    assert holders("after", garden.phrases) == set()
    check_kept(before, kept_by(first, revisions))
    log = first.conversations.prompt_log(first.conversation("c1"))
    assert all(one.digest.startswith("redacted: f_") for one in log.receipts())
    assert verify(forgettings, done.id, garden.phrases[0]).found == ()
    text = garden.phrases[0].upper()
    first.rooms.records.write(Put(Key(f"runs:{account}", "run_0"), {"prompt": text}))
    (found,) = verify(forgettings, done.id, text).found
    assert found.startswith("the records: run")
    return done
