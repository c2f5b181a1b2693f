"""What sync costs over what it cannot do without, on a real S3 server on this machine, and beside others.

The others (`rclone`, and `aws` where it is installed) are given their fastest settings for each work and run
as processes, as they come; sync runs in a process that is there already, as it does in `harness up`, and
once as `harness sync`. Each begins with a disk that has nothing to write: what one has left there would
else be waited for by the next that waits for the disk, which is mostly sync; and with no garbage of others.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count, product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store

from benchmarks.ratio import report
from tests.servers import BUCKET, S3Server, seaweedfs_in
from tests.workspaces.replicas import Replica
from workspaces.home.locations import bucket_at
from workspaces.paths import WorkspacePath
from workspaces.storage.in_memory import MemoryRecords
from workspaces.sync.report import SyncReport

LINE = b"A line of a memory, as long as lines are.\n"
FILE = LINE * 100
WORDS = ["".join(parts) for parts in product("bdgklmnprst", "aeo", repeat=2)]
"""As many as people use often: a text of them packs to less than half, as theirs does."""
LOOPS = (8, 16, 32, 64)
SIZES = (100, 2_000, 10_000)
PUSHES = 120
ROUNDS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, seaweedfs_in(Path(directory)) as server:
        os.environ.update(server.environment())
        bench = _Bench(Path(directory), server)
        for size in SIZES:
            bench.workspace_of(size)
        bench.one_dirty_file()
        for size in SIZES[1:]:
            bench.full_check(size)
        bench.one_remote_change()
        bench.first_upload_and_download()


class _Bench:
    def __init__(self, directory: Path, server: S3Server) -> None:
        self._directory = directory
        self._server = server
        self._boto = server.client()
        self._bare = S3Store(
            BUCKET,
            endpoint=server.url,
            region="us-east-1",
            credential_provider=Boto3CredentialProvider(_session(server)),
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        self._machines: dict[int, Replica] = {}
        self._numbers = count()

    def workspace_of(self, size: int) -> Replica:
        """So many files, in S3 and here, and old enough to be believed."""
        if size not in self._machines:
            machine = self._machine(f"of-{size}")
            _fill(machine.root, size)
            machine.sync.run()
            self._machines[size] = machine
        return self._machines[size]

    def one_dirty_file(self) -> None:
        """The edit is a revision already; what is measured is how long it takes to be in S3. Each is beside
        a bare PUT after the same look at the same tree, which leaves the caches of the processor to both
        as it found them."""
        names = {size: f"bare/{next(self._numbers)}.md" for size in SIZES}
        tokens: dict[int, Any] = {
            size: obstore.put(self._bare, name, FILE, mode="create")["e_tag"]
            for size, name in names.items()
        }
        keys = [(kind, size) for size in SIZES for kind in ("bare", "ours")]
        times: dict[tuple[str, int], list[float]] = {key: [] for key in keys}
        path, other = WorkspacePath("notes/00/00000.md"), WorkspacePath("notes/01/00001.md")
        for number in range(PUSHES):
            data = FILE + b"%d" % number
            keys = [*keys[1:], keys[0]]  # each after each: the revision before keeps the disk busy
            for kind, size in keys:
                machine = self.workspace_of(size)
                (machine.root / (path if kind == "ours" else other)).write_bytes(data)
                machine.workspace.edits.commit()
                begin = perf_counter()
                if kind == "bare":
                    mode: Any = {"e_tag": tokens[size]}
                    answer = obstore.put(
                        self._bare, names[size], data, mode=mode, use_multipart=False
                    )
                    tokens[size] = answer["e_tag"]
                else:
                    done = machine.sync.push([path])
                    assert (done.pushed, done.requests) == ([path], 1)
                times[kind, size].append(perf_counter() - begin)
        took = {key: median(found) for key, found in times.items()}
        told = (f"{kind} {size}: {1000 * took[kind, size]:.2f} ms" for kind, size in times)
        print("  " + " · ".join(told))
        over = {size: took["ours", size] / took["bare", size] for size in SIZES}
        claim = "one dirty file of {:,} durable: bare conditional PUT"
        for size in SIZES:
            report(claim.format(size), took["ours", size], took["bare", size], at_most=1.4)
        report("… of 10,000: of 100", over[SIZES[-1]], over[SIZES[0]], at_most=1.1)

    def full_check(self, size: int) -> None:
        machine = self.workspace_of(size)
        machine.sync.run()  # what the work before this one changed
        prefix = f"{machine.prefix}/{machine.workspace.namespace}/"
        pages = self._boto.get_paginator("list_objects_v2")

        def floor() -> None:
            """A listing and a look at every file, and nothing made of them."""
            for page in pages.paginate(Bucket=BUCKET, Prefix=prefix):
                len(page["Contents"])
            _walk(str(machine.root))

        def ours() -> None:
            done = machine.sync.run()
            assert not done.pushed
            assert not done.pulled

        peers = self._checkers(machine, prefix)
        took = _in_turns({"ours": ours, "floor": floor, **peers}, ROUNDS)
        requests = machine.sync.run().requests
        claim = f"full check of {size:,} unchanged files ({requests} requests)"
        report(f"{claim}: LIST and directory scan", took["ours"], took["floor"], at_most=1.3)
        fastest = min((name for name in took if name.startswith("rclone")), key=took.__getitem__)
        report(f"… : {fastest}", took["ours"], took[fastest], at_most=1.0)
        for name in ("harness sync", "aws s3 sync --size-only"):
            if name in took:
                report(f"… : {name}", took["ours"], took[name], at_most=None)

    def one_remote_change(self) -> None:
        """By somebody who writes into the bucket, and by another machine, whose history tells of it. A full
        sync each, and a pull, which looks at the head first."""
        machine, size = self.workspace_of(SIZES[1]), SIZES[1]
        path = "notes/01/00001.md"
        key = f"{machine.prefix}/{machine.workspace.namespace}/{path}"
        self._boto.put_object(Bucket=BUCKET, Key=key, Body=FILE + b"theirs\n")
        claim = f"remote change of one file of {size:,}"
        self._count(
            f"{claim}, in the bucket (its history goes out: a pack, the head)", machine, path
        )
        other = self._machine_beside(machine)
        other.sync.run()
        for work in (machine.sync.run, machine.sync.pull):
            other.put(path, f"theirs {next(self._numbers)}\n")
            other.sync.run()
            told = f"{claim}, by another machine (its history comes: a pack)"
            self._count(told, machine, path, work)

    def _count(
        self,
        claim: str,
        machine: Replica,
        path: str,
        work: Callable[[], SyncReport] | None = None,
    ) -> None:
        sync = machine.sync
        files, history = sync._there.requests, sync._history_sync.requests
        done = (work or sync.run)()
        assert done.pulled == [path]
        files, history = sync._there.requests - files, sync._history_sync.requests - history
        print(f"{claim}: {files} requests for 2 pages and 1 GET, {history} of the history")

    def first_upload_and_download(self) -> None:
        size = SIZES[1]
        root = self.workspace_of(size).root
        fast = min(LOOPS, key=lambda threads: self._bare_up(size, threads, root.joinpath))
        up: dict[str, list[float]] = {}
        down: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            source, alone = self._source(size), self._source(size)
            alone.sync._history_sync._replication = None
            target = self._machine_beside(source)
            target.sync._get_ready()
            prefix = f"{source.prefix}/{source.workspace.namespace}/"
            _note(up, "ours", source.sync.run)
            _note(up, "ours, files alone", alone.sync.run)
            _note(up, "bare", lambda r=source.root: self._bare_up(size, fast, r.joinpath))
            _note(up, "bare, from memory", lambda: self._bare_up(size, fast, _text))
            _note(down, "ours", target.sync.run)
            assert len(target.texts()) == size
            _note(down, "bare", lambda prefix=prefix: self._bare_down(prefix, fast, durable=False))
            _note(down, "bare, durable", lambda p=prefix: self._bare_down(p, fast, durable=True))
            for transfers in (32, 64):
                name = f"rclone copy --transfers={transfers}"
                to = f"rclone/{next(self._numbers)}"
                more = [f"--transfers={transfers}", "--s3-no-check-bucket", "--ignore-times"]
                _note(
                    up,
                    name,
                    lambda s=source, t=to, m=more: self._rclone("copy", str(s.root), t, *m),
                )
                into = self._directory / f"down-{next(self._numbers)}"
                _note(
                    down, name, lambda t=prefix, i=into, m=more: self._rclone("copy", t, str(i), *m)
                )
        self._tell(f"first upload of {size:,} files", up)
        self._tell(f"first download of {size:,} files", down)

    def _source(self, size: int) -> Replica:
        """Whose files are revisions already, and in no store."""
        machine = self._machine(f"up-{next(self._numbers)}")
        _fill(machine.root, size)
        machine.workspace.edits.commit()
        machine.sync._get_ready()
        return machine

    def _tell(self, claim: str, times: dict[str, list[float]]) -> None:
        took = {name: median(found) for name, found in times.items()}
        print("  " + " · ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items()))
        report(f"{claim}: the bare client's best loop", took["ours"], took["bare"], at_most=1.2)
        alone = took.get("ours, files alone")
        if alone is not None:
            report(
                "… : of the files alone, without their history", alone, took["bare"], at_most=1.2
            )
        others = {
            "bare, durable": "… : that loop with an fsync each",
            "bare, from memory": "… : that loop with the same texts in memory already",
        }
        for name in others.keys() & took.keys():
            report(others[name], took["ours"], took[name], at_most=None)
        fastest = min((name for name in took if name.startswith("rclone")), key=took.__getitem__)
        report(f"… : {fastest}", took["ours"], took[fastest], at_most=1.0)

    def _checkers(self, machine: Replica, prefix: str) -> dict[str, Callable[[], object]]:
        root = str(machine.root)
        settings = {
            "rclone --size-only": ["--size-only"],
            "rclone --size-only --fast-list": ["--size-only", "--fast-list", "--checkers=32"],
            "rclone --checksum": ["--checksum", "--fast-list", "--checkers=32"],
        }
        peers: dict[str, Callable[[], object]] = {
            name: lambda more=more: self._rclone("sync", root, prefix, "--dry-run", *more)
            for name, more in settings.items()
        }
        if shutil.which("aws", path=_PATH):
            aws = ["s3", "sync", "--size-only", "--dryrun", root, f"s3://{BUCKET}/{prefix}"]
            command = [str(shutil.which("aws", path=_PATH)), *aws]
            environment = {**os.environ, "AWS_ENDPOINT_URL": self._server.url}
            peers["aws s3 sync --size-only"] = lambda: _run(command, environment)
        return peers

    def _rclone(self, command: str, source: str, target: str, *more: str) -> None:
        keys = self._server.keys
        options = [f"--s3-endpoint={self._server.url}", f"--s3-access-key-id={keys.access}"]
        options += [
            "--s3-provider=Other",
            f"--s3-secret-access-key={keys.secret}",
            f"--config={os.devnull}",
        ]
        ends = [end if end.startswith("/") else f":s3:{BUCKET}/{end}" for end in (source, target)]
        _run(
            [str(shutil.which("rclone", path=_PATH)), command, *ends, *options, *more],
            dict(os.environ),
        )

    def _bare_up(self, size: int, threads: int, text: Callable[[str], Path | bytes]) -> float:
        """The same texts: what a server does with one depends on what it is. Files are read by the client
        itself, which takes it least."""
        prefix = f"bare/{next(self._numbers)}"

        def put(name: str) -> None:
            key = f"{prefix}/{name}"
            obstore.put(self._bare, key, text(name), mode="create", use_multipart=False)

        begin = perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(put, _names(size)))
        return perf_counter() - begin

    def _bare_down(self, prefix: str, threads: int, *, durable: bool) -> None:
        """List, get and write to files, as whoever wants a copy would."""
        into = self._directory / f"bare-{next(self._numbers)}"
        for number in range(100):
            (into / "notes" / f"{number:02}").mkdir(parents=True, exist_ok=True)
        pages = self._boto.get_paginator("list_objects_v2")
        keys = [
            one["Key"]
            for page in pages.paginate(Bucket=BUCKET, Prefix=prefix)
            for one in page["Contents"]
        ]

        def get(key: str) -> None:
            data = obstore.get(self._bare, key).bytes()
            with (into / key.removeprefix(prefix)).open("wb") as stream:
                stream.write(data)
                if durable:
                    stream.flush()
                    os.fsync(stream.fileno())

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(get, keys))

    def _machine(self, name: str) -> Replica:
        return _Machine(self._directory / name, name)

    def _machine_beside(self, other: Replica) -> Replica:
        return _Machine(self._directory / f"{other.prefix}-beside", other.prefix, other.records)


class _Machine(Replica):
    def __init__(self, home: Path, prefix: str, records: MemoryRecords | None = None) -> None:
        self.records = records or MemoryRecords()
        self.prefix = prefix
        super().__init__(home, self.records, bucket_at(f"s3://{BUCKET}/{prefix}"))


_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)


def _names(size: int) -> list[str]:
    return [f"notes/{number % 100:02}/{number:05}.md" for number in range(size)]


def _fill(root: Path, size: int) -> None:
    for name in _names(size):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_text(name))
        os.utime(file, (1, 1))


@cache
def _text(name: str) -> bytes:
    """As long as `FILE`, and no two alike: what is equal, or nearly, is packed to nothing."""
    words = random.Random(name).choices(WORDS, k=len(FILE) // 5)
    return " ".join(words).ljust(len(FILE)).encode()


def _walk(directory: str) -> int:
    found = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += _walk(entry.path)
            else:
                found += entry.stat(follow_symlinks=False).st_size
    return found


def _in_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            _note(times, name, work)
    took = {name: median(found) for name, found in times.items()}
    print("  " + " · ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in took.items()))
    return took


def _note(times: dict[str, list[float]], name: str, work: Callable[[], object]) -> None:
    os.sync()
    gc.collect()
    begin = perf_counter()
    work()
    times.setdefault(name, []).append(perf_counter() - begin)


def _session(server: S3Server) -> Any:
    import boto3.session

    return boto3.session.Session(server.keys.access, server.keys.secret, region_name="us-east-1")


if __name__ == "__main__":
    main()
