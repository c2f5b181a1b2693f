"""What ten thousand facts cost: their list over HTTP, a write of one among them, and their part of a prompt.

python -m benchmarks.facts
"""

from __future__ import annotations

import json
import tempfile
from itertools import count
from pathlib import Path

from benchmarks.ratio import compare, report
from harness.memory.facts.fact import canonical_path
from harness.memory.facts.fact_file import write_fact
from harness.memory.facts.facts import Facts
from harness.memory.facts.prompt_facts import MountedFacts, PromptFacts
from harness.presentation.fact_json import fact_json
from tests.harness.web.site import Caller, Site
from workspaces.workspace.workspace import Workspace

FACTS = 9_990
"""A workspace holds 10 000 files, its own among them."""
FEW = 30
CHARACTERS = 60_000
"""Of a prompt's memory."""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Site.open(Path(directory) / "home") as site:
        key = site.harness.rooms.keys.create()[1]
        caller = Caller(site.client, key)
        many, few = (
            _filled(site, name, number) for name, number in (("many", FACTS), ("few", FEW))
        )
        _list(site, caller, many)
        _writes(site.harness.facts.of_workspace("few"), few)
        _writes(site.harness.facts.of_workspace("many"), many)
        _prompt(site, many, few)


def _filled(site: Site, name: str, number: int) -> Workspace:
    workspace = site.harness.workspaces.create(name)
    facts = site.harness.facts.of_workspace(name)
    (workspace.root / "facts").mkdir()
    for n in range(number):
        key, value = f"fact {n}", f"The thing with number {n} lies on shelf {n % 97}."
        data = write_fact(None, key=key, value=value, pinned=n % 50 == 0, importance=0)
        (workspace.root / canonical_path(key)).write_bytes(data)
    workspace.edits.commit()
    assert len(facts.list()) == number
    return workspace


def _list(site: Site, caller: Caller, workspace: Workspace) -> None:
    path = f"/api/workspaces/{workspace.record.id}/memories"
    facts = site.harness.facts.of_workspace("many")
    rows = facts.list()

    def over_http() -> None:
        answer = caller("GET", path)
        assert answer.status_code == 200
        assert len(answer.content) > FACTS * 100

    def serialised() -> None:
        assert json.dumps([fact_json(row, facts.scope) for row in rows]).encode()

    over_http()
    ours, peer = compare(over_http, serialised, rounds=11)
    report(f"list of {FACTS:,} facts over HTTP: serialising them", ours, peer, at_most=3)


def _writes(facts: Facts, workspace: Workspace) -> None:
    number = count()
    path = canonical_path("fact 7")

    def upsert() -> None:
        facts.put("fact 7", f"Lies on shelf {next(number)}.")

    def written() -> None:
        text = f"Lies on shelf {next(number)}."
        workspace.write(
            path, write_fact(None, key="fact 7", value=text, pinned=False, importance=0)
        )

    upsert()
    ours, peer = compare(upsert, written, rounds=60)
    size = len(facts.list())
    report(f"upsert among {size:,} facts: the same file through the door", ours, peer, at_most=1.5)


def _prompt(site: Site, many: Workspace, few: Workspace) -> None:
    indexes = site.harness.facts.indexes

    def part(workspace: Workspace) -> None:
        (memory,) = PromptFacts(indexes, (), [MountedFacts("w", workspace)]).read(CHARACTERS)
        assert len(memory.rows) == FEW

    part(many)
    part(few)
    ours, peer = compare(lambda: part(many), lambda: part(few), rounds=60)
    report(f"facts of a prompt, of {FACTS:,}: of {FEW}", ours, peer, at_most=2)


if __name__ == "__main__":
    main()
