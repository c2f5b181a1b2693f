"""The figures of a server: each metric is driven and its change is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.bootstrap.authentication import start_token
from harness.bootstrap.composition import background_tasks
from harness.bootstrap.metrics import KEPT_S
from harness.jobs.job import Job
from harness.models.scripted import ScriptedModel
from harness.runtime.async_bridge import run_in_thread
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import taken
from tests.servers import BUCKET, S3Server
from workspaces.clock import ManualClock
from workspaces.ids import new_id

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]

CONFLICTS = ("harness_sync_conflicts_total", ())


def figures(site: Site) -> Figures:
    answer = site.admin("GET", "/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


@dataclass
class Watched:
    """What changes of the figures while something is done."""

    site: Site
    clock: ManualClock

    def changes(self, do: Callable[[], object]) -> Figures:
        before = figures(self.site)
        do()
        self.clock.advance(KEPT_S)
        after = figures(self.site)
        return {
            name: value - before.get(name, 0.0)
            for name, value in after.items()
            if value != before.get(name, 0.0)
        }

    def now(self, name: str, **labels: str) -> float | None:
        self.clock.advance(KEPT_S)
        return figures(self.site).get((name, tuple(sorted(labels.items()))))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    clock = ManualClock()
    model = ScriptedModel("Noted.", name="claude-sonnet-5-5")
    with Site.open(tmp_path / "home", model=model, clock=clock) as site:
        yield Watched(site, clock)


def labelled(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


def test_requests_are_counted_by_route_and_status_class(watched: Watched) -> None:
    site = watched.site

    def ask() -> None:
        site.nobody.get("/healthz")
        site.nobody.refused(404, "GET", "/no/such/place")

    told = watched.changes(ask)
    healthz = labelled(
        "harness_request_seconds_count", method="GET", route="/healthz", status="2xx"
    )
    nowhere = labelled("harness_request_seconds_count", method="none", route="none", status="4xx")
    assert (told[healthz], told[nowhere]) == (1, 1)


def test_a_turn_counts_its_status_tokens_and_dollars(watched: Watched) -> None:
    caller = watched.site.account("acme")
    agent = caller.agent(model="claude-sonnet-5-5")

    def talk() -> None:
        taken(caller, agent, "e1")

    told = watched.changes(talk)
    assert told[labelled("harness_turn_seconds_count", status="done")] == 1
    assert told[labelled("harness_tokens_total", purpose="turn", direction="input")] > 6
    assert told[labelled("harness_tokens_total", purpose="turn", direction="output")] == 6
    assert told[labelled("harness_dollars_total", purpose="turn")] > 0
    count = labelled(
        "harness_store_seconds_count", store="records", operation="write", outcome="ok"
    )
    assert told[count] > 0


def test_jobs_and_queues_are_seen_as_they_are(watched: Watched) -> None:
    jobs, clock = watched.site.harness.house.jobs, watched.clock
    jobs.enqueue(Job("turn:conv_1", "turn", clock.now() + timedelta(seconds=1), {}))
    jobs.enqueue(Job("tidy:ws_1", "tidy", clock.now() + timedelta(days=1), {}))
    jobs.enqueue(Job("flush:m1:ws_1", "flush:m1", clock.now(), {}))
    assert watched.now("harness_jobs", kind="tidy", state="later") == 1
    assert watched.now("harness_jobs", kind="turn", state="due") == 1
    assert watched.now("harness_queue_conversations") == 1
    oldest, lag = (
        watched.now("harness_queue_oldest_seconds"),
        watched.now("harness_sync_lag_seconds"),
    )
    assert oldest is not None
    assert lag is not None
    assert oldest > 3 * KEPT_S
    assert lag >= 5 * KEPT_S


def test_a_failed_job_and_a_turn_that_cannot_begin_are_counted(watched: Watched) -> None:
    house, clock = watched.site.harness.house, watched.clock

    def fail() -> None:
        payload = {"accountId": "acct_none", "userId": "usr_none", "conversationId": "conv_none"}
        house.jobs.enqueue(Job("erase:conv_none", "erase", clock.now(), payload))
        watched.site.client.portal.call(house.runner.drain)  # type: ignore[union-attr]

    told = watched.changes(fail)
    assert told[labelled("harness_jobs_failed_total", kind="erase")] == 1


def test_the_free_space_of_the_home_is_shown(watched: Watched) -> None:
    free = watched.now("harness_disk_free_bytes")
    assert free is not None
    assert free > 2**20


def test_calls_of_s3_and_conflict_files_are_counted(
    tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    home, clock = tmp_path / "home", ManualClock()
    home.mkdir()
    prefix = new_id("test")
    (home / "harness.yaml").write_text(f"s3: s3://{BUCKET}/{prefix}\n")
    with Site.open(home, clock=clock) as site:
        watched = Watched(site, clock)
        notes = site.harness.workspaces.open_or_create("notes")
        sync = site.harness.rooms.workspaces.sync(notes.record.id)
        told = watched.changes(sync.run)
        assert told[
            labelled("harness_store_seconds_count", store="s3", operation="list", outcome="ok")
        ]
        assert told[
            labelled("harness_store_seconds_count", store="s3", operation="put", outcome="ok")
        ]

        def both_write() -> None:
            path, by = "decisions/d.md", site.harness.rooms.principal.author("api")
            notes.write(path, "ours\n", by=by)
            client = seaweedfs.client()
            key = f"{prefix}/{notes.namespace}/{path}"
            client.put_object(Bucket=BUCKET, Key=key, Body=b"theirs\n")
            client.close()
            asyncio.run(synced())

        async def synced() -> None:
            running = asyncio.create_task(background_tasks(site.harness.house)["sync"].run())
            while not (await run_in_thread(figures, site))[CONFLICTS]:
                assert not running.done()
                await asyncio.sleep(0.02)
            running.cancel()

        assert watched.changes(both_write)[CONFLICTS] == 1


def test_only_the_admin_key_and_the_start_token_see_the_figures(watched: Watched) -> None:
    site = watched.site
    site.nobody.refused(401, "GET", "/metrics")
    site.account("acme").refused(401, "GET", "/metrics")
    with start_token(site.harness.settings.home) as token:
        assert Caller(site.client, token)("GET", "/metrics").status_code == 200


def test_no_label_holds_an_id_or_a_name(watched: Watched) -> None:
    caller = watched.site.account("acme-canary")
    agent = caller.agent("canary")
    caller.get(f"/accounts/me/agents/{agent}")
    caller("GET", "/accounts/me/agents/canary-too")
    caller("CANARY", "/canary")
    text = watched.site.admin("GET", "/metrics").text
    assert "canary" not in text.lower()
    assert agent not in text
