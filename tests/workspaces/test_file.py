"""Files as readers receive them, and sizes in words."""

from __future__ import annotations

import pytest

from workspaces.file import size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 KB"),
        (20_480, "20 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (5_000_000_000, "5.0 GB"),
    ],
)
def test_sizes_are_rounded_to_what_a_person_reads(size: int, text: str) -> None:
    assert size_text(size) == text
