"""What holds a text besides this home and the bucket: backups, other machines, forks of a conversation.

A forgetting by text, match or line leaves tombstones. These reach backups and machines. One by revision or
conversation leaves none: then the report says what is left where, and what takes it out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from harness.conversations.conversation import Conversation
from harness.forgetting.forgetting import MachineHeard, Selector
from harness.forgetting.found import Findings
from workspaces.errors import Failure, Unavailable
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.home.known_backups import known_backups, rules_at
from workspaces.home.layout import Home
from workspaces.remote.bucket import SharedBucket


def leaves_tombstones(selector: Selector) -> bool:
    """Return True if what is forgotten so is refused from then on."""
    return selector in ("text", "match", "line")


@dataclass(frozen=True, slots=True)
class OtherCopies:
    home: Home
    rules: RuleRecords
    place: SharedBucket | None
    has_own_records: bool
    """True if no other machine has the records of this one."""

    def note_backups(self, findings: Findings, selector: Selector) -> None:
        then = "a restore brings back what is forgotten here, because it leaves no tombstone"
        if leaves_tombstones(selector):
            then = "a restore takes the text out again, but whoever reads the backup finds it"
        for backup in known_backups(self.home):
            findings.cannot("backup", f"{backup.place} holds a backup of {backup.at}: {then}")

    def tell_backups(self, findings: Findings) -> None:
        """Write what is forbidden beside the backups of this home: a restore of any of them looks there."""
        for backup in known_backups(self.home):
            try:
                rules = rules_at(backup.place)
                if rules is None:
                    raise Unavailable("the directory", "it is not there now")
                rules.publish(self.rules.account_id, self.rules.entries())
            except Failure as failure:
                findings.cannot(
                    "backup",
                    f"{backup.place} was not told what to take out at a restore ({failure}): the next "
                    "`harness backup create` tells it",
                )

    def machines(self, forgetting_id: str, selector: Selector) -> tuple[MachineHeard, ...]:
        """Return the machines of the account, and when each has heard of a forgetting. One that leaves no
        tombstone is heard of by none."""
        if self.place is None or selector in ("revision", "conversation"):
            return ()
        with suppress(Unavailable):
            notes = self.place.machine_notes(self.rules.account_id).all()
            return tuple(MachineHeard(one.machine, one.heard.get(forgetting_id)) for one in notes)
        return ()

    def note_machines(self, findings: Findings, selector: Selector) -> None:
        """Name what a forgetting without tombstones leaves on machines that share the bucket."""
        if self.place is None or selector != "revision":
            return
        theirs = (
            "trash, and conversations and prompts of their own,"
            if self.has_own_records
            else "trash"
        )
        findings.cannot(
            "other machines",
            "their files and histories follow at their next sync; what they have not pushed by then stays, "
            f"and so do these lines in their {theirs} because a revision leaves no tombstone: forget a line "
            "by `--text` to reach them",
        )

    def note_forks(
        self, findings: Findings, conversation: Conversation, every: list[Conversation]
    ) -> None:
        """Name the forks of a conversation, which stay, with the command that removes each."""
        parents = {one.id: (one.forked_from or "").partition(" ")[0] for one in every}
        forks = [conversation.id]
        for parent in forks:  # grows meanwhile: a fork can be forked
            forks += [one for one, of in parents.items() if of == parent]
        for one in forks[1:]:
            why = f"is a fork of it and stays: `harness forget --conversation {one}` removes it"
            findings.cannot(f"conversation {one}", why)
