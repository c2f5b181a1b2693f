"""The soak run: its traffic client, its measurements, and its runner of randomized tests."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.harness.web.serving import home_at
from tests.soak import randomized
from tests.soak.traffic import FAILURES_MAX, Client, Gate, Tally
from tests.soak.trend import DESCRIPTORS, MEASURABLE_MINUTES, RESIDENT, is_broken, per_hour, told
from tests.soak.watched import held

ENOUGH, TOO_SHORT = MEASURABLE_MINUTES, MEASURABLE_MINUTES - 1
WAIT_S_MAX = 120.0


def line(per_hour: float) -> list[tuple[float, float]]:
    """Samples of an hour, half of them above the line and half of them below."""
    return [(s, 100 + per_hour * s / 3600 + (1 if s % 20 else -1)) for s in range(0, 3600, 10)]


def test_the_growth_rate_is_the_least_squares_slope() -> None:
    assert per_hour([(0, 5.0), (1800, 6.0), (3600, 7.0)]) == pytest.approx(2.0)
    assert per_hour(line(3.0)) == pytest.approx(3.0, abs=0.02)
    assert per_hour([(1, 5.0)]) == 0.0
    assert "+3.00 MB/h (at most 2)" in told(RESIDENT, line(3.0 - per_hour(line(0.0))))


def test_growth_above_the_bound_breaks_the_bound_and_growth_below_does_not() -> None:
    assert is_broken(RESIDENT, line(2.2), ENOUGH)
    assert not is_broken(RESIDENT, line(1.8), ENOUGH)
    assert not is_broken(RESIDENT, line(-9.0), ENOUGH)
    assert is_broken(DESCRIPTORS, line(1.0), ENOUGH)
    assert not is_broken(DESCRIPTORS, line(0.0), ENOUGH)


def test_a_too_short_run_breaks_no_bound() -> None:
    assert not is_broken(RESIDENT, line(500.0), TOO_SHORT)


def test_a_closed_gate_blocks_requests_until_opened() -> None:
    gate, entered = Gate(), threading.Event()

    def go() -> None:
        with gate.passed():
            entered.set()

    thread = threading.Thread(target=go)
    with gate.closed():
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(WAIT_S_MAX)
    thread.join(WAIT_S_MAX)


def test_a_traffic_round_succeeds_and_the_servers_memory_and_descriptors_are_measured(
    tmp_path: Path,
) -> None:
    with home_at(tmp_path / "home").served() as server:
        tally, stop = Tally(), threading.Event()
        client = Client(server.url, server.key, Gate(), tally, stop, requests_per_s=1000)
        client.round(11)  # the last of a conversation, which deletes it
        assert tally.requests > 20
        assert tally.failures == []
        resident, descriptors = held(server.process.pid, stop.wait)
        assert 10 < resident < 1000
        assert 10 < descriptors < 500


def test_a_traffic_client_stops_when_the_server_is_unreachable() -> None:
    tally = Tally()
    gone = "http://127.0.0.1:9"
    Client(gone, "key", Gate(), tally, threading.Event(), requests_per_s=1000).live()
    assert len(tally.failures) == FAILURES_MAX
    assert "round 0 of client 0" in tally.failures[0]


@pytest.mark.parametrize(
    ("body", "seconds", "verdict"),
    [("assert False", WAIT_S_MAX, "failed"), ("import time; time.sleep(60)", 0.5, "cut")],
)
def test_a_failed_test_is_distinguished_from_a_test_cut_off_by_time(
    tmp_path: Path, body: str, seconds: float, verdict: str
) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    ran = randomized.run_one(f"{tmp_path}/test_it.py::test_it", seconds, threading.Event())
    assert ran.verdict == verdict, ran.said
    summary = randomized.lines(["a", "b", "c"], [ran])
    assert summary[0].startswith("tests: 0 passed, ")
    assert f"1 {verdict}" in summary[0]
    assert summary[0].endswith("2 not begun, of 3 functions")
    assert ("assert False" in "".join(summary)) == (verdict == "failed")
