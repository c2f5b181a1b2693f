"""Notices: what a webhook is told, as jobs that deliver it.

A notice holds ids and never text of memory or of a conversation: whoever is told asks for the rest with a
key. The end of a turn enqueues its notices in the batch that ends the turn. So a crash neither loses nor
repeats one. Changes of one workspace that follow each other at once become one notice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from harness.conversations.conversation import Conversation
from harness.jobs.job import Job, Jobs
from harness.messages.event import Event
from harness.transcripts.outcome import Ending
from harness.transcripts.transcript import Entry
from harness.turns.turn_observer import TurnObserver
from harness.webhooks.webhook import NoticeKind, Webhooks
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.ids import WorkspaceId, new_id
from workspaces.storage.records import JsonObject, RecordChange
from workspaces.timestamp import stamp_of
from workspaces.workspace_record import WorkspaceRecord

WEBHOOK = "webhook"
"""The kind of job that delivers one notice to one webhook."""

DELIVERIES_AT_ONCE_MAX = 8
"""Deliveries that a server makes at once. They wait for strangers, so they have a share of their own."""

SETTLE_S = 1.0
"""Seconds for which changes of one workspace are gathered into one notice."""

_log = logging.getLogger("harness.webhooks")


@dataclass(frozen=True, slots=True)
class WebhookNotices(TurnObserver):
    """The notices of one account, in the name of one principal. It observes the ends of turns."""

    principal: Principal
    webhooks: Webhooks
    jobs: Jobs
    clock: Clock

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending, own: Sequence[Entry]
    ) -> tuple[RecordChange, ...]:
        """Return the changes that enqueue the notices of a turn that ended or that waits."""
        del own
        kind: NoticeKind = "approval.waiting" if ending.status == "waiting" else "turn.finished"
        facts = {
            "agentId": conversation.agent_id,
            "conversationId": conversation.id,
            "turnId": ending.turn_id,
            "eventId": event.id,
            "status": ending.status,
        }
        jobs = self._jobs(kind, facts, 0.0)
        return tuple(change for job in jobs for change in self.jobs.wanted_anew(job))

    def memory_changed(self, workspace: WorkspaceRecord) -> None:
        """Enqueue the notices of a new revision."""
        self._enqueue("memory.changed", workspace.id, {"workspaceId": workspace.id})

    def conflict_found(self, workspace_id: WorkspaceId, count: int) -> None:
        """Enqueue the notices of conflict files that a sync created."""
        self._enqueue("conflict.found", workspace_id, {"workspaceId": workspace_id, "files": count})

    def _enqueue(self, kind: NoticeKind, about: str, facts: JsonObject) -> None:
        try:
            for job in self._jobs(kind, facts, SETTLE_S, about=about):
                self.jobs.enqueue(job, at_the_latest=True)
        except Failure as failure:  # what happened is stored; only its notice is lost
            _log.warning("no notice of %s in %s: %s", kind, about, failure)

    def _jobs(
        self, kind: NoticeKind, facts: JsonObject, after_s: float, *, about: str | None = None
    ) -> list[Job]:
        """Return a job for each webhook that wants this notice. `about` gathers notices of one thing."""
        ids, now = self.webhooks.wanting(kind), self.clock.now()
        notice_id = new_id("notice")
        notice = {"id": notice_id, "event": kind, "at": stamp_of(now), **facts}
        return [
            Job(
                f"{WEBHOOK}:{webhook_id}:{kind if about else ''}{about or notice_id}",
                WEBHOOK,
                now + timedelta(seconds=after_s),
                {
                    "accountId": self.principal.account_id,
                    "userId": self.principal.user_id,
                    "webhookId": webhook_id,
                    "notice": notice,
                },
            )
            for webhook_id in ids
        ]
