"""Schedules: the moments at which an agent runs by itself.

A schedule is a cron expression of five fields and a time zone. On the two nights of daylight saving a tick in
the missing hour comes at its end, and a tick in the repeated hour comes once. Steps such as `*/30` follow the
elapsed time.

This is the one module that uses cronsim. It counts forward only: what it returns backwards differs in the
repeated hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from workspaces.validation import StrictModel

CRON_CHARACTERS_MAX = 200
FIELDS = 5

_REPEATED = timedelta(hours=3)
"""More than any hour that a clock repeats, with the hour before it."""

_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def _cron(text: str) -> str:
    """Return a valid cron expression.

    Raises: ValueError for any other text.
    """
    from cronsim import CronSim, CronSimError

    if len(text.split()) != FIELDS:
        raise ValueError("must have five fields: minute, hour, day, month and weekday")
    try:
        next(CronSim(text, _SOME_DAY))
    except (CronSimError, StopIteration) as error:
        raise ValueError(f"is not a cron expression: {str(error) or 'it never comes'}") from error
    return text


def _timezone(name: str) -> str:
    """Return the name of a time zone.

    Raises: ValueError for any other text.
    """
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("is not the name of a time zone, such as Europe/Vienna") from error
    return name


class Schedule(StrictModel):
    cron: Annotated[str, Field(max_length=CRON_CHARACTERS_MAX), AfterValidator(_cron)]
    """When a run begins: five fields, as in crontab."""
    timezone: Annotated[
        str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$"), AfterValidator(_timezone)
    ] = "UTC"
    """The time zone of those fields, as in `Europe/Vienna`."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after a moment, in UTC; None if none ever comes."""
        return next(self._after(moment), None)

    def latest_until(self, moment: datetime) -> datetime | None:
        """Return the last tick at a moment or before it, in UTC."""
        before = self._before(moment + timedelta(minutes=1))
        near = next((tick for tick in before if tick <= moment), None)
        if near is None:
            return None
        latest = None
        for tick in self._after(near - _REPEATED):
            if tick > moment:
                break
            latest = tick
        return latest

    def _after(self, moment: datetime) -> Iterator[datetime]:
        """Return the ticks after a moment."""
        return self._ticks(moment, is_reverse=False)

    def _before(self, moment: datetime) -> Iterator[datetime]:
        """Return the ticks before a moment, but for mistakes of some hours."""
        return self._ticks(moment, is_reverse=True)

    def _ticks(self, moment: datetime, *, is_reverse: bool) -> Iterator[datetime]:
        from zoneinfo import ZoneInfo

        from cronsim import CronSim

        start = moment.astimezone(ZoneInfo(self.timezone))
        for tick in CronSim(self.cron, start, reverse=is_reverse):
            yield tick.astimezone(UTC)
