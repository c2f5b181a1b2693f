from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_group

from harness.cli.console.plain_values import take_plain_values


class _Plain(TyperGroup):
    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        for command in self.commands.values():
            take_plain_values(command, ctx)
        return super().parse_args(ctx, args)  # pyright: ignore[reportArgumentType]


def _whole(text: str) -> Path:
    if not text:
        raise ValueError("the path is empty")
    return Path(text)


def run(group: type[TyperGroup], *arguments: str) -> tuple[object, str]:
    """What a command was called with, or the refusal."""
    app, seen = typer.Typer(cls=group), list[object]()

    @app.command()
    def act(
        name: str,
        more: Annotated[list[str] | None, typer.Argument()] = None,
        limit: Annotated[int, typer.Option(min=1, max=9)] = 5,
        wait: float = 0.5,
        kind: Literal["one", "other"] = "one",
        place: Annotated[Path | None, typer.Option(parser=_whole)] = None,
        loud: bool = False,
    ) -> None:
        seen.append((name, more, limit, wait, kind, place, loud))

    @app.command()
    def other() -> None:
        pass

    try:
        get_group(app)(["act", *arguments], standalone_mode=False)
    except typer.TyperException as error:
        return None, str(error)
    return seen[0], ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("a",),
        ("",),
        ("a", "b", "c"),
        ("a", "--limit", "9"),
        ("a", "--limit", "10"),
        ("a", "--limit", "0"),
        ("a", "--limit", "many"),
        ("a", "--wait", "2"),
        ("a", "--wait", "soon"),
        ("a", "--kind", "other"),
        ("a", "--kind", "third"),
        ("a", "--place", "here"),
        ("a", "--place", ""),
        ("a", "--loud"),
        (),
    ],
)
def test_values_are_taken_and_refused_as_typer_does(arguments: tuple[str, ...]) -> None:
    assert run(_Plain, *arguments) == run(TyperGroup, *arguments)
