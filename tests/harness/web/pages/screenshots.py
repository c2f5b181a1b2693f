"""Pictures of each page of the demo home: `make screenshots`.

Six of them go into docs/images, for the README and the guides. The others go into build/screenshots.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from harness.presentation.demo_home import make_demo_home
from tests.harness.web.pages.browser.conftest import ARGUMENTS, CHROMIUM
from tests.harness.web.pages.browser.stage import Stage

ROOT = Path(__file__).parents[4]
IN_DOCS = {"overview", "memory", "agent", "file", "decision", "forbid"}
BYTES_MAX = 150_000
WIDTHS = (1200, 390)


def addresses(stage: Stage) -> dict[str, str]:
    rooms = stage.harness.rooms
    garden, agent = rooms.workspaces.record("garden").id, rooms.agents.get("gardener").id
    conversation = rooms.conversations.find(rooms.agents.get("gardener").id, "planning")
    assert conversation is not None
    turn = stage.harness.explain(conversation).turns()[0]
    run = rooms.runs.list("gardener")[-1].run
    looked_at = next(
        view for view in rooms.decisions.list(rooms.agents.get("planner").id) if view.conviction
    )
    look = rooms.runs.re_examinations(looked_at.run.id)[-1].run
    (memorized,) = rooms.memorizer.memories.all()
    newest = rooms.workspaces.get("garden").log(limit=3)[2].id
    return {
        "overview": "/",
        "memory": f"/w/{garden}/memory",
        "proof": f"/w/{garden}/memory/{memorized.fact.id}/proof",
        "file": f"/w/{garden}/files",
        "edit": f"/w/{garden}/files/notes/beds.md?edit=1",
        "history": f"/w/{garden}/history",
        "revision": f"/w/{garden}/history/{newest}",
        "problems": f"/w/{garden}/problems",
        "recall": f"/w/{garden}/recall?q=when+is+frost+usual",
        "agent": f"/a/{agent}?c=planning",
        "approval": f"/a/{agent}?c=beans",
        "settings": f"/a/{agent}?edit=1",
        "prompt": f"/a/{agent}/prompt?c=planning",
        "runs": f"/a/{agent}/runs",
        "run": f"/runs/{run.id}",
        "decisions": "/decisions",
        "decision": f"/runs/{looked_at.run.id}",
        "re-examination": f"/runs/{look.id}",
        "block": f"/a/{agent}/blocks/core",
        "rows": f"/a/{agent}/rows",
        "picker": "/memory",
        "conversation": f"/c/{conversation.id}",
        "receipts": f"/c/{conversation.id}/turns/{turn.id}",
        "usage": "/usage?by=agent",
        "keys": "/keys",
        "users": "/users",
        "forget": "/forget",
        "forbid": "/forbid",
        "trash": "/trash",
        "sign-in": "/sign-in",
    }


def shoot(browser: Browser, stage: Stage, docs: Path, build: Path) -> None:
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            context = browser.new_context(
                viewport={"width": width, "height": 760}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(f"{stage.url}/sign-in")
            page.get_by_label("Key of an account or a user").fill(stage.key)
            page.get_by_role("button", name="Sign in").click()
            for name, path in addresses(stage).items():
                page.goto(stage.url + path)
                if name == "forbid":
                    try_a_rule(page)
                is_in_docs = scheme == "light" and width == WIDTHS[0] and name in IN_DOCS
                file = (
                    docs / f"{name}.png" if is_in_docs else build / f"{name}-{width}-{scheme}.png"
                )
                page.screenshot(path=file, full_page=not is_in_docs)
                if is_in_docs and file.stat().st_size > BYTES_MAX:
                    sys.exit(f"{file} is larger than {BYTES_MAX} bytes")
            context.close()


def try_a_rule(page: Page) -> None:
    """Type a rule and a text, and wait until the page says what would be refused."""
    page.get_by_label("Pattern or text").fill("[0-9]+ EUR")
    page.get_by_label("Where").select_option(label="only in garden")
    sample = "- seeds for 34 EUR, order SEED-204417\n- a new hose\n"
    page.get_by_label("Try it on a text").fill(sample)
    page.get_by_text("2 places would be refused").wait_for()


def main() -> None:
    docs, build = ROOT / "docs" / "images", ROOT / "build" / "screenshots"
    for directory in (docs, build):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        home = Path(place) / "home"
        make_demo_home(home)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        with Stage.open(home) as stage:
            shoot(browser, stage, docs, build)
        browser.close()


if __name__ == "__main__":
    main()
