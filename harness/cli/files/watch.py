"""The command `harness watch`: commit edits by hand as they are saved."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Annotated

import typer

from harness.cli.console.console import HomeOption, notes, opened, put


def register(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    workspaces: Annotated[
        list[str] | None, typer.Argument(help="Names or ids of workspaces; default: all.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Commit edits by hand as they are saved, until Ctrl-C.

    A revision follows a moment after a file was saved. Shared workspaces are kept in sync with S3. Without
    `watch`, edits by hand become revisions at the next turn, command or write.
    """
    from harness.sync.background_sync import BackgroundSync
    from harness.sync.background_watch import BackgroundWatch, all_of
    from harness.sync.local_copies import LocalCopies
    from workspaces.workspace.watch import Saved, WatchEvent

    def show(event: WatchEvent) -> None:
        if isinstance(event, Saved):
            made = event.revision
            name = event.workspace.record.name
            put(f"{made.at[11:19]}  {name}  {made.id[:10]}  {made.subject}\n")
            sys.stdout.flush()
            return
        about = f"{event.workspace.record.name}: " if event.workspace else ""
        notes().print(f"{about}{event.reason}", markup=False)
        if event.remedy:
            notes().print(f"  → {event.remedy}", markup=False)

    with opened(home) as harness:
        only = [harness.workspaces.get(name) for name in workspaces or ()]
        names = ", ".join(workspaces) if workspaces else "all workspaces"
        notes().print(f"watching {names}; Ctrl-C ends", markup=False)
        trees, clock = harness.settings.home.trees, harness.rooms.clock
        copies = LocalCopies(harness.workspaces, harness.agents)
        registry = harness.following
        follow = registry.sync_if_reachable if registry else lambda: None
        syncing = BackgroundSync(lambda: [copies], follow=follow)

        def on_event(event: WatchEvent) -> None:
            show(event)
            syncing.hear(event)

        watching = BackgroundWatch(trees, lambda: only or all_of(copies), clock, on_event)
        asyncio.run(_both(watching.run(), syncing.run()))


async def _both(*tasks: Coroutine[object, object, None]) -> None:
    """Run the tasks until the user interrupts them. An error in one ends the other."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task)
