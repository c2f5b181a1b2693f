"""The command `harness doctor`: checks of the machine and the home, with remedies."""

from __future__ import annotations

import typer

from harness.cli.console.console import HomeOption, JsonOption, Shown, out, print_json


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Check this machine and this home. The exit code is 1 if a check fails."""
    from harness.bootstrap.doctor import examine

    Shown.as_json = as_json
    findings = examine(home or Shown.home)
    if as_json:
        print_json(
            [
                {
                    "check": finding.check,
                    "state": finding.state,
                    "detail": finding.detail,
                    "remedy": finding.remedy,
                }
                for finding in findings
            ]
        )
    else:
        marks = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "broken": "[red]✗[/]"}
        console = out()
        for finding in findings:
            console.print(f"{marks[finding.state]} [bold]{finding.check}[/]  ", end="")
            console.print(finding.detail, markup=False)
            if finding.remedy:
                console.print(f"    → {finding.remedy}", markup=False)
    return 1 if any(finding.state == "broken" for finding in findings) else 0
