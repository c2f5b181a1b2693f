"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path


def main() -> None:
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    for module in sorted(one.name for one in found if not one.ispkg):
        if module not in {"__main__", "provider", "ratio"}:
            print(f"\n== {module}", flush=True)
            importlib.import_module(f"benchmarks.{module}").main()


if __name__ == "__main__":
    main()
