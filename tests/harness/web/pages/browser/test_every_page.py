"""Every page of the made-up home: dark, at 200 % zoom and at the width of a small telephone."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from harness.presentation.demo_home import make_demo_home
from tests.harness.web.pages.browser.stage import Person, Stage
from tests.harness.web.pages.screenshots import addresses

ZOOMED, SMALL, UPRIGHT = 600, 320, 820
"""1 200 pixels at 200 %, and 640 pixels at 200 %: the browser lays a page out as for so many. The third is a
tablet held upright, the narrowest window in which columns stand beside each other."""

PAPER = "getComputedStyle(document.body).backgroundColor"


def test_every_page_fits_a_zoomed_and_a_small_window_and_is_dark_if_wanted(
    browser: Browser, tmp_path: Path
) -> None:
    make_demo_home(tmp_path / "demo")
    with (
        Stage.open(tmp_path / "demo") as stage,
        Person.at(browser, stage, width=ZOOMED, color_scheme="dark") as ada,
    ):
        ada.signs_in()
        for path in addresses(stage).values():
            ada.page.set_viewport_size({"width": ZOOMED, "height": 400})
            ada.opens(path)  # and looks whether it fits
            for width in (SMALL, UPRIGHT):
                ada.page.set_viewport_size({"width": width, "height": 400})
                ada.looks()
        assert ada.page.evaluate(PAPER) == "rgb(20, 23, 26)"
