"""The supervisor of a command: its limits, and that no process remains when the command has ended."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.sandboxes import supervisor
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.output_capture import WHOLE_BYTES_MAX
from harness.sandboxes.port import OUTPUT_BYTES_MAX, Bind, CommandResult, SandboxCommand
from tests.harness.sandboxes.world import BOUNDS, BYTES_MAX, ROLES, Told, Try, World, order, world
from tests.ordinary import ROOT
from workspaces.home.layout import Home
from workspaces.localfs.permissions import DiskUsage, measure, mend

NAP = f"sleep 6543{os.getpid()}"
"""To be found by, and no other test process's."""

BEGIN_S = (1, 10, 100)
"""In one of which a sandbox begins and prints a line, on however busy a machine."""

LONG_S = 600.0
"""For what ends by another bound than time."""

WRITTEN_BYTES_MAX = 64 * 2**20
"""Past the bound, in each second."""

ORPHANS_S_MAX = 300
RUNS = 200
AT_ONCE = 16


@pytest.fixture(scope="module", params=ROLES)
def found(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    """Of whoever runs the suite."""
    with world("root" if os.geteuid() == 0 else "user") as made:
        yield made


@pytest.fixture
def run(found: World) -> Callable[..., Told]:
    def told(script: str, **bounds: float) -> Told:
        (one,) = found.run([Try(script.replace("NAP", NAP), **bounds)])
        return one

    yield told
    mend(found.own)
    for path in found.own.iterdir():
        subprocess.run(["rm", "-rf", path], check=True)


def alive(mark: str) -> list[str]:
    """Processes of this machine whose command line says so."""
    lines: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            lines.append(f"{place.name} {line}")
    return lines


def children() -> set[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}


def test_the_exit_code_is_that_of_the_program(run: Callable[..., Told]) -> None:
    assert run("exit 7").code == 7
    assert run("kill -9 $$").code == 137
    assert run("kill -15 $$").code == 143
    assert run("nonexistent-program").code == 127


def test_output_and_errors_keep_the_order_in_which_they_were_written(
    run: Callable[..., Told],
) -> None:
    assert run("echo 1; echo 2 >&2; echo 3").text == "1\n2\n3\n"


def test_a_command_over_its_time_limit_is_ended_and_its_output_returned(
    found: World, run: Callable[..., Told]
) -> None:
    for seconds in BEGIN_S:
        told = run("echo partial; echo > begun; sleep 600", seconds=seconds)
        assert told.cause == "time"
        if (found.own / "begun").exists():
            break
    assert told.text == "partial\n"


@pytest.mark.parametrize(
    "script",
    [
        "NAP & NAP & wait",
        "setsid NAP >/dev/null 2>&1 < /dev/null & NAP",
        "(setsid setsid NAP &) ; nohup NAP & NAP",
        "trap '' TERM INT HUP QUIT; while :; do NAP; done",
        "exec >&- 2>&- <&-; NAP",
    ],
)
def test_no_process_of_a_command_survives_its_time_limit(
    run: Callable[..., Told], script: str
) -> None:
    assert run(script, seconds=0.5).cause == "time"
    assert alive(NAP) == []


@pytest.mark.parametrize("script", ["NAP & disown", "setsid NAP & echo started"])
def test_no_background_process_survives_the_end_of_its_command(
    run: Callable[..., Told], script: str
) -> None:
    assert run(f"{script}; exit 0").cause == "exit"
    assert alive(NAP) == []


def test_background_writes_have_stopped_when_the_result_is_returned(
    found: World, run: Callable[..., Told]
) -> None:
    begun = "until [ -s log ]; do sleep 0.02; done"
    run(f"for n in 1 2 3; do (while :; do echo x >> log; done) & done; {begun}", seconds=LONG_S)
    size = (found.own / "log").stat().st_size
    assert size > 0
    time.sleep(0.05)  # a writer that still lived would use it
    assert (found.own / "log").stat().st_size == size


def test_a_fork_bomb_is_ended_by_a_limit(run: Callable[..., Told]) -> None:
    told = run("b() { b | b & }; b; sleep 600", seconds=1)
    assert told.cause in {"time", "processes"}


def test_threads_count_as_processes(run: Callable[..., Told]) -> None:
    told = run(
        "python3 -c 'import threading, time\nfor n in range(500):"
        " threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); print(n)'"
    )
    assert "499" not in told.text


def test_one_process_cannot_exceed_the_memory_limit(run: Callable[..., Told]) -> None:
    told = run("python3 -c 'x = bytearray(10**9)'")
    assert told.code != 0
    assert "MemoryError" in told.text


def test_many_processes_together_cannot_exceed_the_memory_limit(run: Callable[..., Told]) -> None:
    eat = "python3 -c 'x = bytearray(10**8); import time; time.sleep(600)'"
    told = run(" & ".join([eat] * 6) + "; wait", seconds=LONG_S)
    assert told.cause == "memory"


def test_shared_memory_counts_toward_the_memory_limit(run: Callable[..., Told]) -> None:
    told = run(
        "python3 -c 'import mmap, time\nm = mmap.mmap(-1, 10**9)\n"
        "for n in range(0, 10**9, 4096): m[n] = 1\n\ntime.sleep(600)'",
        seconds=LONG_S,
    )
    assert told.cause == "memory"


def test_a_command_over_the_output_limit_is_ended_and_little_output_stored(
    run: Callable[..., Told],
) -> None:
    told = run("yes", seconds=LONG_S)
    assert told.cause == "output"
    assert OUTPUT_BYTES_MAX < told.size < 2 * OUTPUT_BYTES_MAX
    assert len(told.text) <= 64 * 1024


def test_a_command_that_writes_too_large_a_file_is_ended(
    found: World, run: Callable[..., Told]
) -> None:
    told = run("head -c 500000000 /dev/zero > flood; sleep 600", seconds=LONG_S)
    assert told.cause == "disk"
    assert measure(found.own).bytes < 5 * BYTES_MAX


@pytest.mark.parametrize(
    "script",
    [
        "n=0; while :; do n=$((n + 1)); head -c 1000000 /dev/zero > f$n; done",
        "n=0; while :; do n=$((n + 1)); : > f$n; done",
        "mkdir d; cd d; chmod 300 .; n=0; while :; do n=$((n + 1)); head -c 1000000 /dev/zero > f$n; done",
        "mkdir d; exec 3> d/f; chmod 600 d; head -c 60000000 /dev/zero >&3; sleep 600",
        "while :; do mkdir d && cd d; done",
        "while :; do exec {fd}> f; rm f; head -c 10000000 /dev/zero >&$fd; done",
    ],
    ids=["many files", "many names", "hidden", "closed", "deep", "without a name"],
)
def test_a_command_that_creates_too_many_files_is_ended(
    run: Callable[..., Told], script: str
) -> None:
    assert run(script, seconds=LONG_S).cause == "disk"


def test_a_command_over_the_disk_limit_is_ended_before_the_next_scheduled_measurement(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MEASURE_INTERVAL_S", LONG_S)
    write = "while :; do n=$((n + 1)); head -c 2000000 /dev/zero > f$1.$n; done"
    script = f"for i in 1 2 3 4 5 6; do bash -c '{write}' writer $i & done; wait"
    begun = time.monotonic()
    ended, taken = in_tree(here, script, bytes_max=4_000_000, entries_max=10_000)
    seconds = max(1, time.monotonic() - begun)
    assert ended.cause == "disk"
    assert taken.bytes <= 4_000_000 + seconds * WRITTEN_BYTES_MAX


def test_a_command_may_remove_files_from_a_tree_over_its_limit(here: World) -> None:
    with flooded(here, 300):
        script = "rm f1??; sleep 0.5; rm f*; echo done"
        ended, taken = in_tree(here, script, bytes_max=100_000, entries_max=100)
        assert (ended.cause, ended.output.whole) == ("exit", b"done\n")
        assert taken.entries < 100


@pytest.mark.parametrize("script", [": > new", "mkdir -p " + "d/" * 80])
def test_a_command_that_adds_to_a_tree_over_its_limit_is_ended(here: World, script: str) -> None:
    with flooded(here, 300):
        ended, _ = in_tree(here, f"{script}; {NAP}", bytes_max=100_000, entries_max=100)
        assert ended.cause == "disk"


def test_no_file_grows_in_a_tree_over_its_limit(here: World) -> None:
    with flooded(here, 300):
        before = measure(here.own)
        script = "for n in 1 2 3; do head -c 5000000 /dev/zero > f$n; done; echo x > /tmp/x"
        ended, taken = in_tree(here, script, bytes_max=100_000, entries_max=100)
        assert ended.code != 0
        assert taken.bytes <= before.bytes


@contextmanager
def flooded(here: World, files: int) -> Iterator[None]:
    for n in range(files):
        file = here.own / f"f{n}"
        file.write_bytes(b"x" * 1000)
        os.chown(file, here.uid, here.uid)
    try:
        yield
    finally:
        for path in here.own.iterdir():
            subprocess.run(["rm", "-rf", path], check=True)


def in_tree(
    here: World, script: str, *, bytes_max: int, entries_max: int
) -> tuple[CommandResult, DiskUsage]:
    """Run a script where the tree has so much room, and return what the tree takes then."""
    bind = Bind("w", here.own, True, bytes_max, entries_max, mend(here.own))
    order = SandboxCommand(("bash", "-c", script), (bind,), "w", BOUNDS)
    ended = asyncio.run(Bubblewrap(Home(here.home)).run(order))
    taken = measure(here.own)
    for path in here.own.glob("f*.*"):
        path.unlink()
    return ended, taken


def test_unlinked_files_in_the_sandboxs_tmp_do_not_count_as_disk(run: Callable[..., Told]) -> None:
    told = run("exec 3> /tmp/f; rm /tmp/f; head -c 30000000 /dev/zero >&3; sleep 0.4; echo done")
    assert (told.cause, told.text) == ("exit", "done\n")


def test_two_hundred_commands_leave_no_process_and_no_open_file(here: World) -> None:
    """Of every kind: some end well, some fail, some by a bound, and each is the one it was."""
    kinds = (
        ("echo {n}", LONG_S, "exit"),
        ("echo {n}; exit 3", LONG_S, "exit"),
        ("setsid NAP & echo {n}", LONG_S, "exit"),
        ("echo {n}; NAP", 0.3, "time"),
        ("echo {n}; kill -9 -1", LONG_S, "exit"),
    )

    async def all_of_them() -> list[CommandResult]:
        sandbox = Bubblewrap(Home(here.home))
        free = asyncio.Semaphore(AT_ONCE)

        async def one(n: int) -> CommandResult:
            script, seconds, _ = kinds[n % len(kinds)]
            trial = Try(script.format(n=n).replace("NAP", NAP), seconds=seconds)
            async with free:
                return await sandbox.run(order(here.own, here.ref, trial))

        return list(await asyncio.gather(*(one(n) for n in range(RUNS))))

    gc.collect()  # earlier tests leave descriptors that a collection in the middle would close
    before, files = children(), len(list(Path("/proc/self/fd").iterdir()))
    for n, ended in enumerate(asyncio.run(all_of_them())):
        _, _, cause = kinds[n % len(kinds)]
        printed = ended.output.head.splitlines()[:1]
        assert ended.cause == cause
        # whose time is short may not have come to printing it
        assert printed == [b"%d" % n] or (cause == "time" and not printed)
    assert alive(NAP) == []
    assert children() - before == set()
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_cancelling_a_command_ends_all_its_processes(here: World) -> None:

    async def cancelled(after_s: float) -> None:
        sandbox = Bubblewrap(Home(here.home))
        await sandbox.check()
        trial = Try(f"setsid {NAP} & {NAP}", seconds=LONG_S)
        running = asyncio.create_task(sandbox.run(order(here.own, here.ref, trial)))
        await asyncio.sleep(after_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert alive(NAP) == []

    for after_s in (0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.1):
        asyncio.run(cancelled(after_s))


def test_killing_the_server_ends_its_commands(here: World) -> None:
    places = [str(place) for place in (here.home, here.own, here.ref)]
    code = f"""
import asyncio
from pathlib import Path
from tests.harness.sandboxes.world import Try, run_all
script = "setsid {NAP} & echo begun > begun; {NAP}"
asyncio.run(run_all(*map(Path, {places!r}), [Try(script, seconds={LONG_S})]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as server:
        wait_until(lambda: (here.own / "begun").exists())
        server.send_signal(signal.SIGKILL)
    wait_until(lambda: alive(NAP) == [])
    (here.own / "begun").unlink()


def test_the_whole_output_can_be_read_after_the_command(here: World) -> None:

    async def ran(script: str) -> CommandResult:
        return await Bubblewrap(Home(here.home)).run(order(here.own, here.ref, Try(script)))

    output = asyncio.run(ran("seq 1 100000")).output
    assert output.whole == b"".join(b"%d\n" % n for n in range(1, 100_001))
    assert output.whole.startswith(output.head)
    assert output.whole.endswith(output.tail)
    assert output.left_out == len(output.whole) - len(output.head) - len(output.tail)
    assert output.head.endswith(b"\n")
    assert len(asyncio.run(ran("seq 1 1000000")).output.whole) == WHOLE_BYTES_MAX


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ORPHANS_S_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
