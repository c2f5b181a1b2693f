"""The figures of a server in Prometheus' text format.

Counters and durations come from two places that say everything once: the events of the log, and the timed
calls of the stores. Gauges are read when they are asked for, at most once in `KEPT_S`. They concern the whole
home. The counters concern this process.

No label holds an id or a name that a person gave. So the number of series has a limit, and the figures may be
seen by people who must not see the memories.
"""

from __future__ import annotations

import math
import os
from collections import Counter as Tally
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.bootstrap.composition import Application
from harness.bootstrap.services.history_jobs import FLUSH
from harness.conversations.event_queue import LOOK_AFTER_S, TURN
from harness.jobs.job import JobView
from harness.runtime.json_log import EVENTS
from workspaces.storage.timing import CALLS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

KEPT_S = 5.0
"""Seconds for which the gauges are kept: a scrape reads all jobs of the home."""

REQUEST_S = (0.005, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
TURN_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
CALL_S = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)


class ServerMetrics:
    """The figures of one server process."""

    def __init__(self, application: Application) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Histogram(
            "harness_request_seconds",
            "Requests by method, route and status class.",
            ("method", "route", "status"),
            buckets=REQUEST_S,
            registry=registry,
        )
        self._turns = Histogram(
            "harness_turn_seconds",
            "Turns that ended or paused, by status.",
            ("status",),
            buckets=TURN_S,
            registry=registry,
        )
        self._not_begun = Counter(
            "harness_turns_not_begun", "Events whose turn could not begin.", registry=registry
        )
        self._tokens = Counter(
            "harness_tokens",
            "Tokens of requests to models, by purpose and direction.",
            ("purpose", "direction"),
            registry=registry,
        )
        self._dollars = Counter(
            "harness_dollars",
            "Cost of requests to models by the price table.",
            ("purpose",),
            registry=registry,
        )
        self._failed_jobs = Counter(
            "harness_jobs_failed", "Runs of jobs that failed.", ("kind",), registry=registry
        )
        self._conflicts = Counter(
            "harness_sync_conflicts", "Conflict files that a sync created.", registry=registry
        )
        self._calls = Histogram(
            "harness_store_seconds",
            "Calls of the record store and of S3, by operation and whether the store answered.",
            ("store", "operation", "outcome"),
            buckets=CALL_S,
            registry=registry,
        )
        registry.register(_HomeGauges(application))

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count what happens in this process while the body runs."""
        with EVENTS.including(self._observe_event), CALLS.including(self._observe_call):
            yield

    def text(self) -> bytes:
        """Return all figures. It reads the records, so an event loop must not call it."""
        return generate_latest(self._registry)

    def _observe_event(self, name: str, facts: Mapping[str, Any]) -> None:
        match name:
            case "request":
                # a route is a pattern of ours; a path that matches none could be anything
                route = facts["route"] or "none"
                status = f"{facts['status'] // 100}xx" if facts["status"] else "none"
                labels = (facts["method"] if facts["route"] else "none", route, status)
                self._requests.labels(*labels).observe(facts["ms"] / 1000)
            case "turn":
                self._turns.labels(facts["status"]).observe(facts["seconds"])
            case "turn not begun":
                self._not_begun.inc()
            case "usage":
                for direction, count in facts["tokens"].items():
                    self._tokens.labels(facts["purpose"], direction).inc(count)
                self._dollars.labels(facts["purpose"]).inc(facts["dollars"])
            case "job failed":
                self._failed_jobs.labels(_kind(facts["kind"])).inc()
            case "synced":
                self._conflicts.inc(facts["conflicts"])
            case _:
                pass

    def _observe_call(self, store: str, operation: str, seconds: float, is_answered: bool) -> None:
        outcome = "ok" if is_answered else "unavailable"
        self._calls.labels(store, operation, outcome).observe(seconds)


class _HomeGauges(Collector):
    """The state of the home: jobs, queues, what is not in S3 yet, and the disk."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._kept: list[Metric] = []
        self._read_at = -math.inf

    def describe(self) -> Iterable[Metric]:
        return ()  # else the registry would read the records when it is made

    def collect(self) -> Iterable[Metric]:
        now = self._application.clock.monotonic()
        if now - self._read_at >= KEPT_S:
            self._kept, self._read_at = [*self._of_jobs(), self._of_disk()], now
        return self._kept

    def _of_jobs(self) -> Iterable[Metric]:
        now = self._application.clock.now()
        views = self._application.jobs.list()
        jobs = GaugeMetricFamily(
            "harness_jobs", "Jobs that are not done.", labels=("kind", "state")
        )
        counts = Tally((_kind(view.job.kind), _state(view, view.job.due <= now)) for view in views)
        for labels, count in sorted(counts.items()):
            jobs.add_metric(labels, count)
        yield jobs

        def age(kind: str, due_after_s: float) -> float:
            dues = (view.job.due for view in views if _kind(view.job.kind) == kind)
            first = min(dues, default=None)
            return 0.0 if first is None else max(0.0, (now - first).total_seconds() + due_after_s)

        depth = sum(view.job.kind == TURN for view in views)
        yield GaugeMetricFamily(
            "harness_queue_conversations", "Conversations with events that wait or run.", depth
        )
        yield GaugeMetricFamily(
            "harness_queue_oldest_seconds",
            "Age of the oldest event that waits or runs, at most as long as it is looked after.",
            age(TURN, LOOK_AFTER_S),
        )
        yield GaugeMetricFamily(
            "harness_sync_lag_seconds",
            "How long the push of changed files to S3 is overdue.",
            age(FLUSH, 0.0),
        )

    def _of_disk(self) -> Metric:
        disk = os.statvfs(self._application.settings.home.root)
        name, about = "harness_disk_free_bytes", "Free space on the disk of the home."
        return GaugeMetricFamily(name, about, disk.f_bavail * disk.f_frsize)


def _kind(kind: str) -> str:
    """Return a kind of job without the id of a machine that may follow it."""
    return kind.partition(":")[0]


def _state(view: JobView, is_due: bool) -> str:
    if view.is_aside:
        return "set_aside"
    if view.process is not None:
        return "running"
    return "due" if is_due else "later"
