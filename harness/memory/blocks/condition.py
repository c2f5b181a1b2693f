"""The condition of a write to a block: the state that the writer has read.

A write whose answer was lost is repeated with a stamp that is stale by then. Nothing is lost if the block
already holds exactly that content. So such a write counts as done, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.memory.blocks.block import Block, BlockConflict, BlockPlace
from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.errors import Refused
from workspaces.ids import Version
from workspaces.timestamp import Stamp, stamp_of

_FIELD = "expected_updated_at"
_SHOWN_AS = "write it as in `updated_at`, for example 2026-04-30T16:20:00.000000Z"


def any_version(version: Version | None) -> bool:
    """Return True for every version."""
    del version
    return True


@dataclass(frozen=True, slots=True)
class BlockCondition:
    """The state that a block must have. Both parts must hold."""

    stamp: Stamp | Wildcard = ANY
    """The block's `updated_at`. ABSENT: there must be no block. ANY: nothing is asked."""
    has_version: Callable[[Version | None], bool] = any_version
    """Returns True for a version that the block may have; None stands for no block."""

    def check(self, place: BlockPlace, current: Block | None) -> None:
        """Raise BlockConflict if the current block is not as expected."""
        if self.stamp is ABSENT and current is not None:
            raise BlockConflict(place, "it exists already", current)
        if isinstance(self.stamp, str):
            if current is None:
                raise BlockConflict(place, "it does not exist any more", None)
            if current.updated_at != self.stamp:
                raise BlockConflict(
                    place, f"it was changed at {current.updated_at}, after you read it", current
                )
        if not self.has_version(current.version if current else None):
            reason = "it has another version" if current else "it does not exist"
            raise BlockConflict(place, reason, current)

    def is_done(self, place: BlockPlace, current: Block | None, content: str) -> bool:
        """Return True if the block already holds the content, so that nothing needs to be written.

        Raises: BlockConflict if the block is not as expected and holds other content.
        """
        holds = current is not None and current.content == content
        if not holds or self.stamp is ABSENT:
            self.check(place, current)
        return holds


UNCONDITIONAL = BlockCondition()


def parse_expected(text: object) -> Stamp:
    """Return the stamp that a caller sends. A time without a zone is UTC.

    Raises: Refused if it is no time.
    """
    if not isinstance(text, str):
        raise Refused(_FIELD, text, "must be a time or null", remedy=_SHOWN_AS)
    try:
        moment = datetime.fromisoformat(text)
        if "T" not in text.upper() and " " not in text.strip():
            raise ValueError("a date alone is no time")
        return stamp_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise Refused(_FIELD, text, "is not a time", remedy=_SHOWN_AS) from error
