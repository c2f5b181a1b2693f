"""The command `harness explain`: the prompts that a model saw, and the memory in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    notes,
    opened,
    out,
    print_json,
    print_table,
    visible,
)
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness.context.receipt import Receipt, ShownPart
    from harness.turns.explanation import ExplainedTurn, Explanation

REVISION_DIGITS = 12


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    conversation: ConversationArgument,
    turn: Annotated[
        str | None, typer.Argument(help="The start of a turn's id; default: all turns.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the text that the model saw at each step.")
    ] = False,
    find: Annotated[
        str | None, typer.Option("--find", help="When this text entered and left memory.")
    ] = None,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show exactly what the model saw at each step.

    The prompt is listed part by part, with revision and size. A new revision of memory is named at the step
    where the model first saw it, with its changes. --find searches the prompts for a text:

    \b
    harness explain c1 --find "likes tea"
    """
    with opened(home, as_json=as_json) as harness:
        explanation = harness.explain(harness.conversation(conversation, agent=agent))
        if find is not None:
            _print_sightings(explanation, find, as_json=as_json)
        elif as_json:
            print_json(explanation.as_json(turn, with_text=text))
        else:
            turns = explanation.turns(turn)
            for one in turns:
                _print_turn(explanation, one, with_text=text)
            if not turns:
                notes().print("This home has sent no request to a model for this conversation.")


def _print_sightings(explanation: Explanation, text: str, *, as_json: bool) -> None:
    sightings = explanation.sightings(text)
    if as_json:
        print_json({"sightings": [one.as_json() for one in sightings]})
        return
    rows = (
        (
            one.receipt.at[:19],
            one.receipt.turn_id,
            "entered" if one.is_shown else "left",
            one.source,
            (one.revision or "")[:REVISION_DIGITS],
        )
        for one in sightings
    )
    print_table(("shown at (UTC)", "turn", "", "part", "revision"), rows)


def _print_turn(explanation: Explanation, turn: ExplainedTurn, *, with_text: bool) -> None:
    console = out()
    console.print(
        f"[bold]{turn.id}[/] · {turn.receipts[0].at[:19]} · {escaped(turn.receipts[0].model)}"
    )
    before: tuple[ShownPart, ...] = ()
    steps = count(1)
    for receipt in turn.receipts:
        entries = f"entries {receipt.first}–{receipt.last}"
        is_step = receipt.purpose == "turn"
        step = f"step {next(steps)}" if is_step else "before the summary"
        words = [step, entries, _snapshot(explanation, receipt), *_length(explanation, receipt)]
        words += [receipt.digest] if receipt.is_redacted else []
        console.print(f"  {' · '.join(words)}", markup=False)
        if with_text:
            console.print(visible(explanation.text(receipt)) + "\n", markup=False)
        elif receipt.parts != before:
            for part in receipt.parts:
                console.print(f"    {_part(part)}", markup=False)
        before = receipt.parts
    for entrance in turn.entered:
        name = f"{entrance.source} {entrance.revision[:REVISION_DIGITS]}"
        console.print(f"  [green]entered[/] {escaped(name)}")
        for revision in explanation.revisions(entrance):
            change = f"{revision.at[:19]} {revision.author}: {revision.subject}"
            console.print(f"    {revision.id[:REVISION_DIGITS]} {visible(change)}", markup=False)


def _snapshot(explanation: Explanation, receipt: Receipt) -> str:
    count = receipt.deltas
    changes = f", {count} {'change' if count == 1 else 'changes'} since" if count else ""
    return f"snapshot {receipt.snapshot} ({explanation.reason(receipt)}){changes}"


def _length(explanation: Explanation, receipt: Receipt) -> Iterator[str]:
    """Yield the length in characters, and in tokens: estimated, and counted by the provider."""
    if receipt.length is None:
        return
    yield f"{receipt.length.characters:,} characters"
    counted = explanation.counted(receipt)
    about = f"about {receipt.length.tokens:,} tokens"
    yield about if counted is None else f"{about}, counted {counted:,}"


def _part(part: ShownPart) -> str:
    from harness.context.receipt import DECISION

    words = [f"{part.source:<24}", f"{part.bytes:>8,} bytes"]
    if part.revision:
        words.append(part.revision[:REVISION_DIGITS])
    if part.entry is not None:
        is_slot = part.source.startswith(DECISION)
        words.append(f"{'in' if is_slot else 'changed, at'} entry {part.entry}")
    if part.lines_left_out:
        words.append(f"{part.lines_left_out:,} lines left out")
    if part.unavailable:
        words.append(f"unavailable: {visible(part.unavailable)}")
    return "  ".join(words)
