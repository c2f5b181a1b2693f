"""Threads that start at the same instant."""

from __future__ import annotations

import threading
from collections.abc import Callable

from workspaces.errors import Conflict


def race(runners: int, run: Callable[[int], object]) -> list[int]:
    """Start all at once; the indices of those that met no Conflict. Other errors are raised."""
    barrier = threading.Barrier(runners)
    winners: list[int] = []
    failures: list[BaseException] = []

    def runner(index: int) -> None:
        barrier.wait(timeout=30)
        try:
            run(index)
            winners.append(index)
        except Conflict:
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=runner, args=(index,)) for index in range(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures, failures
    return winners
