"""Telling clients that a file has changed.

While somebody listens, the files that were named are looked at twice a second: their size and time of change.
So a change by an editor, a command or a sync is seen, too, and nothing is done while nobody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from harness.mcp.caller import McpCaller
from harness.mcp.resource import located
from harness.runtime.async_bridge import run_in_thread
from workspaces.errors import Failure

LOOK_S = 0.5
WATCHED_MAX = 1_000
"""Files that one server looks at. More subscriptions hear of nothing."""

State = tuple[float | None, int] | None
OnUpdate = Callable[[str], Awaitable[None]]


@dataclass
class _Watched:
    caller: McpCaller
    listeners: dict[object, OnUpdate] = field(default_factory=dict[object, OnUpdate])
    state: State = None


class Notices:
    """The subscriptions of one server, and the loop that looks at their files."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._watched: dict[str, _Watched] = {}
        self._lists: dict[object, tuple[McpCaller, frozenset[str]]] = {}

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[None]:
        """Look at the files as long as the block runs."""
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def add(self, uri: str, caller: McpCaller, token: object, on_update: OnUpdate) -> None:
        """Watch a file for one listener.

        Raises: Failure if the URI names nothing that the caller may reach.
        """
        state = await run_in_thread(_state, caller, uri)
        if uri not in self._watched and len(self._watched) >= WATCHED_MAX:
            return
        watched = self._watched.setdefault(uri, _Watched(caller, state=state))
        watched.listeners[token] = on_update

    def remove(self, uri: str, token: object) -> None:
        watched = self._watched.get(uri)
        if watched is not None:
            watched.listeners.pop(token, None)
            if not watched.listeners:
                del self._watched[uri]

    async def add_list(self, caller: McpCaller, token: object) -> None:
        """Watch the list of files of the caller's default workspace."""
        self._lists[token] = (caller, await run_in_thread(_names, caller))

    def remove_list(self, token: object) -> None:
        self._lists.pop(token, None)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for uri, watched in list(self._watched.items()):
                state = await run_in_thread(_state_or_none, watched.caller, uri)
                if state != watched.state:
                    watched.state = state
                    await self.bus.publish(ResourceUpdated(uri))
                    for tell in list(watched.listeners.values()):
                        await tell(uri)
            for token, (caller, known) in list(self._lists.items()):
                names = await run_in_thread(_names, caller)
                if names != known and token in self._lists:
                    self._lists[token] = (caller, names)
                    await self.bus.publish(ResourcesListChanged())


def _state(caller: McpCaller, uri: str) -> State:
    """Return the time of change and the size of a file; None if there is no file now."""
    reference, path = located(uri)
    directory = path.rpartition("/")[0]
    found = caller.workspace(reference).find(directory, lambda name: name == path)
    return (found[0].modified, found[0].size) if found else None


def _state_or_none(caller: McpCaller, uri: str) -> State:
    try:
        return _state(caller, uri)
    except Failure:  # the workspace is gone
        return None


def _names(caller: McpCaller) -> frozenset[str]:
    try:
        return frozenset(stat.name for stat in caller.workspace(None).find("", lambda _: True))
    except Failure:
        return frozenset()
