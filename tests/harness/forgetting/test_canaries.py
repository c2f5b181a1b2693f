"""Canaries in every kind of place of a home: after forgetting, no byte of them is left, and nothing else is
gone."""

from __future__ import annotations

from pathlib import Path

from harness import Harness
from harness.forgetting.selection import ForgettingRequest
from tests.harness.forgetting.canaries import PATTERN, phrase, plant
from tests.harness.forgetting.scan import all_holders


def test_no_byte_of_any_canary_is_left(harness: Harness, home: Path) -> None:
    garden = plant(harness, home)
    before = all_holders(home, garden.phrases)
    assert not [garden.where[word] for word in garden.where if not before[phrase(word)]]

    forgettings = harness.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(match=PATTERN))
    print(planned.forgetting.as_json())
    done = forgettings.run_here(forgettings.start(planned).id)

    assert done.status == "done", done.waits_for
    after = all_holders(home, garden.phrases)
    left = {garden.where[word]: after[phrase(word)] for word in garden.where if after[phrase(word)]}
    assert left == {}
