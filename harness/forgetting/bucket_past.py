"""What a bucket with versions keeps of an account: earlier states of its records, and what was deleted.

Present workspaces are rewritten with their past versions (`workspace_rewrite`). A deleted one has no machine
that would do that. Its objects are gone, and their past versions are not. So they are read, and those with a
phrase are deleted for good. A workspace that was deleted and made again under the same id is looked at, too,
and so are large values of deleted conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    has_values: bool
    """True if large values are in the bucket, because the records are shared, too."""

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
        if self.has_values:
            _note(self.place.erase_deleted_values(_holding(finder)), "deleted values", findings)
        for held in self._held(finder, findings):
            # the packs are deltas of each other, so all of them go
            erased = self.place.erase_past(held.namespace, held.files)
            _note(erased, held.name, findings)

    def _held(self, finder: TextFinder, findings: Findings) -> Iterator[_HeldWorkspace]:
        """Yield the deleted workspaces that hold a phrase, and add them to the findings."""
        for namespace, name in self.place.ended_workspaces(self.account_id).items():
            files, packs = self.place.find_past(namespace, _holding(finder))
            if files or packs:
                held = _HeldWorkspace(namespace, finder.replaced(name), files)
                findings.add(FoundPlace("version", workspace=held.name), len(files) + len(packs))
                yield held


class _HeldWorkspace(NamedTuple):
    namespace: Namespace
    name: str
    files: frozenset[str]


def _holding(finder: TextFinder) -> Callable[[bytes], bool]:
    """Return a function that tells if bytes hold a phrase, as they are or compressed."""
    return lambda data: any(
        all_places(part.decode(errors="replace"), finder) for part in unpacked(data)
    )


def _note(erased: ErasedPast, whose: str, findings: Findings) -> None:
    if erased.refused:
        findings.cannot("s3", f"the bucket does not delete past versions of {whose}")
