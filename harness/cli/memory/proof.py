"""The commands `harness why` and `harness check`: the quotes that prove memories, and whether they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    opened,
    print_json,
    print_table,
    say,
)
from harness.cli.memory.conversations import print_message

if TYPE_CHECKING:
    from harness.memorize.proof import ProofReport

CONTENT_CHARACTERS = 60


def register(into: typer.Typer) -> None:
    into.command("why")(why)
    into.command("check")(check)


def why(
    fact: Annotated[str, typer.Argument(help="Key or id of a memory.", metavar="FACT")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the words of the conversation that prove a memory."""
    from harness.memorize.proof import proof_reports

    with opened(home, as_json=as_json) as harness:
        memorizer = harness.rooms.memorizer
        memory = memorizer.memories.get(fact)
        (report,) = proof_reports(memorizer.archives, [memory])
    if as_json:
        print_json(report.as_json())
        return
    say(memory.fact.value)
    origin = memory.origin
    title = f": {report.archive.about.title}" if report.archive is not None else ""
    say(f"{report.state}, from {origin.provider} {origin.conversation}{title}\n")
    for proof in report.proofs:
        place = proof.moment.message
        where = f"message {place}" if place is not None else f"raw event {proof.moment.event}"
        say(f"{where} ({proof.state}): “{proof.moment.quote}”\n")
        for message in proof.messages:
            print_message(message)
    for reason in report.reasons:
        complain(f"{reason}\n")


def check(home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Check if memories still say what their conversations said.

    The exit code is 1 unless every memory is fresh.
    """
    from harness.memorize.proof import proof_reports

    with opened(home, as_json=as_json) as harness:
        memories, archives = harness.rooms.memorizer.memories, harness.rooms.memorizer.archives
        every = [memories.cited(memory) for memory in memories.all()]
        reports = sorted(proof_reports(archives, every), key=_key)
    if as_json:
        counts = dict.fromkeys(("fresh", "drifted", "orphaned"), 0)
        for report in reports:
            counts[report.state] += 1
        print_json({"memories": [one.as_json() for one in reports], "counts": counts})
    elif reports:
        rows = (
            (
                report.state,
                report.memory.fact.key,
                report.memory.fact.value[:CONTENT_CHARACTERS].replace("\n", " "),
                "; ".join(report.reasons),
            )
            for report in reports
        )
        print_table(("STATE", "KEY", "MEMORY", "WHY"), rows)
    else:
        complain("No memories. `harness memorize` makes one.\n")
    return 0 if all(report.state == "fresh" for report in reports) else 1


def _key(report: ProofReport) -> tuple[bool, str]:
    return report.state == "fresh", report.memory.fact.key
