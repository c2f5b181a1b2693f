"""The composition root: from the settings to the application, and the services of every principal.

`services` builds each service at its first use. So a command imports what it uses and nothing else, and a
server builds all services before its first request (`Application.build_all`). Adapters are named in
`services` and in `locations`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.bootstrap.local_files import clock_of, embedder_of
from harness.bootstrap.services.home_services import HomeServices
from harness.bootstrap.services.principal_services import PrincipalServices
from workspaces.coordination.lazily import build_all, lazily
from workspaces.home.locations import are_shared, bucket_at, records_at

if TYPE_CHECKING:
    from harness.jobs.background_task import BackgroundTask
    from harness.jobs.job import Job
    from harness.jobs.runner import JobRunner
    from harness.models.port import Model
    from harness.runtime.settings import Settings
    from harness.sandboxes.port import Sandbox
    from harness.sync.local_copies import LocalCopies
    from harness.tools.custom import CustomTool
    from workspaces.accounts.principal import Principal
    from workspaces.clock import Clock
    from workspaces.remote.bucket import SharedBucket
    from workspaces.search.embeddings import Embedder
    from workspaces.storage.blobs import BlobStore
    from workspaces.workspace.watch import WatchEvent
    from workspaces.workspace.workspace import Workspace

PRINCIPALS_MAX = 256
"""Principals whose services are cached. Building them anew costs a few objects and no I/O."""


class Application(HomeServices):
    """A home: its own services, those of each principal, and the jobs that any of them enqueued."""

    @lazily
    def rooms(self) -> Callable[[Principal], PrincipalServices]:
        """A function that returns the services of a principal."""
        return lru_cache(maxsize=PRINCIPALS_MAX)(self._services_of)

    @lazily
    def runner(self) -> JobRunner:
        """The runner of all jobs."""
        from harness.bootstrap.job_kinds import JOB_SHARES, job_kinds
        from harness.jobs.runner import JobRunner

        kinds = job_kinds(self._services_of_job, self.settings.home.machine)
        return JobRunner(self.jobs, kinds, self.clock, shares=JOB_SHARES)

    def owner(self) -> Principal:
        """Return the owner of the home's default account.

        Raises: Refused for a home that has trees and has lost its records.
        """
        from workspaces.home.lost_records import check_has_records

        check_has_records(self.settings.home, self.accounts, self.settings.records_shown)
        return self.accounts.owner(self.accounts.default())

    def build_all(self, principal: Principal) -> None:
        """Build every service, so that a server imports none of them in the middle of a request."""
        services = self.rooms(principal)
        for one in (self, services, services.learning_services):
            build_all(one)

    def _services_of(self, principal: Principal) -> PrincipalServices:
        def of_owner() -> PrincipalServices:
            return self.rooms(self.accounts.owner(self.accounts.get(principal.account_id)))

        return PrincipalServices(principal, self, of_owner=of_owner)

    def _services_of_job(self, job: Job) -> PrincipalServices:
        """Return the services of the principal who enqueued the job."""
        account_id, user_id = job.payload["accountId"], job.payload["userId"]
        return self.rooms(self.accounts.member(account_id, user_id))


def wire(
    settings: Settings,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    embedder: Embedder | None = None,
    sandbox: Sandbox | None = None,
    tools: Sequence[CustomTool | Callable[..., Any]] = (),
    place: SharedBucket | None = None,
    allows_demo: bool = True,
) -> Application:
    """Build the application.

    For tests and for trying out: `model` answers for every agent, whatever model it names; `sandbox` runs
    every command; `place` is the bucket where workspaces are shared, whatever the settings say. Every agent
    can call `tools`. `embedder` gives recall its vectors, instead of the endpoint of the settings. Without
    `allows_demo` the demo model never answers.
    """
    clock = clock or clock_of(settings)
    place = place or (None if settings.s3 is None else bucket_at(settings.s3))
    large = _large(settings, place)
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    return Application(
        settings,
        records,
        clock,
        place=place,
        large=large,
        model=model,
        embedder=embedder or embedder_of(settings),
        sandbox=sandbox,
        own_tools=_own_tools(tools) if tools else (),
        allows_demo=allows_demo,
    )


def _own_tools(tools: Sequence[CustomTool | Callable[..., Any]]) -> tuple[CustomTool, ...]:
    from harness.bootstrap.services.builtin_tools import TOOLS
    from harness.tools.custom import custom_tools

    return tuple(custom_tools(tools, (tool.name for tool in TOOLS)))


def background_tasks(application: Application) -> dict[str, BackgroundTask]:
    """Return the tasks that run as long as `harness up` does, by name."""
    from harness.runs.scheduler import ScheduleCorrection
    from harness.sync.background_sync import BackgroundSync
    from harness.sync.background_watch import BackgroundWatch, log_watch_event
    from harness.sync.trash_emptying import TrashEmptying

    trees, clock = application.settings.home.trees, application.clock
    background_sync = BackgroundSync(
        lambda: [_copies(services) for services in _owners(application)],
        follow=lambda: _sync_all_records(application),
    )

    def on_watch_event(watch_event: WatchEvent) -> None:
        log_watch_event(watch_event)
        background_sync.hear(watch_event)

    watcher = BackgroundWatch(trees, lambda: _workspaces(application), clock, on_watch_event)
    return {
        "jobs": application.runner,
        "schedules": ScheduleCorrection(
            lambda: [services.scheduler for services in _owners(application)]
        ),
        "watcher": watcher,
        "sync": background_sync,
        "trash": TrashEmptying(application.settings.home, application.settings.trash_days, clock),
    }


def _owners(application: Application) -> Iterator[PrincipalServices]:
    """Yield the services of the owners of all accounts."""
    for account in application.accounts.list():
        yield application.rooms(application.accounts.owner(account))


def _sync_all_records(application: Application) -> None:
    for services in _owners(application):
        if services.registry_sync is not None:
            services.registry_sync.sync_if_reachable()


def _workspaces(application: Application) -> Iterator[Workspace]:
    """Yield the workspaces of all accounts."""
    from harness.sync.background_watch import all_of

    for services in _owners(application):
        yield from all_of(_copies(services))


def _copies(services: PrincipalServices) -> LocalCopies:
    from harness.sync.local_copies import LocalCopies

    found = services.notices.conflict_found
    return LocalCopies(services.workspaces, services.agents, conflict_found=found)


def _large(settings: Settings, place: SharedBucket | None) -> BlobStore:
    """Return the store of values too large for a record. Every machine with the record can read it."""
    from workspaces.errors import Refused
    from workspaces.home.deletion_hold import HeldOffBlobs
    from workspaces.home.unreachable import SET_PLACE
    from workspaces.tree.directory import FileBlobs

    if not are_shared(settings.records):
        values = FileBlobs(settings.home.entries, settings.home.entries_staging)
        return HeldOffBlobs(values, settings.home)
    if place is None:
        rule = "must be set: the records are shared with other machines, which need the files too"
        raise Refused("s3", None, rule, remedy=SET_PLACE)
    return place.entries()
