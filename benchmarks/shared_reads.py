"""What a read costs that sees every write of other servers: one conditional GET, and what is added to it.

python -m benchmarks.shared_reads
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.ratio import compare, report
from tests.servers import BUCKET, seaweedfs_in
from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import Replica
from workspaces.home.locations import bucket_at
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.in_memory import MemoryRecords

FILE = b"A line of a memory, as long as lines are.\n" * 100
ROUNDS = 400


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, seaweedfs_in(Path(directory)) as server:
        os.environ.update(server.environment())
        bucket = bucket_at(f"s3://{BUCKET}/reads")
        one = Replica(Path(directory) / "home", MemoryRecords(), bucket)
        _reads(one, bucket)
        bucket.close()


def _reads(one: Replica, bucket: SharedBucket) -> None:
    decided = one.workspace.decided
    decided.write("MEMORY.md", FILE, by=CALLER)
    objects = bucket.files(one.workspace.namespace)
    token = objects.read("MEMORY.md").token

    def bare() -> None:
        assert objects.read_if_changed("MEMORY.md", token) is None

    def ours() -> None:
        assert decided.read("MEMORY.md").data == FILE

    for warm_up in (bare, ours):
        warm_up()
    claim = "a read where records are shared: the bare conditional GET"
    report(claim, *compare(ours, bare, rounds=ROUNDS), at_most=1.5)


if __name__ == "__main__":
    main()
