"""A listing asked for in several parts at the same time.

A listing is pages, each asked for when the one before has come: ten thousand names are ten round trips.
Whoever knows names that were there a while ago may begin behind several of them, the *cuts*, at once.

**Nothing is unseen, whatever the cuts are.** All that is asked of the store is that it lists in some order
of names, always the same, and that a listing *after* a name holds what follows it in that order, whether the
name is there or not. The order itself is not known (seaweedfs has one of its own), so names are never
compared. Part n begins behind cut n, part 0 at the beginning, and each goes on until it meets a name that a
*later* part has met, or at which a later part begins. From there on everything is the later part's, and the
last one goes on to the end: so by induction from the last part to the first, what follows a cut is listed,
and what follows nothing is everything. Names that come and go meanwhile may be listed or not, as in any
listing; none that is there all the time is left out. Cuts that are gone, or in a strange order, cost pages.

What is *not* in such a listing is still only believed after a plain one (`S3Blobs.walk`): it would be
taken for deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from workspaces.storage.blobs import Stat

AT_ONCE = 4
"""Parts in flight. Ten pages at 100 ms each are three waits; a server on the same two cores is kept busy by
two, and more threads only take turns."""


@dataclass(frozen=True, slots=True)
class ListingPage:
    stats: Sequence[Stat]
    more: str | None
    """By which the next page is asked for; None on the last."""


FetchPage = Callable[[str, str | None], ListingPage]
"""The first page after a name ("" is the beginning), or the one that `more` leads to."""


def cuts_of(known: Sequence[str], page_keys: int) -> Sequence[str]:
    """Of names in ascending order: where each page but the first begins, while nothing has changed."""
    return known[page_keys - 1 : -1 : page_keys]


def in_parts(
    ask: FetchPage,
    cuts: Sequence[str],
    each: Callable[[Callable[[int], None], int], None] | None = None,
) -> list[Stat]:
    """All names. `each` runs something for every number below a count, in any order."""
    parts = _Parts(ask, cuts)
    (each or _at_once)(parts.list, len(cuts) + 1)
    return list(parts.found.values())


class _Parts:
    def __init__(self, ask: FetchPage, cuts: Sequence[str]) -> None:
        self._ask = ask
        self._begins = ("", *cuts)
        self._met = {name: number for number, name in enumerate(self._begins) if number}
        """By which part a name was met last, of all those that met it."""
        self.found: dict[str, Stat] = {}
        self._lock = threading.Lock()

    def list(self, number: int) -> None:
        page = self._ask(self._begins[number], None)
        while not self._is_met(number, page.stats) and page.more is not None:
            page = self._ask(self._begins[number], page.more)

    def _is_met(self, number: int, stats: Sequence[Stat]) -> bool:
        """Whether a later part has met any of them."""
        is_met = False
        with self._lock:
            for stat in stats:
                self.found[stat.name] = stat
                by = self._met.get(stat.name, 0)
                if by > number:
                    is_met = True
                else:
                    self._met[stat.name] = number
        return is_met


def _at_once(do: Callable[[int], None], count: int) -> None:
    if count == 1:
        do(0)
        return
    with ThreadPoolExecutor(min(AT_ONCE, count)) as pool:
        for done in [pool.submit(do, number) for number in range(count)]:
            done.result()
