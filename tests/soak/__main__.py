"""`make soak`: randomized tests and a server under traffic, at the same time, for SOAK_MINUTES.

The server is measured for that long, after a warm-up of a sixth of it. The last lines say what was seen.
Exit code 1: a test has failed, a request has failed, or a bound of `trend` is broken.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.soak import randomized
from tests.soak.trend import MEASURABLE_MINUTES
from tests.soak.watched import watch

MINUTES = 60.0
WARM_UP_SHARE = 1 / 6


def main() -> int:
    minutes = float(os.environ.get("SOAK_MINUTES") or MINUTES)
    warm_up = minutes * WARM_UP_SHARE
    stop = threading.Event()
    with TemporaryDirectory(prefix="soak-") as place, ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, Path(place) / "home", minutes, warm_up, stop)
        try:
            names = randomized.functions()
            ran = randomized.run(names, minutes + warm_up, stop)
            seen = watching.result()
        except BaseException:  # Ctrl-C, or a bug: the server is not watched for an hour more
            stop.set()
            raise
    broken = [*seen.broken, *(one.name for one in ran if one.verdict == "failed")]
    print("\n== soak", *seen.lines(warm_up), *randomized.lines(names, ran), sep="\n")
    if seen.minutes < MEASURABLE_MINUTES:
        print(f"too short to judge slopes: they are from {MEASURABLE_MINUTES:g} minutes on")
    print(f"broken: {', '.join(broken)}" if broken else "ok")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
