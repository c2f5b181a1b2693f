"""The colours of the style sheet: text stands out from what it stands on, light and dark (WCAG AA)."""

from __future__ import annotations

import re
from itertools import product

import pytest

from harness.runtime.templates import root

TEXT, SHAPE = 4.5, 3.0
"""The least contrast of text, and of what shows where something is: borders of fields, focus, bars."""

SURFACES = ("paper", "panel", "sunk")
COLOURS = ("amber", "red", "green", "violet", "link")

PAIRS = {
    **dict.fromkeys(product(("ink", "soft", "link", "amber", "red", "green"), SURFACES[:2]), TEXT),
    **dict.fromkeys(product(("ink", "soft", "link"), SURFACES[2:]), TEXT),  # badges, code, hover
    **{(colour, f"{colour}-soft"): TEXT for colour in COLOURS},  # badges and notices
    **dict.fromkeys(product(("ink",), (f"{colour}-soft" for colour in COLOURS)), TEXT),
    ("paper", "ink"): TEXT,  # a primary button
    **dict.fromkeys(product(("edge", "focus"), SURFACES[:2]), SHAPE),
    **dict.fromkeys(product(("link", "amber", "violet", "edge"), ("sunk",)), SHAPE),  # bars
    ("panel", "link"): SHAPE,  # the knob of a switch that is on
}


def schemes() -> dict[str, dict[str, str]]:
    """The colours by name, of each scheme: the dark one replaces those of the light one."""
    text = (root() / "pages" / "style.css").read_text()
    light, dark = re.findall(r":root \{([^}]*)\}", text)
    first = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light))
    return {"light": first, "dark": first | dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", dark))}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_of_black_on_white_is_the_highest_there_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_stands_out_from_what_it_stands_on(scheme: str) -> None:
    colours = schemes()[scheme]
    found = {pair: round(contrast(*(colours[name] for name in pair)), 2) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in found.items() if ratio < PAIRS[pair]} == {}


def test_no_colour_stands_outside_the_lists_of_both_schemes() -> None:
    """A colour written at its place would be in no pair above, and in one scheme only."""
    text = (root() / "pages" / "style.css").read_text()
    rules = re.sub(r":root \{[^}]*\}", "", text)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s,)])", rules) == []
    assert re.findall(r"\b(?:rgba?|hsla?|oklch)\(", rules) == []
