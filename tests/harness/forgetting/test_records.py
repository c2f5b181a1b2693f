"""Phrases in the records of an account: conversations, what was shown, queued events, runs, archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.forgetting.found import Findings
from harness.forgetting.record_places import AccountPlaces
from harness.forgetting.records import RecordRedaction
from tests.harness.forgetting.scan import holders
from workspaces.forgetting.matcher import Matcher
from workspaces.forgetting.tombstone import tombstone_of
from workspaces.storage.sqlite import wipe_records

KEY = b"k" * 32
SECRET = "the heron nests in Galway"
TOMBSTONE = tombstone_of(SECRET, KEY)


def redaction(harness: Harness, *touched: str) -> RecordRedaction:
    rooms = harness.rooms
    return RecordRedaction(
        AccountPlaces(rooms.principal.account_id, rooms.records),
        rooms.records,
        harness.house.large,
        Matcher([TOMBSTONE], KEY),
        frozenset({TOMBSTONE.mark}),
        frozenset(touched),
    )


def test_a_conversation_keeps_its_shape_and_loses_the_phrase(harness: Harness) -> None:
    harness.run(f"Remember that {SECRET}.", conversation="c1")
    harness.run("Where does the HERON\nnests? In galway?", conversation="c1")
    before = harness.conversation("c1")
    entries = list(harness.conversations.transcript(before).entries())
    findings = Findings()

    redaction(harness).find(findings)
    assert findings.of("conversation") > 0
    assert findings.of("snapshot") > 0

    assert redaction(harness).rewrite(harness.conversations, Findings()) == []

    after = list(harness.conversations.transcript(before).entries())
    assert [one.number for one in after] == [one.number for one in entries]
    assert TOMBSTONE.mark in after[0].message.text
    again = Findings()
    redaction(harness).find(again)
    assert again.found == ()
    assert harness.run("What is next?", conversation="c1").status == "done"


def test_hashes_of_what_was_redacted_go(harness: Harness) -> None:
    harness.run(f"Remember that {SECRET}.", conversation="c1", event_id="evt_1")
    harness.run("An unrelated question.", conversation="c2", event_id="evt_2")
    redaction(harness).rewrite(harness.conversations, Findings())
    log = harness.conversations.prompt_log(harness.conversation("c1"))
    assert all(one.digest == f"redacted: {TOMBSTONE.id}" for one in log.receipts())
    repeated = harness.run(f"Remember that {SECRET}.", conversation="c1", event_id="evt_1")
    assert repeated.status == "done"


def test_no_byte_is_left_in_the_database(harness: Harness, home: Path) -> None:
    harness.run(f"Remember that {SECRET}.", conversation="c1")
    assert "state.db" in " ".join(holders(home, SECRET))
    redaction(harness).rewrite(harness.conversations, Findings())
    wipe_records(home / "state.db", harness.house.clock.now().timestamp())
    assert not [one for one in holders(home, SECRET) if "state.db" in one]


def test_every_partition_of_a_home_in_use_is_known(harness: Harness, home: Path) -> None:
    import sqlite3

    harness.run(f"Remember that {SECRET}.", conversation="c1")
    places = AccountPlaces(harness.rooms.principal.account_id, harness.rooms.records)
    known = {one.partition for one in places.others()}
    for conversation_id in places.subjects().conversations:
        known |= {one.partition for one in places.of_conversation(conversation_id)}
    with sqlite3.connect(home / "state.db") as database:
        stored = {row[0] for row in database.execute("select distinct partition from item")}
    without_text = ("conversation-lease:", "usage:", "allowance:", "jobs", "conversations:")
    assert not [
        one
        for one in stored - known
        if not one.startswith(
            (*without_text, "active-memory:", "learning-", "accounts", "agent-runs")
        )
    ]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({"role": "user", "parts": [{"type": "text", "text": f"x {SECRET} y"}]}, 1),
        ({"lines": ["the heron nests", "in Galway"]}, 1),
        ({"input": {SECRET: "a key"}}, 1),
        ({"text": '{"a": "the heron\\nnests in \\u0047alway"}'}, 1),
        ({"type": "thinking", "thinking": SECRET, "signature": "abc"}, 1),
        ({"name": SECRET}, 0),
    ],
)
def test_text_is_found_in_every_form_of_json(value: dict[str, object], count: int) -> None:
    from harness.forgetting.redaction import JsonRedactor

    redactor = JsonRedactor(Matcher([TOMBSTONE], KEY))
    redacted = redactor.object(value)
    assert redactor.count == count
    assert redactor.names == (0 if count else 1)
    assert (str(redacted) == str(value)) == (count == 0)
    assert redactor.object(redacted) == redacted


def test_each_name_that_stays_is_told_with_the_command_that_changes_it(harness: Harness) -> None:
    rooms = harness.rooms
    place = rooms.workspaces.create(SECRET, description=f"Where {SECRET}.").id
    agent = rooms.agents.create(SECRET, workspaces=[SECRET])
    user = rooms.users.add({"name": "Ada", "externalId": SECRET})
    harness.run("Hello.", agent=agent, conversation=SECRET)
    (conversation,) = harness.conversations.list()
    findings = Findings()
    redaction(harness).rewrite(harness.conversations, findings)
    told = {one.where: one.why for one in findings.unreachable}
    named = f"a name in conversation {conversation.id}"
    assert f"`harness workspace set {place} --name NEW`" in told[f"the name of workspace {place}"]
    assert f"`harness agent set {agent.id} --name NEW`" in told[f"the name of agent {agent.id}"]
    assert f"harness user set {user.id} --external-id NEW" in told[f"the name of user {user.id}"]
    assert f"`harness conversation fork {conversation.id} NEW`" in told[named]
    assert SECRET not in str(told)
    # names are as they were, and descriptions are not
    record = rooms.workspaces.get(place).record
    assert (record.name, rooms.users.get(SECRET).id) == (SECRET, user.id)
    assert record.description == f"Where {TOMBSTONE.mark}."
