"""A listing that is fetched in several parts at the same time.

A listing consists of pages. Each is requested when the one before has arrived, so ten thousand names are
ten round trips. A caller that knows earlier names may start after several of them at once. These names are
the *cuts*.

**The listing is complete, whatever the cuts are.** The store has to do two things. It lists names in some
order that is always the same. And a listing *after* a name holds all that follows the name in that order,
even if the name does not exist. The order itself is unknown (seaweedfs has one of its own), so names are
never compared. Part n begins after cut n; part 0 begins at the start. Each part continues until it sees a
name that a *later* part has seen, or at which a later part begins. From there on the later part lists
everything. The last part continues to the end. So by induction from the last part to the first, each part
and those after it list all that follows its cut. Part 0 has no cut, so all parts together list everything.
Names that appear or disappear during the listing may be listed or not, as in any listing. No name that
exists all the time is left out. Cuts that no longer exist, or are in another order, only cost pages.

A name that such a listing does *not* contain would be taken for deleted. So `S3Blobs.walk` then repeats
the listing in one piece.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from workspaces.storage.blobs import Stat

AT_ONCE = 4
"""Parts in flight. Ten pages at 100 ms each are three waits.

Two parts keep a server on the same two cores busy; there, more threads only take turns.
"""


@dataclass(frozen=True, slots=True)
class ListingPage:
    stats: Sequence[Stat]
    more: str | None
    """Token for the request of the next page; None on the last page."""


FetchPage = Callable[[str, str | None], ListingPage]
"""Returns the first page after a name ("" is the start), or the page that `more` refers to."""


def cuts_of(known: Sequence[str], page_keys: int) -> Sequence[str]:
    """Return the names after which each page but the first begins, if nothing has changed.

    `known` ascends.
    """
    return known[page_keys - 1 : -1 : page_keys]


def in_parts(
    ask: FetchPage,
    cuts: Sequence[str],
    each: Callable[[Callable[[int], None], int], None] | None = None,
) -> list[Stat]:
    """Return the entries of all names.

    `each` calls a function for every number below a count, in any order.
    """
    parts = _Parts(ask, cuts)
    (each or _in_threads)(parts.list, len(cuts) + 1)
    return list(parts.stats.values())


class _Parts:
    def __init__(self, ask: FetchPage, cuts: Sequence[str]) -> None:
        self._ask = ask
        self._begins = ("", *cuts)
        self._last_part = {name: number for number, name in enumerate(self._begins) if number}
        """The highest number of the parts that have seen a name."""
        self.stats: dict[str, Stat] = {}
        self._lock = threading.Lock()

    def list(self, number: int) -> None:
        page = self._ask(self._begins[number], None)
        while not self._add(number, page.stats) and page.more is not None:
            page = self._ask(self._begins[number], page.more)

    def _add(self, number: int, stats: Sequence[Stat]) -> bool:
        """Add the entries of a page. Return True if a later part has seen any of them."""
        is_seen_later = False
        with self._lock:
            for stat in stats:
                self.stats[stat.name] = stat
                part = self._last_part.get(stat.name, 0)
                if part > number:
                    is_seen_later = True
                else:
                    self._last_part[stat.name] = number
        return is_seen_later


def _in_threads(do: Callable[[int], None], count: int) -> None:
    if count == 1:
        do(0)
        return
    with ThreadPoolExecutor(min(AT_ONCE, count)) as pool:
        for future in [pool.submit(do, number) for number in range(count)]:
            future.result()
