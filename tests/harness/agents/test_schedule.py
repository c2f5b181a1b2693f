"""Schedules: cron expressions, time zones, and both nights of daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.agents.schedule import Schedule
from workspaces.errors import Refused
from workspaces.validation import parse

VIENNA = "Europe/Vienna"
SPRING, AUTUMN = datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)


def schedule(cron: str, timezone: str = VIENNA) -> Schedule:
    return parse(Schedule, {"cron": cron, "timezone": timezone})


def ticks(of: Schedule, since: datetime, hours: int) -> list[str]:
    found, until = list[datetime](), since + timedelta(hours=hours)
    while (tick := of.next_after(found[-1] if found else since)) is not None and tick <= until:
        found.append(tick)
    return [tick.strftime("%d %H:%M") for tick in found]


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "0 8 * *",
        "0 0 8 * * *",
        "@daily",
        "H * * * *",
        "60 * * * *",
        "0 0 30 2 *",
        "0 8 * * MONDAY",
        "0 " * 200,
        "*/0 * * * *",
        "0 8 * * *\u2003x",
    ],
)
def test_a_wrong_cron_expression_is_refused_with_its_field(cron: str) -> None:
    with pytest.raises(Refused) as refused:
        schedule(cron)
    assert refused.value.field == "cron"


@pytest.mark.parametrize("zone", ["", "Vienna", "Europe", "../etc/passwd", "CET+99", "a" * 65, 1])
def test_a_wrong_time_zone_is_refused_with_its_field(zone: Any) -> None:
    with pytest.raises(Refused) as refused:
        parse(Schedule, {"cron": "0 8 * * *", "timezone": zone})
    assert refused.value.field == "timezone"


def test_the_time_zone_is_utc_by_default() -> None:
    daily = parse(Schedule, {"cron": "0 8 * * *"})
    assert ticks(daily, SPRING, 24) == ["29 08:00"]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 8 * * *", ["29 06:00"]),
        ("30 2 * * *", ["29 01:00"]),  # 02:30 does not exist: at 03:00
        ("*/30 1-3 * * *", ["29 00:00", "29 00:30", "29 01:00", "29 01:30"]),
    ],
)
def test_a_tick_in_the_missing_hour_comes_at_its_end(cron: str, expected: list[str]) -> None:
    assert ticks(schedule(cron), SPRING, 12) == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 8 * * *", ["25 07:00"]),
        ("30 2 * * *", ["25 00:30"]),  # 02:30 exists twice: once
        ("*/30 2 * * *", ["25 00:00", "25 00:30", "25 01:00", "25 01:30"]),
    ],
)
def test_a_tick_in_the_repeated_hour_comes_once_and_steps_follow_the_elapsed_time(
    cron: str, expected: list[str]
) -> None:
    assert ticks(schedule(cron), AUTUMN, 12) == expected


@pytest.mark.parametrize("night", [SPRING, AUTUMN])
@pytest.mark.parametrize(
    "cron",
    ["30 2 * * *", "*/30 * * * *", "0 3 * * *", "15 2,3 * * *", "0 */2 * * *", "* * * * *"],
)
def test_the_latest_tick_is_the_last_of_those_that_came(cron: str, night: datetime) -> None:
    one = schedule(cron)
    came, moment = list[datetime](), night
    while (tick := one.next_after(came[-1] if came else night)) < night + timedelta(hours=9):  # type: ignore[operator]
        came.append(tick)  # type: ignore[arg-type]
    for minute in range(0, 9 * 60, 7):
        moment = night + timedelta(minutes=minute, seconds=30)
        expected = [tick for tick in came if tick <= moment]
        if expected:
            assert one.latest_until(moment) == expected[-1]


def test_the_latest_tick_is_found_over_days_and_years() -> None:
    daily, yearly = schedule("0 8 * * *"), schedule("0 0 29 2 *")
    assert daily.latest_until(datetime(2026, 5, 5, 5, 59, tzinfo=UTC)) == datetime(
        2026, 5, 4, 6, tzinfo=UTC
    )
    assert daily.latest_until(datetime(2026, 5, 5, 6, tzinfo=UTC)) == datetime(
        2026, 5, 5, 6, tzinfo=UTC
    )
    assert yearly.latest_until(datetime(2026, 5, 5, tzinfo=UTC)) == datetime(
        2024, 2, 28, 23, tzinfo=UTC
    )
