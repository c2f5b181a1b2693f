"""What the context asks of the room of templates."""

from __future__ import annotations

from typing import Protocol


class Render(Protocol):
    """The text of a template with its variables filled in."""

    def __call__(self, name: str, **variables: object) -> str: ...
