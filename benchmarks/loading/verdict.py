"""Whether servers that were started anew hold what the earlier ones acknowledged: each thing, and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from benchmarks.loading.clients import HOT, Promises, Wire

TOLD_MAX = 5


@dataclass
class Verdict:
    """What is missing, and what is there twice."""

    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])

    def expect_once(self, what: str, found: int) -> None:
        if found == 0:
            self.lost.append(what)
        elif found > 1:
            self.doubled.append(f"{what}: {found} times")

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled)

    def lines(self) -> Iterator[str]:
        yield f"  lost {len(self.lost)}, doubled {len(self.doubled)}"
        for name, found in (("lost", self.lost), ("doubled", self.doubled)):
            yield from (f"    {name}: {one}" for one in found[:TOLD_MAX])


def check(promises: Promises, wire: Wire, urls: list[str], shared: str) -> Verdict:
    """Compare the promises with what each of these servers answers."""
    verdict = Verdict()
    _check_events(promises, wire, verdict)
    _check_facts(promises, wire, verdict)
    for url in urls:
        _check_files(promises, wire, verdict, url)
        _check_hot_file(promises, wire, verdict, url, shared)
    _check_revisions(promises, wire, verdict, urls[0])
    return verdict


def _check_events(promises: Promises, wire: Wire, verdict: Verdict) -> None:
    """Each event has one outcome, and stands in its conversation once, with one answer."""
    taken: Counter[str] = Counter()
    for conversation in {said.conversation for said in promises.events.values()}:
        entries = _all(wire, f"/v1/conversations/{conversation}/entries?limit=200", "entries")
        taken.update(one["event"] for one in entries if one.get("event"))
        numbers = [one["entry"] for one in entries]
        if numbers != [*range(1, len(numbers) + 1)]:
            verdict.lost.append(f"entries of {conversation}: {numbers}")
    for event, said in promises.events.items():
        path = f"/v1/agents/{said.agent}/events/{quote(event)}"
        answer = wire.until_answered("GET", path)
        is_done = answer.status == 200 and answer.json["status"] in {"done", "failed"}
        verdict.expect_once(f"outcome of event {event}", int(is_done))
        verdict.expect_once(f"event {event}", taken[event])


def _check_facts(promises: Promises, wire: Wire, verdict: Verdict) -> None:
    """Each fact that an answered turn was to remember stands in the memory once."""
    memories: dict[str, list[str]] = {}
    for said in promises.events.values():
        if said.fact is None:
            continue
        if said.workspace not in memories:
            path = f"/v1/workspaces/{said.workspace}/files/MEMORY.md"
            memories[said.workspace] = wire.until_answered("GET", path).body.decode().splitlines()
        found = memories[said.workspace].count(f"- {said.fact}")
        # A tool that ran in a killed server may have written the fact or not.
        verdict.expect_once(f"fact {said.fact}", found if said.is_remembered else max(found, 1))


def _check_files(promises: Promises, wire: Wire, verdict: Verdict, url: str) -> None:
    for (workspace, path), content in promises.files.items():
        answer = wire.until_answered("GET", f"/v1/workspaces/{workspace}/files/{path}", url=url)
        is_there = answer.status == 200 and answer.body == content
        verdict.expect_once(f"file {path} of {workspace} at {url}", int(is_there))


def _check_hot_file(
    promises: Promises, wire: Wire, verdict: Verdict, url: str, shared: str
) -> None:
    answer = wire.until_answered("GET", f"/v1/workspaces/{shared}/files/{HOT}", url=url)
    found = Counter(answer.body.decode().splitlines(keepends=True))
    for line in promises.lines:
        verdict.expect_once(f"line {line.strip()!r} at {url}", found[line])


def _check_revisions(promises: Promises, wire: Wire, verdict: Verdict, url: str) -> None:
    """A file that was written once has one revision: none is lost, and no write happened twice."""
    for workspace, path in promises.files:
        listed = wire.until_answered("GET", f"/v1/workspaces/{workspace}/log?path={path}", url=url)
        verdict.expect_once(f"revision of {path} of {workspace}", len(listed.json["revisions"]))


def _all(wire: Wire, path: str, name: str) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        page = wire.until_answered("GET", f"{path}{cursor}").json
        found += page[name]
        if page["nextCursor"] is None:
            return found
        cursor = f"&cursor={page['nextCursor']}"
