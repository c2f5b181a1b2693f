"""A home served by a thread of this process, and people who use it with a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Error, Locator, Page, expect

from harness import Harness
from harness.web.app import ServerTimeouts, create_app
from harness.web.server import Server, listen
from tests.harness.web.turning import Puppet

Hands = Literal["mouse", "keyboard", "no script"]

TABS_MAX = 120
WAIT_MS = 60_000
LOOKS_MAX = 20

MARKS = (
    "x-canary, [onerror], [onload], [onclick], [onfocus], [style], "
    "script:not([src]), iframe, object, embed, main img"
)
"""What no page of ours has: an element here came out of somebody's text."""


@dataclass
class Stage:
    harness: Harness
    url: str
    puppet: Puppet
    key: str

    @classmethod
    @contextmanager
    def open(cls, home: Path) -> Iterator[Stage]:
        puppet = Puppet()
        with Harness.open(home, model=puppet) as harness:
            app = create_app(harness, patience=ServerTimeouts(turns_s=0, drain_s=0.5))
            server, listening = Server(app), listen("127.0.0.1", 0)
            port = listening.getsockname()[1]
            thread = threading.Thread(
                target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
            )
            thread.start()
            _, key = harness.rooms.keys.create(label="of the test")
            try:
                yield cls(harness, f"http://127.0.0.1:{port}", puppet, key)
            finally:
                server.should_exit = True
                thread.join(30)


@dataclass
class Person:
    """Somebody at a browser, who clicks, or presses keys only, or has scripts turned off."""

    stage: Stage
    page: Page
    hands: Hands
    trouble: list[str] = field(default_factory=list)
    """What must not happen on any page: errors of scripts, refusals of the policy, requests to elsewhere."""

    @classmethod
    @contextmanager
    def at(
        cls, browser: Browser, stage: Stage, hands: Hands = "mouse", width: int = 1200, **more: Any
    ) -> Iterator[Person]:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            java_script_enabled=hands != "no script",
            reduced_motion="reduce",
            **more,
        )
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        person = cls(stage, page, hands)
        page.on("pageerror", lambda error: person.trouble.append(f"script: {error}"))
        page.on("dialog", lambda dialog: person.trouble.append(f"dialog: {dialog.message}"))
        page.on("console", lambda line: person._hear(line.type, line.text))
        page.on("request", lambda request: person._see(request.url))
        try:
            yield person
            assert person.trouble == []
        finally:
            context.close()

    def _hear(self, kind: str, text: str) -> None:
        # a refused form answers with 4xx, which the console repeats
        if kind == "error" and "the server responded with a status of 4" not in text:
            self.trouble.append(f"console: {text}")

    def _see(self, url: str) -> None:
        if not url.startswith(f"{self.stage.url}/"):
            self.trouble.append(f"request: {url}")

    def opens(self, path: str) -> None:
        self.page.goto(self.stage.url + path)
        self.looks()

    def signs_in(self, path: str = "/") -> None:
        self.opens(path)
        self.types("Key of an account or a user", self.stage.key)
        self.presses("button", "Sign in")

    def presses(self, role: Any, name: str, *, within: Locator | None = None) -> None:
        """Press a button, a link or a summary, by its name."""
        place = within or self.page
        if role == "summary":
            target = place.locator("summary", has_text=name).first
        else:
            target = place.get_by_role(role, name=name, exact=True).first
        self.acts_on(target)
        self.looks()

    def acts_on(self, target: Locator) -> None:
        if self.hands == "keyboard":
            self.reaches(target)
            self.page.keyboard.press("Enter")
        else:
            target.click()

    def types(self, label: str, text: str, *, exact: bool = False) -> None:
        target = self.page.get_by_label(label, exact=exact).first
        if self.hands == "keyboard":
            self.reaches(target)
            self.page.keyboard.press("Control+A")
            self.page.keyboard.insert_text(text)
        else:
            target.fill(text)

    def chooses(self, label: str, option: str) -> None:
        target = self.page.get_by_label(label).first
        if self.hands == "keyboard":
            self.reaches(target)
            self.page.keyboard.type(option)
        else:
            target.select_option(option)

    def reaches(self, target: Locator) -> None:
        """Press Tab until the focus is there, and see that the focus is visible."""
        target.wait_for(state="visible")
        for _ in range(TABS_MAX):
            if target.evaluate("one => one === document.activeElement"):
                outline = target.evaluate("one => getComputedStyle(one).outlineStyle")
                assert outline != "none", "the focus is not visible"
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {target}")

    def sees(self, text: str) -> None:
        expect(self.page.locator("main").get_by_text(text).first).to_be_visible(timeout=WAIT_MS)

    def looks(self) -> None:
        """See that the page is whole: it fits the window, and no text has become an element."""
        for attempt in count(1):
            self.page.wait_for_load_state("domcontentloaded")
            if self.hands == "no script":  # the browser evaluates nothing in such a page
                return
            try:
                self._looks_once()
                return
            except Error as error:  # a pressed key may lead to the next page in the middle of it
                if attempt == LOOKS_MAX or "navigation" not in error.message:
                    raise

    def _looks_once(self) -> None:
        assert_harmless(self.page)
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{self.page.url} is {wide} px wider than the window"


def assert_harmless(page: Page) -> None:
    found = page.locator(MARKS)
    count = found.count()
    assert count == 0, f"{page.url}: {found.first.evaluate('one => one.outerHTML')}"
    assert not page.evaluate("Boolean(window.canary_ran)"), f"a script ran at {page.url}"
    expect(page.locator("main#main")).to_have_count(1, timeout=WAIT_MS)
    expect(page.locator("header.top")).to_have_count(1, timeout=WAIT_MS)
