"""A forgetting as a whole: what may be asked, what waits, what goes on after a crash, what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.backup.create import create
from harness.forgetting.forgetting import Forgetting
from harness.forgetting.forgettings import Forgettings
from harness.forgetting.selection import ForgettingRequest, LineReference
from harness.forgetting.verify import verify
from harness.memorize.memorize_request import MemorizeRequest
from harness.messages.event import Event
from harness.models.scripted import ScriptedModel
from tests.harness.forgetting.scan import holders
from workspaces.errors import Failure, Forbidden, NotFound, OverLimit, Refused, Unavailable
from workspaces.validation import parse

SECRET = "the heron nests in Galway"


def write(harness: Harness, files: Mapping[str, str]) -> None:
    by = harness.rooms.principal.author("api")
    for path, text in files.items():
        harness.workspaces.get("notes").write(path, text, by=by)


def forgotten(harness: Harness, **asked: Any) -> Forgetting:
    forgettings = harness.rooms.forgettings
    return forgettings.run_here(forgettings.start(forgettings.plan(ForgettingRequest(**asked))).id)


LINE = LineReference(workspace="notes", path="a.md", number=99)
REFUSED: list[tuple[dict[str, Any], type[Failure], str]] = [
    ({}, Refused, "exactly one"),
    ({"text": "a b c", "match": "d"}, Refused, "exactly one"),
    ({"text": " \n"}, Refused, "is empty"),
    ({"text": "x" * 4_001}, OverLimit, "4,000"),
    ({"text": "tea"}, Refused, "at least 3 words"),
    ({"match": "["}, Refused, "not a regular expression"),
    ({"match": "x*"}, Refused, "empty text"),
    ({"revision": "main"}, Refused, "hex digits"),
    ({"revision": "0" * 40}, NotFound, "revision"),
    ({"conversation": "nobody"}, NotFound, "conversation"),
    ({"line": LINE}, Refused, "after the last"),
    ({"text": "all the same"}, Refused, "of 60 lines"),
]


def test_what_cannot_be_asked_is_refused(harness: Harness) -> None:
    write(harness, {"a.md": "all the same\n" * 40})
    for asked, failure, words in REFUSED:
        with pytest.raises(failure, match=words):
            harness.rooms.forgettings.plan(ForgettingRequest(**asked))
    assert harness.rooms.forgettings.stored.list() == []
    asked_for = ForgettingRequest(text="all the same", many=True)
    assert harness.rooms.forgettings.plan(asked_for).lines.matching == 40


def test_a_users_key_may_not(harness: Harness) -> None:
    forgettings = harness.rooms.forgettings
    user = replace(forgettings.principal, may_configure=False)
    with pytest.raises(Forbidden):
        replace(forgettings, principal=user).plan(ForgettingRequest(text=SECRET))


def test_nothing_found_is_refused_from_then_on_all_the_same(harness: Harness) -> None:
    done = forgotten(harness, text=SECRET)
    assert (done.status, done.found) == ("done", ())
    assert [*harness.rooms.forgettings.rules.known().rules] == [*done.tombstones]


def test_unrelated_lines_stay_byte_for_byte(harness: Harness) -> None:
    write(harness, {"a.md": f"one\r\n- **{SECRET}**!\n\tthree\n", "b.md": "the heron nests\n"})
    first = harness.workspaces.get("notes").history.tip()
    assert first is not None
    done = forgotten(harness, text=SECRET, reason=f"because {SECRET}")
    assert done.reason == f"because [forgotten {done.tombstones[0]}]"
    notes = harness.workspaces.get("notes")
    assert (
        notes.read("a.md").data
        == f"one\r\n- **[forgotten {done.tombstones[0]}]**!\n\tthree\n".encode()
    )
    assert notes.read("b.md").text == "the heron nests\n"
    assert notes.read("b.md", view=first).text == "the heron nests\n"


def test_a_line_and_a_revision_go_by_their_text(harness: Harness, home: Path) -> None:
    write(harness, {"a.md": f"one\n- {SECRET}\n", "b.md": "my address is Herrengasse 4\nok\n"})
    added = harness.workspaces.get("notes").history.tip()
    line = LineReference(workspace="notes", path="a.md", number=2)
    assert forgotten(harness, line=line).status == "done"
    assert forgotten(harness, revision=added).status == "done"
    notes = harness.workspaces.get("notes")
    assert notes.read("b.md").text.endswith("]\nok\n")
    assert holders(home, SECRET) == holders(home, "my address is Herrengasse") == []


def test_a_conversation_goes_and_its_fork_stays(harness: Harness, home: Path) -> None:
    harness.run(f"I saw that {SECRET}.", conversation="c1")
    fork = harness.conversations.fork(harness.conversation("c1"), "c2")
    again = harness.conversations.fork(fork, "c2 again")
    harness.run("Another matter altogether.", conversation="c3")
    done = forgotten(harness, conversation="c1")
    assert done.status == "done"
    told = {one.where: one.why for one in done.unreachable}
    for one in (fork, again):
        assert f"`harness forget --conversation {one.id}`" in told[f"conversation {one.id}"]
    harness.conversations.delete(again)
    with pytest.raises(NotFound):
        harness.conversation("c1")
    entries = list(harness.conversations.transcript(harness.conversation("c2")).entries())
    assert SECRET in entries[0].message.text
    harness.conversations.delete(harness.conversation("c2"))
    forgotten(harness, conversation="c3")
    assert not [name for name in holders(home, SECRET) if name.startswith("state.db")]


def test_a_turn_that_holds_the_text_is_waited_for(harness: Harness, home: Path) -> None:
    harness.run(f"I saw that {SECRET}.", conversation="c1")
    harness.run("Another matter altogether.", conversation="c2")
    lease = harness.conversations.acquire(harness.conversation("c1"))
    forgettings = harness.rooms.forgettings
    started = forgettings.start(forgettings.plan(ForgettingRequest(text=SECRET)))
    waiting = forgettings.run_here(started.id)
    assert waiting.status == "waiting"
    assert "in use" in str(waiting.waits_for)
    harness.rooms.dispatcher.leases.release(lease)
    assert forgettings.run_here(started.id).status == "done"
    assert holders(home, SECRET) == []


@pytest.mark.parametrize("step", ["workspaces", "publish", "wipe"])
def test_a_crash_goes_on_without_the_text(harness: Harness, home: Path, step: str) -> None:
    harness.run(f"Remember that {SECRET}.", conversation="c1")
    whole = harness.rooms.forgettings
    started = whole.start(whole.plan(ForgettingRequest(text=SECRET)))
    with pytest.raises(RuntimeError):
        _crashing(whole, step).run(started.id)
    assert whole.run_here(started.id).status == "done"
    assert holders(home, SECRET) == []


def _crashing(whole: Forgettings, step: str) -> Forgettings:
    def crash(*_: object, **__: object) -> Any:
        raise RuntimeError("killed")

    match step:
        case "publish":
            return replace(whole, publish=crash)
        case "wipe":
            return replace(whole, wipe_records=crash)
        case _:
            return replace(whole, rewriter=_CrashingRewriter(whole.rewriter, crash))


class _CrashingRewriter:
    def __init__(self, inner: Any, crash: Callable[..., Any]) -> None:
        self.find = inner.find
        self.rewrite = crash


def test_a_job_in_flight_that_writes_the_text_again_is_undone(harness: Harness, home: Path) -> None:
    write(harness, {"a.md": f"{SECRET}\n"})
    whole = harness.rooms.forgettings
    tree = harness.workspaces.get("notes").root
    times: list[int] = []

    def publish() -> None:
        if not times:
            (tree / "late.md").write_text(f"- {SECRET}\n")
        times.append(1)

    late = replace(whole, publish=publish)
    done = late.run_here(late.start(late.plan(ForgettingRequest(text=SECRET))).id)
    assert (done.status, len(times)) == ("done", 2)
    assert holders(home, SECRET) == []


def test_a_store_that_does_not_answer_is_waited_for(harness: Harness) -> None:
    write(harness, {"a.md": f"{SECRET}\n"})

    def away() -> None:
        raise Unavailable("the bucket", "it does not answer")

    away_now = replace(harness.rooms.forgettings, publish=away)
    started = away_now.start(away_now.plan(ForgettingRequest(text=SECRET)))
    waiting = away_now.run_here(started.id)
    assert (waiting.status, "does not answer" in str(waiting.waits_for)) == ("waiting", True)
    assert harness.rooms.forgettings.run_here(started.id).status == "done"


def test_a_summary_and_what_was_learned_are_named(harness: Harness) -> None:
    harness.run(f"I saw that {SECRET}.", conversation="c1")
    conversation = harness.conversation("c1")
    by = replace(
        harness.rooms.principal.author("extract"),
        trailers={"Conversation": f"{conversation.id} c1"},
    )
    harness.workspaces.get("notes").write("learned.md", "a large bird lives in the west\n", by=by)
    planned = harness.rooms.forgettings.plan(ForgettingRequest(text=SECRET))
    assert [one.startswith("learned: ") for one in planned.forgetting.may_repeat] == [True]


def test_verify_refuses_another_text(harness: Harness) -> None:
    done = forgotten(harness, text=SECRET)
    with pytest.raises(Refused, match="is not the text"):
        verify(harness.rooms.forgettings, done.id, "another text entirely")
    with pytest.raises(NotFound):
        verify(harness.rooms.forgettings, "forgetting_0", SECRET)


def test_a_cached_prompt_and_a_queued_event_do_not_show_it_again(
    scripted: Callable[..., tuple[Harness, ScriptedModel]],
) -> None:
    harness, model = scripted("One.", "Two.", "Three.")
    write(harness, {"MEMORY.md": f"- {SECRET}\n"})
    harness.run("What do you know?", conversation="c1")
    assert SECRET in str(model.requests[-1].as_json())
    agent = harness.agents.list()[0]
    accepted = asyncio.run(
        harness.rooms.dispatcher.enqueue(
            agent, Event.said("evt_1", "c1", f"Is it so that {SECRET}?")
        )
    )
    assert accepted.lease is not None
    harness.rooms.dispatcher.leases.release(accepted.lease)
    done = forgotten(harness, text=SECRET)
    assert done.status == "done"
    harness.run("And now?", conversation="c1")
    asked = [str(one.as_json()) for one in model.requests[1:]]
    assert len(asked) == 2
    assert not [one for one in asked if SECRET in one]
    assert f"Is it so that [forgotten {done.tombstones[0]}]?" in asked[0]


def test_a_backup_from_before_is_named(harness: Harness, home: Path, tmp_path: Path) -> None:
    write(harness, {"a.md": f"{SECRET}\n"})
    create(home, str(tmp_path / "saved"))
    (named,) = harness.rooms.forgettings.plan(ForgettingRequest(text=SECRET)).forgetting.unreachable
    assert named.where == "backup"
    assert str(tmp_path / "saved") in named.why
    assert "takes the text out again" in named.why
    harness.run("Another matter.", conversation="c1")
    for asked in (
        ForgettingRequest(conversation="c1"),
        ForgettingRequest(revision=harness.workspaces.get("notes").history.tip()),
    ):
        (named,) = harness.rooms.forgettings.plan(asked).forgetting.unreachable
        assert "brings back" in named.why


def test_a_backup_made_since_holds_nothing(harness: Harness, home: Path, tmp_path: Path) -> None:
    write(harness, {"a.md": f"{SECRET}\n"})
    harness.run(f"I think that {SECRET}.", conversation="c1")
    create(home, str(tmp_path / "before"))
    assert holders(tmp_path / "before", SECRET)
    forgotten(harness, text=SECRET)
    create(home, str(tmp_path / "since"))
    assert holders(tmp_path / "since", SECRET) == []


def test_what_was_archived_of_a_conversation_goes_with_it(harness: Harness, home: Path) -> None:
    harness.run("I saw a heron in Galway harbour today.", conversation="c1")
    conversation = harness.conversation("c1")
    request = {
        "conversation_id": conversation.id,
        "content": "birds live in the west",
        "groundings": [{"quote": "a heron in Galway harbour"}],
        "workspace": "notes",
    }
    rooms = harness.rooms
    author = rooms.principal.author("memorize")
    rooms.memorizer.memorize(parse(MemorizeRequest, request), by=author)
    assert rooms.memorizer.archives.list() != []
    done = forgotten(harness, conversation="c1")
    assert "archive" in {one.place.where for one in done.found}
    assert rooms.memorizer.archives.list() == []
    assert not [one for one in holders(home, "Galway harbour today") if one.startswith("entries")]
    assert [one for one in done.may_repeat if one.startswith("fact: mem_")]
