"""What one deed costs where records and files are shared: requests, items written, and what stays.

python -m benchmarks.growth [--idle SECONDS]

Records lie in a DynamoDB of which each request is counted on the wire, files in S3. All counts are of one
deed, and they do not depend on the speed of the machine. Then a server does nothing, for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from harness import Harness
from harness.messages.event import Event
from harness.messages.progress import silent
from tests.dynamodb_server import REGION, Wire, make_table, serving_dynamodb, wire_to
from tests.harness.cli.terminal import COMMAND, Terminal
from tests.servers import BUCKET, seaweedfs_in
from tests.workspaces.conftest import CALLER
from workspaces.ids import new_id
from workspaces.storage.timing import CALLS

TABLE = "records"
ADMIN_KEY = "wh_admin_" + 32 * "0"
IDLE_S = 65.0
WORKSPACES_MORE = 10
SETTLED_S = 75.0
"""A server that has just started looks at everything, and its jobs follow within a minute."""

_COUNT = re.compile(r"^harness_store_seconds_count\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Counted:
    """What was asked of the two stores."""

    s3: Counter[str] = field(default_factory=Counter[str])

    def take(self, store: str, operation: str, seconds: float, is_answered: bool) -> None:
        del seconds, is_answered
        if store == "s3":
            self.s3[operation] += 1


@dataclass
class Meter:
    """Counts a deed at a time."""

    wire: Wire
    counted: Counted
    client: Any

    def of(self, name: str, deed: Callable[[], object]) -> None:
        self.wire.operations.clear()
        self.wire.items_written = 0
        self.counted.s3.clear()
        items, size = self.stored()
        deed()
        asked, written, s3 = Counter(self.wire.operations), self.wire.items_written, self.counted.s3
        more, more_size = self.stored()
        reads = asked["GetItem"] + asked["Query"]
        writes = sum(asked.values()) - reads
        objects = ", ".join(f"{number} {kind}" for kind, number in sorted(s3.items())) or "none"
        print(
            f"{name:<58} records: {reads:3} reads, {writes:2} writes of {written:3} items, "
            f"{more - items:+4} items ({more_size - size:+7,} bytes) stay   S3: {objects}",
            flush=True,
        )

    def stored(self) -> tuple[int, int]:
        """Return how many items the table has, and the bytes of their keys and values."""
        items = [one for page in self._pages() for one in page["Items"]]
        names = ("partition", "sort", "value")
        return len(items), sum(len(one[name]["S"]) for one in items for name in names)

    def _pages(self) -> Iterator[Any]:
        return self.client.get_paginator("scan").paginate(TableName=TABLE)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--idle", type=float, default=IDLE_S)
    idle_s = parser.parse_args(arguments).idle
    with tempfile.TemporaryDirectory(prefix="growth-") as name, serving_dynamodb() as direct:
        directory = Path(name)
        directory.chmod(0o711)
        (directory / "weed").mkdir()
        make_table(direct, TABLE)
        with seaweedfs_in(directory / "weed") as s3, wire_to(direct) as (wire, url):
            variables = {
                **s3.environment(),
                "AWS_ENDPOINT_URL_DYNAMODB": url,
                "AWS_DEFAULT_REGION": REGION,
                "HARNESS_RECORDS": f"dynamodb:{TABLE}",
                "HARNESS_S3": f"s3://{BUCKET}/growth",
                "HARNESS_ADMIN_KEY": ADMIN_KEY,
            }
            os.environ.update(variables)
            os.environ.pop("ANTHROPIC_API_KEY", None)
            counted = Counted()
            with CALLS.including(counted.take):
                _deeds(directory, Meter(wire, counted, _client(direct)))
            _idle(Terminal(directory / "home", variables), idle_s)


def _client(url: str) -> Any:
    import boto3.session

    session = boto3.session.Session("test", "test", region_name=REGION)
    return session.client("dynamodb", endpoint_url=url)


def _deeds(directory: Path, meter: Meter) -> None:
    """Do each thing twice, and show the second: the first one also makes what is kept."""
    with Harness.open(directory / "home") as harness:
        rooms, said = harness.rooms, iter(range(10**6))
        notes = harness.workspaces.open_or_create("notes")

        def turn(text: str, key: str) -> Callable[[], object]:
            return lambda: harness.run(text, conversation=key)

        def over_http(text: str, key: str) -> Callable[[], object]:
            """As a server does it: accepted first, and then answered."""

            async def work() -> None:
                agent = rooms.agents.get("assistant")
                event = Event.said(new_id("evt"), key, text)
                accepted = await rooms.dispatcher.enqueue(agent, event)
                await rooms.dispatcher.wait(accepted, silent)

            return lambda: asyncio.run(work())

        def write() -> None:
            text = f"# Note {next(said)}\n\n- tea is green\n".encode()
            notes.decided.write(f"notes/{next(said)}.md", text, by=CALLER)

        turn("Hello.", "c1")()
        harness.run_jobs()
        _synced(harness)
        meter.of("turn: a question", turn("What do you know?", "c1"))
        meter.of("turn: a question, accepted first as over HTTP", over_http("And tea?", "c1"))
        meter.of("turn: a question, in a new conversation", turn("What do you know?", "c2"))
        meter.of(
            "turn: one tool call that writes a file", turn("Remember that tea is green.", "c1")
        )
        meter.of("the push of that file and its revision", lambda: _synced(harness))
        write()
        meter.of("file written over an API", write)
        meter.of("the push of its revision", lambda: _synced(harness))
        meter.of("file read over an API", lambda: notes.decided.read("MEMORY.md"))
        meter.of("recall", lambda: harness.workspaces.get("notes").recall.find("green tea"))
        meter.of("sync of one workspace, nothing changed", lambda: _synced(harness))
        meter.of("user", lambda: rooms.users.add({"name": "Ada"}))
        meter.of("key", lambda: rooms.keys.create())
        meter.of("workspace", lambda: harness.workspaces.create("more"))
        meter.of("agent", lambda: harness.agents.create("more"))
        for number in range(WORKSPACES_MORE):
            harness.workspaces.create(f"more-{number}")


def _synced(harness: Harness) -> None:
    harness.workspaces.sync("notes").run()


def _idle(home: Terminal, seconds: float) -> None:
    """Show what a server asks for while nobody uses it."""
    with tempfile.TemporaryFile("w") as log:
        process = subprocess.Popen(
            [*COMMAND, "up", "--port", "0", "--no-token"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=home.environment(),
            text=True,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rstrip("/")
        time.sleep(SETTLED_S)
        before, begin = _calls(url), time.monotonic()
        time.sleep(seconds)
        calls, minutes = _calls(url) - before, (time.monotonic() - begin) / 60
    finally:
        process.kill()
        process.communicate(timeout=SETTLED_S)
    print(f"\na server that nobody uses, {1 + WORKSPACES_MORE} shared workspaces, in a minute:")
    for (store, operation), number in sorted(calls.items()):
        print(f"  {store:<8} {operation:<8} {number / minutes:6.1f}")


def _calls(url: str) -> Counter[tuple[str, str]]:
    """Return how often the server has called its stores, from its figures."""
    asked = Request(f"{url}/metrics", headers={"Authorization": f"Bearer {ADMIN_KEY}"})
    with urlopen(asked) as answer:
        text = answer.read().decode()
    found: Counter[tuple[str, str]] = Counter()
    for labels, number in _COUNT.findall(text):
        told = dict(_LABEL.findall(labels))
        found[told["store"], told["operation"]] += round(float(number))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
