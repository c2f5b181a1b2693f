"""Sizes in words that a person reads."""

from __future__ import annotations

_UNITS = ("bytes", "KB", "MB", "GB")


def size_text(size: int) -> str:
    """Return a number of bytes as text: `1 byte`, `20 KB`, `1.4 MB`."""
    if size == 1:
        return "1 byte"
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 1 if unit and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"
