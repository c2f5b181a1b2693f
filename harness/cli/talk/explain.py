"""`harness explain`: what a model was shown, and since when."""

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
        str | None, typer.Argument(help="A turn, by the beginning of its id; else all of them.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="The words themselves, as each step was shown them.")
    ] = False,
    find: Annotated[
        str | None, typer.Option("--find", help="When this text entered and left memory.")
    ] = None,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show exactly what the model saw at each step.

    A revision of memory is named at the step where it came in, with the changes it brought along:

        harness explain c1 --find "likes tea"
    """
    with opened(home, as_json=as_json) as harness:
        told = harness.explain(harness.conversation(conversation, agent=agent))
        if find is not None:
            _print_sightings(told, find, as_json=as_json)
        elif as_json:
            print_json(told.as_json(turn, with_text=text))
        else:
            turns = told.turns(turn)
            for one in turns:
                _print_turn(told, one, with_text=text)
            if not turns:
                notes().print("No model has been asked anything in this conversation here.")


def _print_sightings(told: Explanation, words: str, *, as_json: bool) -> None:
    found = told.sightings(words)
    if as_json:
        print_json({"sightings": [one.as_json() for one in found]})
        return
    rows = (
        (
            one.receipt.at[:19],
            one.receipt.turn_id,
            "came" if one.is_shown else "went",
            one.source,
            (one.revision or "")[:REVISION_DIGITS],
        )
        for one in found
    )
    print_table(("shown at (UTC)", "turn", "", "part", "revision"), rows)


def _print_turn(told: Explanation, turn: ExplainedTurn, *, with_text: bool) -> None:
    console = out()
    console.print(
        f"[bold]{turn.id}[/] · {turn.receipts[0].at[:19]} · {escaped(turn.receipts[0].model)}"
    )
    before: tuple[ShownPart, ...] = ()
    steps = count(1)
    for receipt in turn.receipts:
        entries = f"entries {receipt.first}–{receipt.last}"
        is_step = receipt.purpose == "turn"
        step = f"step {next(steps)}" if is_step else "to write down what must last"
        words = [step, entries, _snapshot(told, receipt), *_length(told, receipt)]
        console.print(f"  {' · '.join(words)}", markup=False)
        if with_text:
            console.print(visible(told.text(receipt)) + "\n", markup=False)
        elif receipt.parts != before:
            for part in receipt.parts:
                console.print(f"    {_part(part)}", markup=False)
        before = receipt.parts
    for entrance in turn.entered:
        name = f"{entrance.source} {entrance.revision[:REVISION_DIGITS]}"
        console.print(f"  [green]came in[/] {escaped(name)}")
        for revision in told.revisions(entrance):
            told_by = f"{revision.at[:19]} {revision.author}: {revision.subject}"
            console.print(f"    {revision.id[:REVISION_DIGITS]} {visible(told_by)}", markup=False)


def _snapshot(told: Explanation, receipt: Receipt) -> str:
    told_since = receipt.deltas
    changes = f"{told_since} {'change' if told_since == 1 else 'changes'}"
    since = f", {changes} told since" if told_since else ""
    return f"snapshot {receipt.snapshot} ({told.reason(receipt)}){since}"


def _length(told: Explanation, receipt: Receipt) -> Iterator[str]:
    """In characters, and in tokens as they were estimated and as the provider has counted."""
    if receipt.length is None:
        return
    yield f"{receipt.length.characters:,} characters"
    counted = told.counted(receipt)
    about = f"about {receipt.length.tokens:,} tokens"
    yield about if counted is None else f"{about}, counted {counted:,}"


def _part(part: ShownPart) -> str:
    words = [f"{part.source:<24}", f"{part.bytes:>8,} bytes"]
    if part.revision:
        words.append(part.revision[:REVISION_DIGITS])
    if part.entry is not None:
        words.append(f"changed, beside entry {part.entry}")
    if part.lines_left_out:
        words.append(f"{part.lines_left_out:,} lines left out")
    if part.unavailable:
        words.append(f"unavailable: {visible(part.unavailable)}")
    return "  ".join(words)
