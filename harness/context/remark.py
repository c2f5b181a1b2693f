"""Remarks: what a turn has to say about its context and what people changed meanwhile, beside its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workspaces.records import JsonObject


@dataclass(frozen=True, slots=True)
class Remark:
    kind: Literal[
        "compacted",
        "summary_failed",  # nothing was changed
        "system_too_long",  # no summary can help
        "turn_too_long",  # there is nothing to summarise
        "flush_failed",  # what must last may not have been written down
        "pruned_hard",  # for a provider to whom it was too long
        "unsettled",  # what a person changed by hand is in no revision
    ]
    detail: str

    def as_json(self) -> JsonObject:
        return {"kind": self.kind, "detail": self.detail}


def remark_of(data: JsonObject) -> Remark:
    return Remark(data["kind"], data["detail"])
