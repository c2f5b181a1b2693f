"""What it costs that a history is in S3: the end of a turn, and a machine that comes new."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import obstore

from benchmarks.ratio import report
from tests.servers import BUCKET, S3Server, seaweedfs_in
from tests.workspaces.replicas import Replica
from workspaces.home.locations import bucket_at
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryRecords

REVISIONS = 5_000
PUSHED_EVERY = 500
FILES = 60
TURNS = 30
ROUNDS = 5
AGENT = Author("helper", "agent_1", "turn", {"Agent": "agent_1", "Turn": "turn_1"})


def main() -> None:
    revisions = int(sys.argv[1]) if len(sys.argv) > 1 else REVISIONS
    with tempfile.TemporaryDirectory() as directory, seaweedfs_in(Path(directory)) as server:
        os.environ.update(server.environment())
        bench = _Bench(Path(directory), server)
        bench.end_of_a_turn()
        bench.a_machine_that_comes_new(revisions)


class _Bench:
    def __init__(self, directory: Path, server: S3Server) -> None:
        self._directory = directory
        self._bare = obstore.store.S3Store(
            BUCKET,
            endpoint=server.url,
            region="us-east-1",
            access_key_id=server.keys.access,
            secret_access_key=server.keys.secret,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        self._records = MemoryRecords()
        self._places: dict[str, SharedBucket] = {}
        self._numbers = count()

    def end_of_a_turn(self) -> None:
        """One revision, files and history: round trips, and the time beside three bare PUTs."""
        machine = self._machine("turns")
        machine.workspace.write("MEMORY.md", "begin\n", by=AGENT)
        machine.sync.run()
        ours: list[float] = []
        peer: list[float] = []
        trips: set[int] = set()
        for number in range(TURNS):
            machine.workspace.write("MEMORY.md", f"{number}\n", by=AGENT)
            begin = perf_counter()
            done = machine.sync.push_dirty()
            ours.append(perf_counter() - begin)
            assert done.history
            trips.add(done.requests)
            begin = perf_counter()
            for size in (100, 700, 2_000):
                obstore.put(self._bare, f"bare/{number}-{size}", bytes(size), use_multipart=False)
            peer.append(perf_counter() - begin)
        (requests,) = trips
        report("round trips of a turn's end with one revision", requests, 1, at_most=3)
        report(
            "… its time: three bare PUTs, one after the other",
            median(ours),
            median(peer),
            at_most=None,
        )

    def a_machine_that_comes_new(self, revisions: int) -> None:
        source = self._machine("source")
        paths = [WorkspacePath(f"notes/{number:02}.md") for number in range(FILES)]
        texts = dict.fromkeys(paths, "")
        for number in range(revisions):
            path = paths[number * 7 % FILES]
            texts[path] = f"{texts[path][-4000:]}- a fact of some length, number {number}\n"
            source.workspace.write(path, texts[path], by=AGENT)
            if number % PUSHED_EVERY == 0:
                source.sync.run()
        source.sync.run()
        source.workspace.tidy()
        prefix = f"source/.history/{source.workspace.namespace}"
        keys = [one["path"] for chunk in obstore.list(self._bare, prefix) for one in chunk]
        keys += [f"source/{source.workspace.namespace}/{path}" for path in paths]
        ours: list[float] = []
        peer: list[float] = []
        for _ in range(ROUNDS):
            target = self._machine(f"target-{next(self._numbers)}", "source")
            begin = perf_counter()
            done = target.sync.run()
            ours.append(perf_counter() - begin)
            assert done.history
            assert target.workspace.history.tip() == source.workspace.history.tip()
            begin = perf_counter()
            with ThreadPoolExecutor(32) as pool:
                size = sum(len(data) for data in pool.map(self._get, keys))
            self._clone(source)
            peer.append(perf_counter() - begin)
        print(f"  {revisions:,} revisions, {size / 2**20:.1f} MiB in {len(keys)} objects")
        print(f"  ours {median(ours):.2f} s · git clone and the transfer {median(peer):.2f} s")
        claim = f"clone of {revisions:,} revisions: `git clone` from this disk, and the transfer"
        report(claim, median(ours), median(peer), at_most=3)

    def _get(self, key: str) -> bytes:
        return bytes(obstore.get(self._bare, key).bytes())

    def _clone(self, source: Replica) -> None:
        history = source.home.history(source.workspace.namespace)
        target = self._directory / f"clone-{next(self._numbers)}"
        command = ["git", "clone", "-q", "--no-local", str(history), str(target)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    def _machine(self, name: str, prefix: str | None = None) -> Replica:
        place = self._places.setdefault(
            prefix or name, bucket_at(f"s3://{BUCKET}/{prefix or name}")
        )  # as in a process that is there already
        records = self._records if prefix or name == "source" else MemoryRecords()
        return Replica(self._directory / name, records, place)


if __name__ == "__main__":
    main()
