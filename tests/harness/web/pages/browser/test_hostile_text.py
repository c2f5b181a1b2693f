"""Text of strangers on every page: none of it runs, none becomes an element, no page breaks."""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from harness.memory.blocks.block import BLOCK_TYPES
from harness.memory.blocks.condition import UNCONDITIONAL
from harness.messages.message import ToolCall
from tests.harness.web.pages.browser.stage import Person, Stage, assert_harmless

RUN = "canary_ran=1"

FORMS = (
    "<script>{run}</script>",
    "<x-canary>",
    "</textarea><script>{run}</script>",
    "</title><script>{run}</script>",
    "</pre></main><x-canary>",
    '"><img src=x onerror={run}>',
    "'><img src=x onerror={run}>",
    '" onfocus={run} autofocus x="',
    "' onmouseover={run} x='",
    "` onclick={run} x=`",
    "<svg/onload={run}>",
    "<svg><script>{run}</script></svg>",
    "<math><mtext><x-canary></mtext></math>",
    "<iframe srcdoc='<script>{run}</script>'></iframe>",
    "<style>*{{display:none}}</style><x-canary>",
    "[x](javascript:{run})",
    "[x](JaVaScRiPt:{run})",
    "[x](data:text/html,<script>{run}</script>)",
    "![x](x onerror={run})",
    "<javascript:{run}>",
    "{{{{7*7}}}}<x-canary>",
    "{{% raw %}}<x-canary>",
    "<!--><x-canary>-->",
    "&lt;x-canary&gt;<x-canary/>",
    "\u2028<x-canary>",
)
PREFIXES = ("", "- ", "# ", "> ")
PAYLOADS = [prefix + form.format(run=RUN) for prefix in PREFIXES for form in FORMS]
NAMES = [
    payload for payload in PAYLOADS[: len(FORMS)] if payload.isprintable() and len(payload) < 90
]


def examined(stage: Stage, agent: str) -> tuple[str, str]:
    """A decision and a later look at it, of which every text that a model or a person states is hostile."""
    harness, decisions = stage.harness, stage.harness.rooms.decisions
    harness.agents.patch(agent, {"config": {"card": "decision"}})
    whole = "\n\n".join(PAYLOADS)
    watched = ["".join(PAYLOADS[at::10]) for at in range(10)]
    data = {"verdict": NAMES[0], "reason": whole[:1000], "watch_for": watched}
    stage.puppet.stops(ToolCall("toolu_1", "submit_result", data))
    run = harness.finish_run(harness.runs.start(agent, whole).id).run
    statuses = ("played_out", "failed", "pending")
    review = {
        "conviction_score": 1,
        "notes": whole[-1000:],
        "suggested_action": "DROP",
        "watch_for": [
            {"item": one[:1000], "status": statuses[at % 3], "evidence": one[:2000]}
            for at, one in enumerate(watched)
        ],
    }
    stage.puppet.stops(ToolCall("toolu_2", "submit_result", review))
    look = harness.finish_run(harness.runs.re_examine(run.id).id).run
    assert (run.status, look.status) == ("succeeded", "succeeded"), (run.error, look.error)
    decisions.set_outcome(run.id, NAMES[1][:80], {NAMES[2]: whole[:500]}, "active")
    return run.id, look.id


def test_there_are_a_hundred_payloads() -> None:
    assert len(set(PAYLOADS)) == 100


def test_no_page_runs_or_shows_as_markup_what_strangers_wrote(
    browser: Browser, stage: Stage
) -> None:
    harness, by = stage.harness, stage.harness.rooms.principal.author("api")
    whole = "\n\n".join(PAYLOADS)
    rooms = harness.rooms
    place = rooms.workspaces.create(NAMES[0], description=whole[:900])
    for number, payload in enumerate(PAYLOADS):
        name = "".join(c for c in payload if c not in '<>:"|?*/\\`%\u2028')[:60].strip(". ")
        place.write(f"notes/{number} {name}.md", payload, by=by)
    place.write("notes/all.md", whole, by=by)
    place.write("all.txt", whole, by=by)
    (place.root / "all.conflict-0123456789ab.txt").write_text(whole[::-1])
    (place.root / "bad:<x-canary>.md").write_text(whole)
    sandbox = rooms.sandboxes.add({"name": NAMES[1]})
    agent = rooms.agents.create(
        NAMES[2], workspaces=[place], sandbox=sandbox.name, system=whole, model=NAMES[3]
    )
    for name in NAMES[4:]:
        rooms.users.add({"name": name, "externalId": name})
        rooms.keys.create(label=name)
    stage.puppet.stops(whole)
    harness.run(whole, agent=agent, conversation=NAMES[5])
    conversation = rooms.conversations.list(agent.id)[0]
    turn = harness.explain(conversation).turns()[0]
    revision = place.history.tip()
    run, look = examined(stage, agent.id)
    for block_type in BLOCK_TYPES:
        text = whole.replace("\n", " ")[:3900]
        rooms.blocks.put(rooms.blocks.place_of(block_type, agent.id), text, UNCONDITIONAL, by=by)
    rooms.forbidding.forbid({"match": re.escape(PAYLOADS[0])})
    (place.root / f"{NAMES[-1]}.md".replace("/", "")).write_text(PAYLOADS[0])
    rooms.workspaces.create(NAMES[-1])
    rooms.workspaces.delete(NAMES[-1])
    base = f"/w/{place.record.id}"
    asked = quote(whole[:1500])
    pages = [
        *(
            "/",
            "/keys",
            "/users",
            "/forbid",
            "/trash",
            "/usage",
            "/usage?by=agent",
            "/usage?by=conversation",
        ),
        *(f"/usage?by={one}" for one in ("user", "model", "purpose")),
        f"{base}/files",
        f"{base}/files/notes/all.md",
        f"{base}/files/notes/all.md?edit=1",
        f"{base}/files/all.txt",
        f"{base}/history",
        f"{base}/history?path={quote('notes/all.md')}&author={asked}&conversation={asked}",
        f"{base}/history/{revision}",
        f"{base}/problems",
        f"{base}/recall?q=canary",
        f"{base}/recall?q={asked}&path={asked}&by={asked}&since={asked}&kind={asked}",
        f"/a/{agent.id}",
        f"/a/{agent.id}?edit=1",
        f"/a/{agent.id}?c={quote(NAMES[6])}",
        f"/a/{agent.id}/prompt?c={quote(NAMES[5])}&message={asked}",
        f"/a/{agent.id}/prompt?c={quote(NAMES[5])}&at=1",
        f"/a/{agent.id}/blocks/core",
        f"/a/{agent.id}/runs",
        "/decisions",
        f"/decisions?type={asked}&behind={asked}",
        f"/runs/{run}",
        f"/runs/{look}",
        f"/c/{conversation.id}",
        f"/c/{conversation.id}/turns/{turn.id}?text=1",
        f"/sign-in?next={asked}",
        f"/?said={asked}&undo={asked}",
        f"/w/{asked}/files",
    ]
    with Person.at(browser, stage) as ada:
        ada.signs_in()
        for path in pages:
            ada.opens(path)
        for link in ada.page.locator("main a").all():
            address = link.get_attribute("href") or ""
            assert not address.lower().startswith(("javascript:", "data:")), address


def test_a_value_that_is_not_escaped_would_be_found(browser: Browser, stage: Stage) -> None:
    """The check itself sees each form of payload that a browser would take for markup."""
    with Person.at(browser, stage) as ada:
        ada.signs_in()
        html = ada.page.content()
        for planted in ("<x-canary>", '<img src="/x" onerror="1">', "<script>1</script>"):
            broken = html.replace("</main>", f"{planted}</main>")
            ada.page.route(
                "**/planted",
                lambda route, _, body=broken: route.fulfill(body=body, content_type="text/html"),
            )
            ada.page.goto(f"{stage.url}/planted")
            with pytest.raises(AssertionError):
                assert_harmless(ada.page)
            ada.page.unroute("**/planted")
        assert escape("<x-canary>") not in html
        ada.trouble.clear()


def test_a_form_on_another_site_changes_nothing(browser: Browser, stage: Stage) -> None:
    with Person.at(browser, stage) as ada:
        ada.signs_in()
        before = {one.name for one in stage.harness.workspaces.list()}
        form = (
            f'<form id="f" method="post" action="{stage.url}/workspaces">'
            '<input name="name" value="stolen"></form><script>f.submit()</script>'
        )
        ada.page.route(
            "http://evil.example/**",
            lambda route: route.fulfill(body=form, content_type="text/html"),
        )
        ada.page.goto("http://evil.example/")
        ada.page.wait_for_url(f"{stage.url}/**")
        assert {one.name for one in stage.harness.workspaces.list()} == before
        ada.trouble.clear()
        ada.opens("/")
        ada.sees("notes")
