"""Forty canaries: a different phrase in each kind of place that a home has."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Harness
from harness.memorize.memorize_request import MemorizeRequest
from harness.memorize.sent_conversation import SentConversation
from harness.messages.event import Event
from harness.messages.message import Message, Text, Thinking, ToolCall, ToolResult
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Carried, Entry
from workspaces.ids import TurnId
from workspaces.revision import Author
from workspaces.storage.records import Key, Put
from workspaces.timestamp import Stamp
from workspaces.validation import parse

PATTERN = "canary [a-z]+ sings at dawn"
_WORDS = """
amber birch cedar delta ember frost grove heath inlet jetty knoll larch marsh north ocean plaza quarry ridge
slate tidal umber vista willow xenon yarrow zephyr acorn brook cliff dune eaves fjord glade haven islet jasper
kelp lotus maple nectar opal pebble quartz reef spruce thicket upland valley
"""
WORDS = _WORDS.split()
FREED = "a freed page of SQLite"


def phrase(word: str) -> str:
    return f"canary {word} sings at dawn"


@dataclass
class Garden:
    """A home with a canary in each place."""

    harness: Harness
    home: Path
    where: dict[str, str]
    """What kind of place each word stands in."""

    def put(self, where: str) -> str:
        """Return the phrase for a kind of place."""
        if where not in self.where.values():
            self.where[WORDS[len(self.where)]] = where
        return self.of(where)

    def of(self, where: str) -> str:
        """Return the phrase in a kind of place."""
        return next(phrase(word) for word, one in self.where.items() if one == where)

    @property
    def phrases(self) -> list[str]:
        return [phrase(word) for word in self.where]


def plant(harness: Harness, home: Path) -> Garden:
    garden = Garden(harness, home, {})
    for step in (_files, _conversations, _records, _archives, _other_files, _raw):
        step(garden)
    assert len(garden.where) >= 38
    return garden


def plant_in_records(harness: Harness, home: Path) -> Garden:
    """Plant canaries in conversations and other records, wherever those are."""
    garden = Garden(harness, home, {})
    for step in (_conversations, _records):
        step(garden)
    return garden


def plant_beside(first: Garden, harness: Harness, home: Path) -> None:
    """Plant the same canaries on another machine, in the same places but the files of a shared workspace."""
    garden = Garden(harness, home, first.where)
    for step in (_conversations, _records, _archives, _other_files, _raw):
        step(garden)


def _files(garden: Garden) -> None:
    rooms, put = garden.harness.rooms, garden.put
    notes = rooms.workspaces.get("notes")
    by = rooms.principal.author("api")
    notes.write("birds.md", f"- one\n- {put('a line of a file')}\n- three\n", by=by)
    notes.write("notes/deep.md", f"# Deep\n\n{put('a file in a folder')}\n", by=by)
    across = put("a phrase across lines, in capitals")
    notes.write("plain.md", f"{across}\n", by=by)
    shouted = across.upper().replace(" SINGS", "**\nSINGS").replace("AT ", "_at_ ")
    notes.write("lines.md", f"first\n- **{shouted}\nlast\n", by=by)
    notes.write("old.md", f"{put('an old version')}\n", by=by)
    notes.write("old.md", "another text\n", by=by)
    notes.write("gone.md", f"{put('a deleted file')}\n", by=by)
    notes.delete("gone.md", by=by)
    named = put("the name of a file")
    notes.write(f"notes/{named}.md", f"about {named}\n", by=by)
    notes.write("raw.bin", b"\xff\xfe\x00" + put("a binary file").encode() + b"\x00", by=by)
    spoken = put("the author of a revision")
    notes.write("said.md", f"{spoken}\n", by=by)
    who = Author(spoken, by.id, "api", {"Imported": put("a trailer") + ".zip"})
    notes.write("said.md", f"{spoken}\n{who.trailers['Imported']}\n", by=who)
    rooms.facts.of_workspace("notes").put("bird", put("a fact"), by=by)
    assert notes.recall.find("canary") is not None  # now the index holds them


def _entry(number: int, role: Any, *parts: Any, **more: Any) -> Entry:
    at = Stamp("2026-11-18T14:03:18.875130Z")
    return Entry(number, at, TurnId("turn_1"), Message(role, parts), **more)


def _conversations(garden: Garden) -> None:
    rooms, put = garden.harness.rooms, garden.put
    agent_id = rooms.agents.list()[0].id
    garden.harness.run(f"Remember that {put('what a model was shown')}.", conversation="c1")
    big = f"{'x ' * 40_000}{put('a large entry')}"
    said = put("JSON in a result")
    escaped = said + ", " + said.replace(" sings at ", "\\nsings\\u0020at\\t")
    entries = [
        _entry(1, "user", Text(f"I heard: {put('a message of the user')}"), event_id="evt_c"),
        _entry(
            2,
            "assistant",
            Thinking({"type": "thinking", "thinking": put("a signed block"), "signature": "c2ln"}),
            Text(f"Yes: {put('a reply')}"),
            ToolCall("toolu_1", "bash", {"command": put("the input of a call")}),
        ),
        _entry(
            3, "user", ToolResult("toolu_1", f"{put('the result of a call')}\n{{'a': '{escaped}'}}")
        ),
        _entry(4, "assistant", Text("Done."), kind="flush"),
        _entry(5, "user", Text(big), system=(put("permanent instructions"),)),
        _entry(6, "assistant", Text(put("a summary")), kind="summary", covers=3),
    ]
    whole = {"toolu_1": put("the whole of a shortened result")}
    session = new_session(1, Stamp("2026-11-18T14:03:18.875130Z"))
    carried = (Carried(one, whole if one.number == 3 else {}) for one in entries)
    original = rooms.conversations.add(agent_id, "c2", [session], carried)
    rooms.conversations.fork(original, "c3", 2)
    rooms.records.write(
        Put(Key(f"learning:{original.id}", "state"), {"until": 0, "reply": {"a": put("a pass")}})
    )


def _records(garden: Garden) -> None:
    rooms, put = garden.harness.rooms, garden.put
    agent = rooms.agents.list()[0]
    for text in (put("a queued event"), "y " * 20_000 + put("a large queued event")):
        event = Event.said(f"evt_{len(text)}", "c4", text)
        accepted = asyncio.run(rooms.dispatcher.enqueue(agent, event))
        if accepted.lease is not None:
            rooms.dispatcher.leases.release(accepted.lease)
    rooms.agents.patch(agent.id, {"config": {"system": put("the instructions of an agent")}})
    rooms.workspaces.patch("notes", {"description": put("a description")})
    rooms.keys.create(label=put("the label of a key"))
    rooms.runs.start(agent.id, put("the prompt of a run"))
    rooms.chains.start([agent.id], put("the task of a chain"))
    key = Key("jobs", "erase:conv_0")
    payload = {"accountId": rooms.principal.account_id, "note": put("a job")}
    rooms.records.write(
        Put(key, {"kind": "none", "due": "2099-01-01T00:00:00Z", "payload": payload})
    )


def _archives(garden: Garden) -> None:
    rooms, put = garden.harness.rooms, garden.put
    said = put("a quoted conversation")
    sent = parse_sent(
        {
            "id": "sent-1",
            "provider": "codex",
            "title": put("the title of an archive"),
            "messages": [{"role": "user", "text": f"They told me {said}, twice."}],
        }
    )
    request = parse(
        MemorizeRequest,
        {
            "content": f"It is true that {put('a memorized fact')}",
            "groundings": [{"quote": said}],
            "workspace": "notes",
            "conversation_id": "sent-1",
        },
    )
    author = rooms.principal.author("memorize")
    rooms.memorizer.memorize(request, by=author, sent=sent.whole(rooms.clock))


def parse_sent(value: dict[str, Any]) -> SentConversation:
    return parse(SentConversation, value)


def _other_files(garden: Garden) -> None:
    rooms, home, put = garden.harness.rooms, garden.home, garden.put
    old = rooms.workspaces.create("old")
    old.write("a.md", f"{put('a file in the trash')}\n", by=rooms.principal.author("api"))
    old.write("b.md", f"{put('a history in the trash')}\n", by=rooms.principal.author("api"))
    old.delete("b.md", by=rooms.principal.author("api"))
    if old.edits.remote is not None:
        rooms.workspaces.sync("old").run()
    rooms.workspaces.delete("old")
    notes = rooms.workspaces.get("notes")
    (home / "staging" / notes.namespace / "left").write_text(put("a temporary file"))
    (home / "templates" / "own").mkdir(parents=True)
    (home / "templates" / "own" / "MEMORY.md").write_text(put("a template"))
    (home / "used").mkdir(exist_ok=True)
    (home / "used" / "codex-000000000000.json").write_text(
        f'{{"after": "{put("a configuration")}"}}'
    )
    (home / "search" / "local-conversations.json").write_text(f'["{put("a cached title")}"]')


def _raw(garden: Garden) -> None:
    """What no reader of the harness would see."""
    rooms, home, put = garden.harness.rooms, garden.home, garden.put
    notes = rooms.workspaces.get("notes")
    git = ["git", f"--git-dir={home / 'history' / f'{notes.namespace}.git'}"]
    blob = put("an object that no revision reaches")
    subprocess.run(
        [*git, "hash-object", "-w", "--stdin"], input=blob.encode(), check=True, capture_output=True
    )
    expired = Put(Key("claims:nobody", "evt"), {"text": put("an expired record")}, expires_at=1.0)
    rooms.records.write(expired)


def free_a_page(garden: Garden) -> None:
    """Delete a row from the database, so that its bytes stay in free pages until others need these."""
    key = Key("learning:conv_1", "state")
    freed = garden.put(FREED)
    garden.harness.rooms.records.write(Put(key, {"text": f"{freed} " * 1_000}))
    with closing(sqlite3.connect(garden.home / "state.db", isolation_level=None)) as database:
        database.execute("pragma wal_checkpoint(truncate)")
        database.execute("pragma secure_delete = off")  # some builds have it on
        database.execute("delete from item where partition = 'learning:conv_1'")
        database.execute("pragma wal_checkpoint(truncate)")
