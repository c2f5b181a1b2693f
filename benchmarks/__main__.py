"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path


def main() -> None:
    for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])):
        if module not in {"__main__", "provider", "ratio"}:
            print(f"\n== {module}", flush=True)
            importlib.import_module(f"benchmarks.{module}").main()


if __name__ == "__main__":
    main()
