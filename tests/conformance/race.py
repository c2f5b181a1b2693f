"""Threads that start at the same instant."""

from __future__ import annotations

import threading
from collections.abc import Callable

from workspaces.errors import Conflict

WAIT_S = 300.0


def race(runners: int, run: Callable[[int], object]) -> list[int]:
    """Start all at once; the indices of those that met no Conflict. Other errors are raised."""
    barrier = threading.Barrier(runners)
    winners: list[int] = []
    failures: list[BaseException] = []

    def runner(index: int) -> None:
        barrier.wait(timeout=WAIT_S)
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
        thread.join(timeout=WAIT_S)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)
    return winners
