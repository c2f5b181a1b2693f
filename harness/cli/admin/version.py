"""The command `harness version`: what this program is, and which formats a home has."""

from __future__ import annotations

import typer

from harness.cli.console.console import HomeOption, JsonOption, Shown, print_json, say


def register(app: typer.Typer) -> None:
    app.command()(version)


def version(home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Show this version and the formats of a home. The exit code is 1 if it cannot read one.

    Nothing is changed, and a home that does not exist is not created. If the home uses S3, the
    bucket is asked.
    """
    from harness.presentation.home_formats import formats_of

    Shown.as_json = as_json
    found = formats_of(home or Shown.home)
    if as_json:
        print_json(found.as_json())
        return 0 if found.is_readable else 1
    say(f"workspace-harness {found.version}")
    say(f"home: {found.home}" if found.exists else f"home: {found.home} does not exist yet")
    for one in found.parts:
        number = "no format" if one.format is None else f"format {one.format}"
        more = f" ({one.detail})" if one.detail else ""
        say(f"  {one.part}: {number}, this version reads up to {one.readable}{more}")
        if not one.is_readable:
            needed = f"{one.needs} or newer" if one.needs else "the version that wrote it"
            say(f"    → install workspace-harness {needed}")
    return 0 if found.is_readable else 1
