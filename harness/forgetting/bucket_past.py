"""What a bucket with versions keeps of an account: earlier states of its records, and deleted workspaces.

Present workspaces are rewritten with their past versions (`workspace_rewrite`). A deleted one has no machine
that would do that. Its objects are gone, and their past versions are not. So they are read, and those with a
phrase are deleted for good. A workspace that was deleted and made again under the same id is looked at, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.raw_bytes import unpacked
from harness.forgetting.record_places import AccountPlaces
from harness.forgetting.redaction import TextFinder, all_places
from workspaces.ids import AccountId, Namespace
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.blobs import ErasedPast


@dataclass(frozen=True, slots=True)
class BucketPast:
    """The past versions of one account's objects."""

    place: SharedBucket
    account_id: AccountId
    places: AccountPlaces

    def find(self, finder: TextFinder, findings: Findings) -> None:
        """Count the objects of deleted workspaces of which a past version holds a phrase.

        Raises: Unavailable.
        """
        for _ in self._held(finder, findings):
            pass

    def erase(self, finder: TextFinder, findings: Findings) -> None:
        """Delete for good the earlier states of records, and those of deleted workspaces with a phrase.

        Raises: Unavailable.
        """
        owners = frozenset(self.places.subjects().owners_of_values)
        _note(self.place.erase_past_of_account(self.account_id, owners), "the records", findings)
        for held in self._held(finder, findings):
            # the packs are deltas of each other, so all of them go
            erased = self.place.erase_past(held.namespace, held.files)
            _note(erased, held.name, findings)

    def _held(self, finder: TextFinder, findings: Findings) -> Iterator[_HeldWorkspace]:
        """Yield the deleted workspaces that hold a phrase, and add them to the findings."""

        def holds(data: bytes) -> bool:
            return any(all_places(part.decode(errors="replace"), finder) for part in unpacked(data))

        for namespace, name in self.place.ended_workspaces(self.account_id).items():
            files, packs = self.place.find_past(namespace, holds)
            if files or packs:
                held = _HeldWorkspace(namespace, finder.replaced(name), files)
                findings.add(FoundPlace("version", workspace=held.name), len(files) + len(packs))
                yield held


class _HeldWorkspace(NamedTuple):
    namespace: Namespace
    name: str
    files: frozenset[str]


def _note(erased: ErasedPast, whose: str, findings: Findings) -> None:
    if erased.refused:
        findings.cannot("s3", f"the bucket does not delete past versions of {whose}")
