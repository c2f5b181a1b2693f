"""Canaries in every kind of place of a home: after forgetting, no byte of them is left, and nothing else is
gone. Put back into any kind of place, one of them is found again."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from harness import Harness
from harness.forgetting.selection import ForgettingRequest
from harness.forgetting.verify import verify
from tests.harness.forgetting.canaries import PATTERN, Garden, phrase, plant
from tests.harness.forgetting.scan import all_holders
from tests.harness.forgetting.test_put_back import PLACES
from tests.machines import SOAK


def texts(harness: Harness) -> dict[str, list[str]]:
    root = harness.workspaces.get("notes").root
    files = [file for file in sorted(root.rglob("*.md")) if file.is_file()]
    return {str(file.relative_to(root)): file.read_text().split("\n") for file in files}


def test_no_byte_of_any_canary_is_left(harness: Harness, home: Path) -> None:
    garden = plant(harness, home)
    before, lines = all_holders(home, garden.phrases), texts(harness)
    assert not [garden.where[word] for word in garden.where if not before[phrase(word)]]

    forgettings = harness.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(match=PATTERN))
    done = forgettings.run_here(forgettings.start(planned).id)

    assert done.status == "done", done.waits_for
    after = all_holders(home, garden.phrases)
    left = {garden.where[word]: after[phrase(word)] for word in garden.where if after[phrase(word)]}
    assert left == {}
    _check_lines(lines, texts(harness))
    _put_back(garden, done.id)


def _check_lines(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    """Every line without a canary is where it was."""
    for path, lines in before.items():
        if "canary" in path:
            continue
        assert len(after[path]) == len(lines), path
        for old, new in zip(lines, after[path], strict=True):
            is_marked = "forgotten f_" in new or "redacted-f_" in new  # the hash of a quote
            assert old == new or is_marked or "SINGS" in old, (path, old, new)
            assert "canary" not in new.casefold()


def _put_back(garden: Garden, forgetting: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    places = list(PLACES) if SOAK else random.Random(seed).sample(list(PLACES), 2)
    text = garden.phrases[0]
    root = garden.home / "put-back"
    for place in places:
        root.mkdir()
        PLACES[place](root, text)
        found = verify(garden.harness.rooms.forgettings, forgetting, text).found
        assert found, place
        assert not [one for one in found if not one.startswith(("put-back", "the name"))], place
        shutil.rmtree(root)
    assert verify(garden.harness.rooms.forgettings, forgetting, text).found == ()
