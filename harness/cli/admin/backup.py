"""The command `harness backup`: save a home elsewhere, check what was saved, and bring it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    Shown,
    complain,
    notes,
    print_json,
    say,
)
from workspaces.file import size_text

app = typer.Typer(help="Save this home elsewhere, check it, bring it back.", no_args_is_help=True)

_PLACE = "A directory, or s3://BUCKET/PREFIX."

SnapshotOption = Annotated[
    str | None,
    typer.Option("--snapshot", metavar="STAMP", help="A snapshot's name; default: the newest."),
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="backup")


@app.command()
def create(
    destination: Annotated[str, typer.Argument(help=_PLACE)],
    files_only: Annotated[
        bool,
        typer.Option("--files-only", help="Leave out the records: users, keys, conversations."),
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Store every file anew, after `verify` found damage."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Back up this home while it is in use.

    The same destination can be used again and again: only what changed since is read and stored. A backup
    that is interrupted is completed by the next one. It holds all memories and keys, so protect it like the
    home. The exit code is 1 if a workspace is damaged; everything else is then saved all the same.
    """
    from harness.backup.create import LEFT_OUT
    from harness.backup.create import create as make

    Shown.as_json = as_json
    with _bytes_shown() as on_bytes:
        created = make(
            home or Shown.home, destination, files_only=files_only, again=again, on_bytes=on_bytes
        )
    snapshot = created.snapshot
    if as_json:
        print_json(
            {
                "snapshot": snapshot.stamp,
                "files": snapshot.files,
                "bytes": snapshot.size,
                "stored": created.stored,
                "records": snapshot.records,
                "leftOut": list(snapshot.left_out),
                "troubles": created.troubles,
            }
        )
    else:
        say(
            f"backed up: {snapshot.files:,} files, {size_text(snapshot.size)}, "
            f"of which {size_text(created.stored)} were new"
        )
        say(f"  snapshot: {snapshot.stamp}")
        say(f"  left out: {', '.join(LEFT_OUT)}")
        for path in snapshot.left_out:
            complain(f"left out: {path} is not a file of its own (a link, a socket, or too deep)\n")
    for trouble in created.troubles:
        complain(f"damaged: {trouble}\n")
    return 1 if created.troubles else 0


@app.command()
def verify(
    source: Annotated[str, typer.Argument(help=_PLACE)],
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check that a backup is whole.

    Every piece is read and hashed. Every value and workspace that the records name must be there, and every
    object of every history. The exit code is 1 if anything is missing.
    """
    from harness.backup.verify import verify as check

    Shown.as_json = as_json
    with _share_shown("checking") as on_piece:
        verified = check(source, stamp=snapshot, on_piece=on_piece)
    if as_json:
        print_json(
            {
                "snapshot": verified.snapshot.stamp,
                "whole": verified.is_whole,
                "pieces": verified.pieces,
                "references": verified.references,
                "histories": verified.histories,
                "missing": verified.missing,
            }
        )
    else:
        for missing in verified.missing:
            say(missing)
        state = "whole" if verified.is_whole else f"NOT whole ({len(verified.missing)} missing)"
        say(
            f"{verified.snapshot.stamp} is {state}: {verified.pieces:,} pieces, "
            f"{verified.references:,} references, {verified.histories:,} histories"
        )
    return 0 if verified.is_whole else 1


@app.command()
def restore(
    source: Annotated[str, typer.Argument(help=_PLACE)],
    snapshot: SnapshotOption = None,
    files_only: Annotated[
        bool,
        typer.Option("--files-only", help="Leave out the records: users, keys, conversations."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty home.

    Keys and jobs are as they were. Nobody is signed in, no turn counts as running, and webhooks that were due
    are not sent. Restore only backups of your own: they hold what this home will trust.
    """
    from harness.backup.restore import restore as bring_back

    Shown.as_json = as_json
    with _share_shown("restoring") as on_file:
        restored = bring_back(
            home or Shown.home, source, stamp=snapshot, files_only=files_only, on_file=on_file
        )
    if as_json:
        print_json(
            {
                "home": str(restored.home),
                "snapshot": restored.stamp,
                "files": restored.files,
                "bytes": restored.size,
                "records": restored.has_records,
                "settingsKept": restored.settings_kept,
                "finished": restored.was_finished,
                "forgotten": restored.forgotten,
                "left": list(restored.left),
            }
        )
        return
    begun = " (an interrupted restore, now complete)" if restored.was_finished else ""
    say(
        f"restored: {restored.files:,} files, {size_text(restored.size)}, to {restored.home}{begun}"
    )
    say(f"  snapshot: {restored.stamp}")
    if restored.forgotten:
        say(f"  forgotten since, and taken out again: {restored.forgotten:,}")
    for why in restored.left:
        complain(f"not forgotten yet: {why}; `harness jobs run` goes on\n")
    if restored.settings_kept:
        say("  this home's own harness.yaml stays; that of the backup was left out")
    if not restored.has_records:
        say("  without records: `harness admin adopt` makes those of the workspaces again")


@contextmanager
def _bytes_shown() -> Generator[Callable[[int], None]]:
    """Show on a terminal how many bytes were read."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with notes().status("reading") as status:
        total = 0

        def on_bytes(count: int) -> None:
            nonlocal total
            total += count
            status.update(f"reading: {size_text(total)}")

        yield on_bytes


@contextmanager
def _share_shown(what: str) -> Generator[Callable[[int, int], None]]:
    """Show on a terminal how much is done."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    from rich.progress import Progress

    with Progress(console=notes(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
