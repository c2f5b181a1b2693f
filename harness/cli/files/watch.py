"""`harness watch`: what is saved by hand becomes a revision at once."""

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
        list[str] | None, typer.Argument(help="Workspaces, by name or id; else all of them.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Make a revision of whatever is saved by hand. A moment later; and keep shared workspaces the same
    as in S3. Ctrl-C ends.

    Without it edits by hand become revisions when somebody looks next: a turn, a command, a writer.
    """
    from harness.sync.background_sync import BackgroundSync
    from harness.sync.background_watch import BackgroundWatch, all_of
    from harness.sync.local_copies import LocalCopies
    from workspaces.workspace.watch import Saved, WatchEvent

    def tell(news: WatchEvent) -> None:
        if isinstance(news, Saved):
            told = news.revision
            line = f"{told.at[11:19]}  {news.workspace.record.name}  {told.id[:10]}  {told.subject}"
            put(f"{line}\n")
            sys.stdout.flush()
            return
        about = f"{news.workspace.record.name}: " if news.workspace else ""
        notes().print(f"{about}{news.reason}", markup=False)
        if news.remedy:
            notes().print(f"  → {news.remedy}", markup=False)

    with opened(home) as harness:
        only = [harness.workspaces.get(name) for name in workspaces or ()]
        told = ", ".join(workspaces) if workspaces else "all workspaces"
        notes().print(f"watching {told}; Ctrl-C ends", markup=False)
        trees, clock = harness.settings.home.trees, harness.rooms.clock
        copies = LocalCopies(harness.workspaces, harness.agents)
        following = harness.following
        follow = following.sync_if_reachable if following else lambda: None
        syncing = BackgroundSync(lambda: [copies], follow=follow)

        def heard(news: WatchEvent) -> None:
            tell(news)
            syncing.hear(news)

        watching = BackgroundWatch(trees, lambda: only or all_of(copies), clock, heard)
        asyncio.run(_both(watching.run(), syncing.run()))


async def _both(*lives: Coroutine[object, object, None]) -> None:
    """For as long as nobody interrupts; what breaks one ends the other."""
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life)
