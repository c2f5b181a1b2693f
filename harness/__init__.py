"""Turns and memory: the harness around workspaces. `Harness` is imported when it is first asked for,
so that a command line that only prints its help does not pay for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.harness import Harness as Harness

__all__ = ["Harness"]


def __getattr__(name: str) -> Any:
    if name == "Harness":
        from harness.harness import Harness

        return Harness
    raise AttributeError(name)
