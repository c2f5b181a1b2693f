"""Turns and memory: the harness around workspaces.

Exported names are imported when they are first used, so a command line that only prints its help does not pay
for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.harness import Harness
    from harness.tools.custom import tool

__all__ = ["Harness", "tool"]


def __getattr__(name: str) -> Any:
    if name == "Harness":
        from harness.harness import Harness

        return Harness
    if name == "tool":
        from harness.tools.custom import tool

        return tool
    raise AttributeError(name)
