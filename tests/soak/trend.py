"""What grows, and how fast: least squares over samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEASURABLE_MINUTES = 30.0
"""An allocator takes memory in steps of about a megabyte. One step is 2 MB/h in half an hour, and more in
less: a shorter run shows its slopes, and no bound is applied to them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How fast something may grow in an hour."""

    name: str
    unit: str
    per_hour_max: float


RESIDENT = Bound("resident", "MB", 2.0)
DESCRIPTORS = Bound("descriptors", "", 0.5)
"""Not one more in an hour, when rounded."""


def per_hour(samples: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line that fits best. A sample is a time in seconds, and a value."""
    if len({when for when, _ in samples}) < 2:
        return 0.0
    middle_s = sum(when for when, _ in samples) / len(samples)
    middle = sum(value for _, value in samples) / len(samples)
    rise = sum((when - middle_s) * (value - middle) for when, value in samples)
    run = sum((when - middle_s) ** 2 for when, _ in samples)
    return rise / run * 3600


def told(bound: Bound, samples: Sequence[tuple[float, float]]) -> str:
    """Return one line of the summary."""
    values = [value for _, value in samples] or [0.0]
    grown = f"{per_hour(samples):+.2f} {bound.unit}".strip()
    return (
        f"{bound.name:12} {grown}/h (at most {bound.per_hour_max:g}), from {values[0]:.1f} "
        f"to {values[-1]:.1f}, between {min(values):.1f} and {max(values):.1f}, {len(values)} samples"
    )


def is_broken(bound: Bound, samples: Sequence[tuple[float, float]], minutes: float) -> bool:
    """Say whether it grew too fast. A run that is too short to measure breaks no bound."""
    return minutes >= MEASURABLE_MINUTES and per_hour(samples) > bound.per_hour_max
