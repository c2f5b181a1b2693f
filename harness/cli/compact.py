"""`harness compact`: the beginning of a conversation summarised for the model, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from harness.cli.conversation import AgentOption, Reference
from harness.cli.face import HomeOption, JsonOption, notes, opened, print_json
from harness.cli.telling import Telling

if TYPE_CHECKING:
    from harness.compaction import Compacted


def register(app: typer.Typer) -> None:
    app.command()(compact)


def compact(
    conversation: Reference,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Summarise the beginning of a conversation for the model, however short it is.

    The newest two turns stay as they are, and everything that was said stays in `harness conversation show`.
    An agent does so by itself with `session.compaction.enabled`, when a conversation grows too long.
    """
    from harness.progress import silent

    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        done = harness.compact(found, silent if as_json else Telling().show)
    if as_json:
        print_json({"conversation": found.id, **as_told(done)})
    else:
        tell(found.key, done)
    return 1 if any(remark.kind == "summary_failed" for remark in done.remarks) else 0


def tell(key: str, done: Compacted) -> None:
    for remark in done.remarks:
        if remark.kind != "compacted":
            notes().print(remark.detail, markup=False)
    summary = done.window.summary
    if done.is_done and summary is not None:
        size = f"{len(summary.message.text):,} characters"
        typer.echo(f"compacted: {key}: entries up to {summary.covers} are a summary of {size}")


def as_told(done: Compacted) -> dict[str, object]:
    session = done.window.session
    return {
        "compacted": done.is_done,
        "windowFrom": session.window_from,
        "summary": session.summary,
        "context": [remark.as_json() for remark in done.remarks],
    }
