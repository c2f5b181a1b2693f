"""Sync against real S3 servers: killed processes, a bad network, simultaneous syncs, an appending shell.

Each actor writes lines that never come twice; what must survive is every line that nobody took away.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.faulty_proxy import Answered, Carried, Lost, Reset, Truncated, faulty_proxy
from tests.servers import BUCKET, S3Server, executable
from tests.workspaces.actors import run
from tests.workspaces.replicas import MemoryPrefix, Replica
from workspaces.conditions import ANY
from workspaces.errors import Failure, Refused
from workspaces.home.locations import bucket_at
from workspaces.ids import new_id, version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.s3_capabilities import Capabilities
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.sqlite import SqliteRecords
from workspaces.tree.port import Label
from workspaces.tree.safe_replace import Replaced, Replacement, SafeReplace
from workspaces.workspace.workspace import Workspace

SOAK = bool(os.environ.get("SOAK"))
KILLS = 500 if SOAK else 24
"""Half of them with a clean wire; a process that is killed has to be started first."""
ROUNDS = 60 if SOAK else 8
APPENDS = 6000
SECONDS_MAX = 3000 if SOAK else 300
FILES = ("MEMORY.md", "notes/a.md", "notes/b.md", "decisions/d.md")


@pytest.fixture
def location(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{new_id('test')}"


@pytest.fixture
def machines(tmp_path: Path, location: str) -> tuple[Replica, Replica]:
    records = MemoryRecords()
    place = bucket_at(location)
    return Replica(tmp_path / "a", records, place), Replica(tmp_path / "b", records, place)


def test_two_machines_have_the_same_files_locally_and_in_s3_after_sync(
    machines: tuple[Replica, Replica], seaweedfs: S3Server, location: str
) -> None:
    a, b = machines
    for name in FILES:
        a.put(name, f"{name}\nwith ä\n")
    assert a.sync.run().is_durable
    assert b.sync.run().pulled == ["decisions/d.md", "notes/a.md", "notes/b.md", "MEMORY.md"]
    assert a.texts() == b.texts()
    key = f"{location.removeprefix(f's3://{BUCKET}/')}/{a.workspace.namespace}/notes/a.md"
    client = seaweedfs.client()
    found = client.get_object(Bucket=BUCKET, Key=key)
    assert found["Body"].read() == b"notes/a.md\nwith \xc3\xa4\n"
    assert found["Metadata"]["version"] == version_of("notes/a.md\nwith ä\n".encode())
    client.close()
    assert a.sync.run().requests == b.sync.run().requests == 2
    assert a.workspace.history.tip() == b.workspace.history.tip()


def test_the_first_sync_of_a_machine_reads_many_files_from_the_fetched_history(
    machines: tuple[Replica, Replica],
) -> None:
    """What S3 tags with the MD5 of its bytes."""
    a, b = machines
    for number in range(100):
        a.put(f"notes/{number:03}.md", f"{number}\nwith ä\n")
    a.sync.run()
    assert b.sync.run().requests <= 4, "two pages of a listing, the head and a pack"
    assert a.texts() == b.texts()
    assert a.sync.run().requests == b.sync.run().requests == 2


def test_sync_refuses_an_s3_server_that_ignores_conditions(
    rclone_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rclone_s3.environment().items():
        monkeypatch.setenv(name, value)
    a = Replica(tmp_path / "a", MemoryRecords(), bucket_at(f"s3://{BUCKET}/x"))
    a.put("MEMORY.md", "one\n")
    with pytest.raises(Refused, match="overwrite each other"):
        a.sync.run()


def test_sync_takes_a_lease_to_delete_if_a_server_ignores_conditional_deletes(
    moto_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto_s3.environment().items():
        monkeypatch.setenv(name, value)
    records, place = MemoryRecords(), bucket_at(f"s3://{BUCKET}/{new_id('test')}")
    place._capabilities = Capabilities(conditional_put=True, conditional_delete=False)
    a, b = (Replica(tmp_path / name, records, place) for name in "ab")
    for number in range(4):
        a.put(f"{number}.md", f"{number}\n")
    a.sync.run()
    b.sync.run()
    (a.root / "1.md").unlink()
    (a.root / "2.md").unlink()
    b.put("2.md", "edited\n")
    b.sync.run()
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts() == {"0.md": "0\n", "2.md": "edited\n", "3.md": "3\n"}


# At the same instant. The same oracle runs on rclone's two-way sync.


class Ours:
    def __init__(self, machines: tuple[Replica, Replica]) -> None:
        self._machines = machines
        self.roots = [machine.root for machine in machines]

    def sync(self, number: int) -> None:
        with suppress(Failure):
            self._machines[number].sync.run()


class Bisync:
    """`rclone bisync` of two directories with one prefix, each with a state of its own."""

    def __init__(self, home: Path, location: str, server: S3Server) -> None:
        self._remote = f":s3:{location.removeprefix('s3://')}-bisync"
        self._home = home
        self._server = server
        self.roots = [home / name for name in "ab"]
        for number, root in enumerate(self.roots):
            root.mkdir(parents=True)
            (root / "MEMORY.md").write_text("begin\n")
            self._run(number, "--resync")

    def sync(self, number: int) -> None:
        if self._run(number) != 0:
            self._run(number, "--resync")  # what its messages say to do after an aborted run

    def _run(self, number: int, *more: str) -> int:
        options = [
            "--s3-provider=Other",
            f"--s3-endpoint={self._server.url}",
            "--create-empty-src-dirs=false",
        ]
        keys = self._server.keys
        options += [f"--s3-access-key-id={keys.access}", f"--s3-secret-access-key={keys.secret}"]
        options += [
            f"--config={os.devnull}",
            f"--workdir={self._home / f'state-{number}'}",
            "--force",
        ]
        return subprocess.run(
            [
                executable("rclone"),
                "bisync",
                str(self.roots[number]),
                self._remote,
                *options,
                *more,
            ],
            capture_output=True,
            timeout=120,
        ).returncode


def lost_of(actors: Ours | Bisync, rounds: int) -> tuple[int, int]:
    """How many of how many lines that must survive did not."""
    written: list[str] = []
    for number in range(rounds):
        for side, root in enumerate(actors.roots):
            for name in ("MEMORY.md", f"own-{side}.md", f"new-{number}.md"):
                line = f"L{len(written):04}"
                with (root / name).open("a") as stream:
                    stream.write(f"{line}\n")
                written.append(line)
        threads = [threading.Thread(target=actors.sync, args=(side,)) for side in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for _ in range(3):
        for side in (0, 1):
            actors.sync(side)
    found = [
        {line for file in root.rglob("*") if file.is_file() for line in file.read_text().split()}
        for root in actors.roots
    ]
    return sum(any(line not in there for there in found) for line in written), len(written)


def test_two_machines_that_sync_at_the_same_instant_lose_no_line(
    machines: tuple[Replica, Replica],
) -> None:
    lost, of = lost_of(Ours(machines), ROUNDS)
    a, b = machines
    assert (lost, of) == (0, ROUNDS * 6)
    assert a.texts() == b.texts()


@pytest.mark.skipif(not SOAK, reason="in a few rounds rclone may have luck")
def test_the_check_for_lost_lines_detects_the_losses_of_rclone_bisync(
    tmp_path: Path, location: str, seaweedfs: S3Server
) -> None:
    lost, of = lost_of(Bisync(tmp_path / "bisync", location, seaweedfs), ROUNDS)
    print(f"rclone bisync lost {lost} of {of}")
    assert lost > 0


# A shell that appends while files are swapped under it.


def test_sync_loses_no_append_of_a_shell_during_safe_replaces(tmp_path: Path) -> None:
    append_under_swaps(tmp_path, APPENDS)


SLOW = "{ sleep 0.002; echo x$i; } >> MEMORY.md"
"""Opens the file, and writes to it when another may have its place. No line comes twice: where two sides put
in the same one, a merge takes it for one change."""

HELD = '{ : > "$HELD"; while [ -e "$HELD" ]; do sleep 0.01; done; echo x$i; } >> MEMORY.md'
"""Opens the file, and writes to it once it was displaced and looked at."""


@pytest.mark.parametrize(
    ("appends", "append"), [(APPENDS // 4, SLOW), (12, HELD)], ids=["a moment", "beyond the look"]
)
def test_sync_loses_no_late_write_through_an_open_descriptor(
    tmp_path: Path, appends: int, append: str
) -> None:
    append_under_swaps(tmp_path, appends, append)


def test_the_check_for_lost_lines_detects_a_skipped_late_write_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant."""

    def look_again(self: Workspace, labels: Any) -> list[Any]:
        for label in labels:
            self._blobs.discard(label)
        return []

    monkeypatch.setattr(Workspace, "look_again", look_again)
    with pytest.raises(AssertionError, match="lines were lost"):
        append_under_swaps(tmp_path, 12, HELD)


SWAPS_MIN = 5
"""Fewer prove nothing: the shell waits for each, where it is faster than who swaps."""


def append_under_swaps(tmp_path: Path, appends: int, append: str = "echo x >> MEMORY.md") -> None:
    prefix = MemoryPrefix()
    a = Replica(tmp_path / "a", MemoryRecords(), SharedBucket("memory:", prefix))
    a.put("MEMORY.md", "remote 0\n")
    a.sync.run()
    there = prefix.below(a.workspace.namespace)
    swaps = counted(a)
    shell = Shell(a, tmp_path, appends, append)
    a.sync._pause = shell.given_time
    numbers = count()
    end = time.monotonic() + SECONDS_MAX
    with shell.at_work():
        while shell.is_at_work():
            assert time.monotonic() < end, f"{len(swaps)} swaps in so long a time"
            blob = there.read("MEMORY.md")
            rest = blob.data.split(b"\n", 1)[1]
            with suppress(Failure):
                there.write("MEMORY.md", b"remote %d\n" % next(numbers) + rest, expect=blob.token)
                a.sync.run()
            shell.told_of(len(swaps))
    a.sync.run()
    lines = a.texts()["MEMORY.md"].splitlines()
    print(f"{len(swaps)} swaps")
    kept = [line for line in lines if line.startswith("x")]
    print(f"{len(kept)} lines, {len(set(kept))} different")
    found = len(set(kept)) if "$i" in append else len(kept)  # twice is no loss
    assert found == appends, "lines were lost"
    assert len(swaps) >= SWAPS_MIN
    assert there.read("MEMORY.md").data.decode() == a.texts()["MEMORY.md"]


def counted(of: Replica) -> list[WorkspacePath]:
    """Where something was swapped in, from now on."""
    swapped: list[WorkspacePath] = []
    moved = of.workspace._safe_replace._replace

    def counting(swap: Replacement, label: Label, all_of_them: Replaced) -> bool:
        is_done = moved(swap, label, all_of_them)
        if is_done:
            swapped.append(swap.path)
        return is_done

    of.workspace._safe_replace._replace = counting
    return swapped


class Shell:
    """Appends to MEMORY.md, so often; each part of it begins when there was one swap more."""

    def __init__(self, of: Replica, outside: Path, appends: int, append: str) -> None:
        self._staging = str(of.home.staging(of.workspace.namespace))
        self._held, self._swaps = outside / "held", outside / "swaps"
        self._swaps.mkdir()
        script = f"""
            i=0; while [ $i -lt {appends} ]; do
              part=$((i * {SWAPS_MIN + 1} / {appends}))
              while [ $part -gt 0 ] && [ ! -e "$SWAPS/$part" ]; do sleep 0.01; done
              {append}; i=$((i + 1)); if [ $((i % 15)) -eq 0 ]; then sleep 0.02; fi
            done"""
        self._process = subprocess.Popen(
            ["sh", "-c", script],
            cwd=of.root,
            env={**os.environ, "HELD": str(self._held), "SWAPS": str(self._swaps)},
        )

    @contextmanager
    def at_work(self) -> Generator[None]:
        try:
            yield
            assert self._process.wait(timeout=SECONDS_MAX) == 0
        finally:
            self._process.kill()
            self._process.wait()

    def is_at_work(self) -> bool:
        return self._process.poll() is None

    def told_of(self, swaps: int) -> None:
        for number in range(min(swaps, SWAPS_MIN) + 1):
            (self._swaps / str(number)).touch()

    def given_time(self, seconds: float) -> None:
        """The pause before a second look: as long as this shell takes to write to what was displaced."""
        if self._has_displaced():
            self._held.unlink(missing_ok=True)
        time.sleep(seconds)
        end = time.monotonic() + SECONDS_MAX
        while self._has_displaced():
            assert time.monotonic() < end, "it does not let go of what it has open"
            time.sleep(0.001)

    def _has_displaced(self) -> bool:
        """Whether it has a file open that is not in the tree any more."""
        try:
            opened = os.listdir(f"/proc/{self._process.pid}/fd")  # noqa: PTH208
        except OSError:  # it has ended
            return False
        return any(self._is_displaced(fd) for fd in opened)

    def _is_displaced(self, fd: str) -> bool:
        with suppress(OSError):  # closed meanwhile
            opened = Path(f"/proc/{self._process.pid}/fd/{fd}").readlink()
            return str(opened).startswith(self._staging)
        return False


def test_the_check_for_lost_lines_detects_a_plain_rename_instead_of_safe_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: what is displaced is looked at by nobody. The shell writes in its worst moment."""
    has_appended: list[bool] = []

    def moved(self: SafeReplace, swap: Replacement, label: Label, _all_of_them: Replaced) -> bool:
        assert swap.data is not None
        end = time.monotonic() + SECONDS_MAX
        while not has_appended and self._tree.read(swap.path).data == swap.seen:
            assert time.monotonic() < end, "nobody appends"
        has_appended.append(True)
        self._tree.discard(label)
        self._tree.write(swap.path, swap.data, expect=ANY)
        return True

    monkeypatch.setattr(SafeReplace, "_replace", moved)
    with pytest.raises(AssertionError, match="lines were lost"):
        append_under_swaps(tmp_path, APPENDS // 4, "echo x$i >> MEMORY.md")


# Killed, with a clean wire and with a bad one.


@pytest.mark.parametrize("wire", ["clean", "faulty"])
def test_machines_killed_at_any_moment_of_a_sync_lose_no_line_and_tear_no_file(
    tmp_path: Path, location: str, seaweedfs: S3Server, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with faulty_proxy(seaweedfs.url) as proxy:
        if wire == "faulty":
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
            proxy.next_faults = Faults(seed)  # type: ignore[assignment]
        printed = run(kill, str(tmp_path), location, KILLS // 2, seed, wait_s=SECONDS_MAX)
        report = json.loads(printed.splitlines()[-1])
    print(report)
    assert report["kills"] == KILLS // 2
    assert report["lost"] == []
    assert report["torn"] == []
    assert report["is_same"], "the machines have diverged"
    assert report["aside"] == [], "something was left aside"
    assert len(set(report["tips"])) == 1, "the histories have diverged"
    assert report["unreachable"] == [], "a revision is not in the history of all"
    for home in ("a", "b"):
        for directory in (tmp_path / home / "history").iterdir():
            git = ["git", f"--git-dir={directory}", "fsck", "--strict"]
            checked = subprocess.run(git, capture_output=True, timeout=120)
            assert checked.returncode == 0, checked.stderr


class Faults:
    """Endless; from the seed. One request in seven meets one."""

    def __init__(self, seed: int) -> None:
        self._randomly = random.Random(seed)

    def pop(self, _: int) -> Any:
        busy = Answered("503 Slow Down", "SlowDown")
        bad = (Reset(), Lost(), Truncated(), busy)
        return self._randomly.choice(bad) if self._randomly.random() < 1 / 7 else Carried()


SETTLE_S_MAX = 120.0


def kill(home: str, location: str, kills: int, seed: int) -> None:
    """Forks replicas that sync until they die, and writes into their files meanwhile."""
    randomly = random.Random(seed)
    written: list[str] = []
    roots = [replica_at(home, name, location).root for name in "ab"]
    done = 0
    while done < kills:
        victims = [victim(home, name, location, randomly.randrange(2**32)) for name in "ab"]
        end = time.monotonic() + randomly.uniform(0.2, 1.2)
        while time.monotonic() < end:
            write(randomly, roots, written)
            time.sleep(randomly.uniform(0, 0.05))
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        done += len(victims)
    machines = [replica_at(home, name, location) for name in "ab"]
    seen = {one.id for machine in machines for one in machine.workspace.log(limit=10_000)}
    for machine in (*machines, *machines, *machines):
        settle(machine)
    line = {one.id for one in machines[0].workspace.log(limit=10_000)}
    texts = [machine.texts() for machine in machines]
    lines = {one for text in texts[0].values() for one in text.splitlines(keepends=True)}
    print(
        json.dumps(
            {
                "kills": done,
                "lines": len(written),
                "lost": sorted(set(written) - lines)[:20],
                "torn": sorted(lines - set(written))[:20],
                "is_same": texts[0] == texts[1],
                "aside": [one for m in machines for one in m.workspace._blobs.labels()],
                "tips": [machine.workspace.history.tip() for machine in machines],
                "unreachable": sorted(seen - line),
            }
        )
    )


def settle(machine: Replica) -> None:
    """On a wire that is faulty each attempt may end early; what stood in the way last is told."""
    end = time.monotonic() + SETTLE_S_MAX
    last: object = None
    while time.monotonic() < end:
        try:
            last = machine.sync.run().pending
        except Failure as failure:
            last = failure
        if last == []:
            return
    raise AssertionError(f"it could not be synced in {SETTLE_S_MAX} s: {last}")


def write(randomly: random.Random, roots: list[Path], written: list[str]) -> None:
    """By a shell that appends, or an editor that saves."""
    file = randomly.choice(roots) / randomly.choice(FILES)
    file.parent.mkdir(exist_ok=True)
    line = f"L{len(written):06}\n"
    if randomly.random() < 0.7 or not file.exists():
        with file.open("a") as stream:
            stream.write(line)
    else:
        with suppress(FileNotFoundError):
            save(file, line)
    written.append(line)


def save(file: Path, line: str) -> None:
    """As editors do, but for what comes between their reading and their saving: nothing here knows
    what an editor replaces unread."""
    with file.open("r+") as stream:
        text = stream.read()
        if not text.endswith("\n") and text:
            line = "\n" + line
        stream.write(line)


def victim(home: str, name: str, location: str, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            sync_until_dead(home, name, location, random.Random(seed))
        os._exit(1)
    return pid


def sync_until_dead(home: str, name: str, location: str, randomly: random.Random) -> None:
    machine = replica_at(home, name, location)
    parent = os.getppid()
    if randomly.random() < 0.5:
        die_at_line(randomly.randrange(20_000))
    while os.getppid() == parent:
        with suppress(Failure):
            machine.sync.run()


def die_at_line(left: int) -> None:
    """At a line of the library, as far as it is run by this thread."""

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if "/workspaces/" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(count)


def replica_at(home: str, name: str, location: str) -> Replica:
    records = SqliteRecords(Path(home) / "state.db")
    try:
        return Replica(Path(home) / name, records, bucket_at(location))
    finally:
        records.close()
