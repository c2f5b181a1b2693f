"""Several servers under load, of which one is killed every few seconds: how fast, and what was lost.

python -m benchmarks.load [--seconds 20] [--servers 4] [--clients 8] [--kill-every 5] [--on sqlite,dynamodb]
                          [--ministack PROGRAM] [--seed N]

The load runs twice on each store: in quiet, and while servers are killed. Then all servers are started anew,
and everything that was acknowledged must be there once. The exit code is 1 if anything is lost or doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import quantiles
from typing import cast

from benchmarks.loading.clients import GIVEN_UP, HOT, Client, Promises, Wire
from benchmarks.loading.fleet import Fleet
from benchmarks.loading.places import PLACES, Place, Stores
from benchmarks.loading.verdict import TOLD_MAX, Verdict, check

SECONDS = 20.0
"""Of each of the two runs on a store, in which all clients work."""
SERVERS = 4
CLIENTS = 8
KILL_EVERY_S = 5.0
LOG_CHARACTERS_MAX = 160


def main(arguments: Sequence[str] = ()) -> int:
    options = _options(arguments)
    seed = options.seed or random.randrange(2**32)
    print(f"seed {seed}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    is_clean = True
    for name in options.on.split(","):
        stores = Stores(options.ministack)
        with tempfile.TemporaryDirectory(prefix="load-") as directory:
            place = cast(
                "AbstractContextManager[Place]",
                PLACES[name](Path(directory), options.servers, stores),
            )
            Path(directory).chmod(0o711)  # as root, commands run as another user
            log = Path(directory) / "servers.log"
            with place as opened:
                is_clean &= _measure(name, opened, log, options, random.Random(seed))
    return 0 if is_clean else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--servers", type=int, default=SERVERS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--kill-every", type=float, default=KILL_EVERY_S)
    parser.add_argument("--on", default="sqlite,dynamodb", help=", ".join(PLACES))
    parser.add_argument("--ministack", help="the program, in an environment of its own")
    parser.add_argument("--seed", type=int)
    return parser.parse_args(arguments)


def _measure(
    name: str, place: Place, log: Path, options: argparse.Namespace, chance: random.Random
) -> bool:
    """Run the load on one store. Return True if everything is there once."""
    print(f"\n{name}: {options.servers} servers, {options.clients} clients", flush=True)
    promises, shared = Promises(), ""
    clients = [
        Client(number, promises, random.Random(chance.random()))
        for number in range(options.clients)
    ]
    for is_quiet in (True, False):
        promises.seconds.clear()
        with Fleet(place, log).running() as fleet:
            for client in clients:
                client.wire = Wire(fleet.urls, place.key, chance)
            shared = shared or _settle(clients)
            if is_quiet:
                taken_s = _run(fleet, clients, options.seconds)
                _show("in quiet", promises, clients, taken_s)
                continue
            with fleet.dying(options.kill_every, chance):
                taken_s = _run(fleet, clients, options.seconds)
            what = f"a server killed every {options.kill_every:g} s, {fleet.deaths} deaths"
            _show(what, promises, clients, taken_s)
    with Fleet(place, log).running() as fleet:
        verdict = check(promises, Wire(fleet.urls, place.key, chance), fleet.urls(), shared)
    return _tell(promises, verdict, log)


def _settle(clients: Sequence[Client]) -> str:
    """Make what the clients need, and return the workspace that all of them write."""
    first = clients[0]
    shared = first.made("/accounts/me/workspaces", {"name": "shared"})
    first.expect(first.wire.until_answered("PUT", first.file(shared, HOT), b"# Hot\n"), 201)
    for client in clients:
        client.settle(shared)
    return shared


def _run(fleet: Fleet, clients: Sequence[Client], seconds: float) -> tuple[float, float]:
    """Let all clients work, and return the seconds by the clock and by the servers' processors."""
    begin, processor_s = time.monotonic(), fleet.taken_s()
    with ThreadPoolExecutor(len(clients)) as pool:
        for lived in [pool.submit(client.live, begin + seconds) for client in clients]:
            lived.result()
    return time.monotonic() - begin, fleet.taken_s() - processor_s


def _show(
    what: str, promises: Promises, clients: Sequence[Client], taken_s: tuple[float, float]
) -> None:
    by_clock, by_processor = taken_s
    count = sum(map(len, promises.seconds.values()))
    print(f"  {what}: {count} operations in {by_clock:.1f} s, {count / by_clock:.1f} a second")
    print(f"    {count / by_processor:.1f} for each second of a core of the servers")
    unanswered = sum((client.wire.unanswered for client in clients), Counter[str]())
    for reason, times in unanswered.most_common(TOLD_MAX):
        print(f"    {times} times sent again: {reason}")
    for name, seconds in sorted(promises.seconds.items()):
        cuts = quantiles(seconds, n=100) if len(seconds) > 1 else [*seconds] * 99
        p50, p95, p99 = (1000 * cuts[at - 1] for at in (50, 95, 99))
        print(f"    {name:<7} {len(seconds):6}   p50 {p50:6.0f}  p95 {p95:6.0f}  p99 {p99:6.0f} ms")
    sys.stdout.flush()


def _tell(promises: Promises, verdict: Verdict, log: Path) -> bool:
    print(
        f"  acknowledged: {len(promises.events)} events, {len(promises.files)} files, "
        f"{len(promises.lines)} lines of one file "
        f"({promises.counts['stale']} stale versions); {promises.counts['interrupted']} tools cut off, "
        f"{promises.counts[GIVEN_UP]} turns given up"
    )
    print("\n".join(verdict.lines()))
    for failure in promises.failures[:TOLD_MAX]:
        print(f"    failed: {failure}")
    for event, times in _warnings(log).most_common(TOLD_MAX):
        print(f"    {times} times in the log of the servers: {event}")
    sys.stdout.flush()
    return verdict.is_clean and not promises.failures


def _warnings(log: Path) -> Counter[str]:
    """Return what the servers warned of, and how often."""
    found: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            found[line[:LOG_CHARACTERS_MAX]] += 1
            continue
        if told["level"] != "info":
            why = told.get("reason") or told.get("error") or told.get("message") or ""
            found[f"{told['level']} {told['event']} {why}"[:LOG_CHARACTERS_MAX]] += 1
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
