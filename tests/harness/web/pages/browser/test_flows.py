"""The main flows in a real browser: by mouse, by keyboard, and without scripts, wide and narrow."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from harness.messages.message import ToolCall
from tests.harness.web.pages.browser.stage import WAIT_MS, Hands, Person, Stage
from workspaces.revision import Author

EVERY_WAY: list[tuple[Hands, int]] = [
    ("mouse", 1200),
    ("mouse", 390),
    ("keyboard", 1200),
    ("keyboard", 390),
    ("no script", 1200),
    ("no script", 390),
]
every_way = pytest.mark.parametrize(("hands", "width"), EVERY_WAY)


@every_way
def test_signing_in_and_out(browser: Browser, stage: Stage, hands: Hands, width: int) -> None:
    with Person.at(browser, stage, hands, width) as ada:
        ada.opens("/usage?by=model")
        ada.types("Key of an account or a user", "wh_wrong")
        ada.presses("button", "Sign in")
        ada.sees("There is no such key")
        ada.types("Key of an account or a user", stage.key)
        ada.presses("button", "Sign in")
        expect(ada.page).to_have_url(f"{stage.url}/usage?by=model")
        ada.presses("button", "Sign out")
        ada.opens("/")
        expect(ada.page).to_have_url(f"{stage.url}/sign-in?next=%2F")


@every_way
def test_editing_a_file_with_a_conflict(
    browser: Browser, stage: Stage, hands: Hands, width: int
) -> None:
    notes = stage.harness.workspaces.get("notes")
    by = stage.harness.rooms.principal.author("api")
    notes.write("notes/tea.md", "# Tea\n\n- black\n", by=by)
    with Person.at(browser, stage, hands, width) as ada:
        ada.signs_in(f"/w/{notes.record.id}/files/notes/tea.md")
        ada.presses("link", "Edit")
        notes.write("notes/tea.md", "# Tea\n\n- black\n- theirs\n", by=by)
        ada.types("Text of notes/tea.md", "# Tea\n\n- black\n- mine\n")
        ada.presses("button", "Save")
        ada.sees("Somebody else saved this file")
        expect(ada.page.locator("pre.words del")).to_have_text("- theirs\n")
        assert notes.read("notes/tea.md").text.endswith("theirs\n")
        ada.types("Text of notes/tea.md", "# Tea\n\n- black\n- theirs\n- mine\n")
        ada.presses("button", "Save mine over theirs")
        ada.sees("Saved.")
        assert notes.read("notes/tea.md").text == "# Tea\n\n- black\n- theirs\n- mine\n"
        ada.presses("button", "Undo")
        ada.sees("That change is undone.")
        assert notes.read("notes/tea.md").text == "# Tea\n\n- black\n- theirs\n"


@every_way
def test_a_chat_with_an_approval(browser: Browser, stage: Stage, hands: Hands, width: int) -> None:
    rooms, puppet = stage.harness.rooms, stage.puppet
    sandbox = rooms.sandboxes.add({"name": "careful", "config": {"permission": "ask"}})
    agent = rooms.agents.create("gardener", workspaces=["notes"], sandbox=sandbox.name)
    with Person.at(browser, stage, hands, width) as ada:
        ada.signs_in(f"/a/{agent.id}")
        ada.types("Message to gardener", "Note that the roses need water.")
        ada.presses("button", "Send")
        puppet.says("I will ", "write it ", "down.")
        if hands != "no script":
            expect(ada.page.locator("#arriving")).to_contain_text("write it", timeout=WAIT_MS)
        call = {"path": "notes/roses.md", "content": "- water the roses\n"}
        puppet.stops(ToolCall("toolu_1", "write", call))
        expect(ada.page.get_by_text("May write run")).to_be_visible(timeout=WAIT_MS)
        assert "notes/roses.md" not in stage.harness.workspaces.get("notes").files()
        puppet.stops("The roses are noted.")
        ada.presses("button", "Approve")
        expect(ada.page.get_by_text("The roses are noted.")).to_be_visible(timeout=WAIT_MS)
        assert "notes/roses.md" in stage.harness.workspaces.get("notes").files()
        ada.presses("link", "changed notes")
        ada.sees("water the roses")


@every_way
def test_examining_a_decision_again(
    browser: Browser, stage: Stage, hands: Hands, width: int
) -> None:
    harness, puppet = stage.harness, stage.puppet
    harness.agents.patch("assistant", {"config": {"card": "trade-decision"}})
    bought = {"asset": "BTC", "action": "BUY", "reason": "A breakout."}
    puppet.stops(ToolCall("toolu_1", "submit_result", bought))
    run = harness.finish_run(harness.runs.start("assistant", "Decide.").id).run
    with Person.at(browser, stage, hands, width) as ada:
        ada.signs_in()
        ada.presses("link", "Decisions")
        ada.presses("button", "Re-examine BUY · A breakout.")
        review = {
            "conviction_score": 35,
            "notes": "The volume is gone.",
            "suggested_action": "CLOSE",
        }
        puppet.stops(ToolCall("toolu_2", "submit_result", review))
        ada.sees("The volume is gone.")
        ada.presses("link", "an earlier decision")
        ada.sees("Conviction history")
        ada.types("Outcome", "loss")
        ada.chooses("Resolution", "resolved")
        ada.presses("button", "Save outcome")
        ada.sees("It is resolved, and is not examined again.")
    view = harness.rooms.decisions.get(run.id)
    assert (view.run.outcome, view.run.resolution_status) == ("loss", "resolved")
    assert view.decision.data == bought


def test_denying_a_call_and_cancelling_a_turn(browser: Browser, stage: Stage) -> None:
    rooms, puppet = stage.harness.rooms, stage.puppet
    sandbox = rooms.sandboxes.add({"name": "careful", "config": {"permission": "ask"}})
    agent = rooms.agents.create("gardener", workspaces=["notes"], sandbox=sandbox.name)
    with Person.at(browser, stage) as ada:
        ada.signs_in(f"/a/{agent.id}")
        ada.types("Message to gardener", "Delete everything.")
        ada.presses("button", "Send")
        puppet.stops(ToolCall("toolu_1", "write", {"path": "MEMORY.md", "content": ""}))
        expect(ada.page.get_by_text("May write run")).to_be_visible(timeout=WAIT_MS)
        ada.types("Reason", "not that")
        puppet.stops("I leave it.")
        ada.presses("button", "Deny")
        expect(ada.page.get_by_text("I leave it.")).to_be_visible(timeout=WAIT_MS)
        ada.types("Message to gardener", "Think for long.")
        ada.presses("button", "Send")
        ada.presses("button", "Cancel this turn")
        ada.sees("turn was cancelled.")


def test_a_run_is_started_and_its_page_follows_it(browser: Browser, stage: Stage) -> None:
    agent = stage.harness.agents.get("assistant")
    with Person.at(browser, stage) as ada:
        ada.signs_in(f"/a/{agent.id}/runs")
        ada.types("Prompt", "Water the roses.")
        ada.presses("button", "Run")
        stage.puppet.stops("They are **wet**.")
        expect(ada.page.locator(".panel strong", has_text="wet")).to_be_visible(timeout=WAIT_MS)
        expect(ada.page.locator("h1 .badge")).to_have_text("succeeded")
        ada.presses("link", "transcript")
        ada.presses("link", "what it was shown")
        ada.sees("memory/notes")


def test_active_memory_is_turned_on_shared_and_reset(browser: Browser, stage: Stage) -> None:
    agent = stage.harness.agents.get("assistant")
    with Person.at(browser, stage) as ada:
        ada.signs_in(f"/a/{agent.id}")
        ada.presses("summary", "Turn on")
        ada.presses("button", "Share one session")
        ada.sees("Active memory is on")  # the page before says that it starts afresh
        ada.types("Message to assistant", "Remember the roses.")
        ada.presses("button", "Send")
        stage.puppet.stops("I do.")
        ada.sees("Carrying context")
        ada.opens("/")
        ada.sees("Carrying context")
        ada.presses("button", "Reset assistant")
        ada.sees("starts afresh")
        assert stage.harness.rooms.runs.memory(agent.id).session_id is None
        ada.opens(f"/a/{agent.id}")
        ada.sees("I do.")
        ada.presses("button", "Turn off")
        ada.sees("Active memory is off.")


def test_a_key_is_shown_once_and_revoked(browser: Browser, stage: Stage) -> None:
    with Person.at(browser, stage) as ada:
        ada.signs_in("/keys")
        ada.presses("summary", "New key")
        ada.types("Label", "laptop")
        ada.presses("button", "Create key")
        secret = ada.page.locator("#secret").inner_text()
        assert secret.startswith("wh_")
        assert secret not in ada.page.url
        ada.opens("/keys")
        assert secret not in ada.page.content()
        ada.presses("summary", "Revoke laptop")
        ada.presses("button", "Revoke laptop")
        ada.sees("Revoked.")
        assert [key.label for key in stage.harness.rooms.keys.list()] == ["of the test"]


def test_settings_and_history_by_mouse(browser: Browser, stage: Stage) -> None:
    agent = stage.harness.agents.get("assistant")
    notes = stage.harness.workspaces.get("notes").record
    with Person.at(browser, stage) as ada:
        ada.signs_in(f"/a/{agent.id}")
        ada.presses("link", "Edit")
        ada.types("Instructions", "Answer in verse.")
        ada.types("Schedule (cron", "0 9 * * 1-5")
        ada.types("Prompt of a run", "Look at the tasks.")
        ada.presses("button", "Save")
        ada.sees("Saved.")
        config = stage.harness.agents.get("assistant").config
        assert config.system == "Answer in verse."
        assert config.schedule is not None
        assert [one.workspace_id for one in config.workspaces] == [notes.id]
        ada.presses("link", "Next prompt")
        ada.sees("Parts, in their order")
        ada.opens(f"/w/{notes.id}/history")
        ada.page.locator(".revision a").first.click()
        ada.presses("button", "Undo this revision")
        ada.sees("That change is undone.")


@every_way
def test_adding_and_editing_a_row(browser: Browser, stage: Stage, hands: Hands, width: int) -> None:
    record = stage.harness.workspaces.record("notes")
    facts = stage.harness.rooms.facts.of_workspace(record.id)
    facts.put("user.pet", "A cat.", by=Author("assistant", "agent_1", "extract"))
    with Person.at(browser, stage, hands, width) as ada:
        ada.signs_in(f"/w/{record.id}/memory")
        ada.types("Key", "user.tone")
        ada.types("Value", "Short answers.", exact=True)
        ada.presses("button", "Add row")
        ada.sees("Added.")
        ada.presses("button", "Pin user.tone")
        ada.sees("Pinned.")
        ada.presses("summary", "Make it mine and edit user.pet")
        ada.types("Value of user.pet", "Two cats.")
        ada.presses("button", "Save", within=ada.page.locator("details[open]"))
        ada.sees("Saved.")
        ada.presses("button", "Delete user.tone")
        ada.presses("button", "Undo")
        ada.sees("That change is undone.")
    rows = [(row.key, row.value, row.source, row.pinned) for row in facts.list()]
    assert rows == [
        ("user.tone", "Short answers.", "manual", True),
        ("user.pet", "Two cats.", "manual", False),
    ]


def test_a_rule_is_tried_while_it_is_typed_and_a_workspace_comes_back(
    browser: Browser, stage: Stage
) -> None:
    rooms = stage.harness.rooms
    rooms.workspaces.create("plans")
    rooms.workspaces.delete("plans")
    with Person.at(browser, stage, "keyboard", 390) as ada:
        ada.signs_in("/forbid")
        ada.types("Try it on a text", "order ACME-123456")
        ada.types("Pattern or text", "ACME-[0-9]{6}")
        ada.sees("1 place would be refused:")
        assert rooms.forbidding.list() == []
        ada.presses("button", "Forbid from now on")
        ada.sees("Forbidden from now on.")
        assert [rule.pattern for rule in rooms.forbidding.list()] == ["ACME-[0-9]{6}"]
        ada.presses("link", "Trash")
        ada.presses("summary", "Restore plans")
        ada.types("Name", "old plans", exact=True)
        ada.presses("button", "Restore plans under this name")
        ada.sees("It is back")
    assert rooms.workspaces.record("old plans")
