"""The request and its receipt, assembled from a snapshot, its deltas and the messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha1

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.context.assemble import Numbered, assemble
from harness.context.delta import Delta, PartChange
from harness.context.history_message import HistoryMessage
from harness.context.memory_parts import Memory
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.receipt import Entrance, digest, entrances, receipt, receipt_of
from harness.context.snapshot import Moment, ShownState, Snapshot, SnapshotKey, decide
from harness.messages.message import Message, Text, ToolCall, ToolResult, user
from harness.messages.model_request import ModelRequest
from harness.runtime.templates import render
from tests.harness.messages_rules import BREAKPOINTS_MAX
from workspaces.ids import TurnId
from workspaces.revision import RevisionId
from workspaces.timestamp import stamp_of

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
GUIDED = MountView("notes", True, "", True, True)
TERMS = SnapshotKey("ses_1", "1", "", "", "", "")


def moment(text: str, entry: int, at: datetime = NOW) -> Moment:
    revision = RevisionId(sha1(text.encode()).hexdigest())
    sources = Sources("Be kind.", (GUIDED,), (Memory("notes", text, revision),), at.date(), 40_000)
    return Moment(at, entry, TERMS, prompt_parts(sources, render))


class Session:
    """What the harness does at each step, without the harness."""

    def __init__(self) -> None:
        self.messages: list[Numbered] = []
        self.held: ShownState | None = None
        self.requests: list[ModelRequest] = []
        self.snapshots: list[int] = []
        self.receipts = []  # type: ignore[var-annotated]

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.messages.append((len(self.messages) + 1, message))

    def ask(self, memory: str, at: datetime = NOW) -> ModelRequest:
        news = decide(self.held, moment(memory, len(self.messages), at), render)
        if isinstance(news, Snapshot):
            self.held = ShownState(news, (), at)
        else:
            assert self.held is not None
            deltas = (*self.held.deltas, news) if news else self.held.deltas
            self.held = ShownState(self.held.snapshot, deltas, at)
        request = assemble(self.held.snapshot, self.held.deltas, self.messages)
        self.requests.append(request)
        self.snapshots.append(self.held.snapshot.number)
        number = len(self.requests)
        turn_id = TurnId(f"turn_{number}")
        said = [HistoryMessage(entry, turn_id, message) for entry, message in self.messages]
        made = receipt(number, stamp_of(at), turn_id, "m", self.held, said, None, request)
        self.receipts.append(made)
        return request


def call(number: int) -> Message:
    return Message("assistant", (ToolCall(f"t{number}", "read", {"path": "MEMORY.md"}),))


def result(number: int) -> Message:
    return Message("user", (ToolResult(f"t{number}", "what it says"),))


def test_the_shared_system_text_holds_instructions_and_guidance_and_the_second_holds_memory_and_date() -> (
    None
):
    session = Session()
    session.say(user("hello"))
    shared, own = session.ask("- likes tea").system
    assert shared.startswith("Be kind.\n\n## Your workspaces\n")
    assert own.startswith("## Memory\n")
    assert own.endswith("</memory>\n\nToday is Wednesday, 2026-11-18 (UTC).")


def test_the_instructions_of_one_turn_stand_last_and_outside_the_breakpoints() -> None:
    session = Session()
    session.say(user("hello"))
    session.ask("- x")
    assert session.held is not None
    request = assemble(session.held.snapshot, (), session.messages, turn="Answer in rhyme.")
    assert request.system[-1] == "Answer in rhyme."
    assert request.breakpoints.system == (0, 1)


def test_a_delta_stays_beside_the_message_of_its_first_request() -> None:
    session = Session()
    session.say(user("hello"), call(1), result(1))
    session.ask("- x\n" * 200)
    session.say(call(2), result(2))
    told = session.ask("- x\n" * 200 + "- new\n").messages[-1]
    assert isinstance(told.parts[0], ToolResult)
    assert isinstance(told.parts[1], Text)
    assert "+ - new" in told.parts[1].text
    session.say(Message("assistant", (Text("done"),)), user("thanks"))
    request = session.ask("- x\n" * 200 + "- new\n")
    assert request.messages[-3] == told
    assert request.messages[-1] == user("thanks")


def test_a_delta_stays_when_the_message_beside_the_delta_is_left_out() -> None:
    session = Session()
    session.say(user("hello"))
    session.ask("- x\n" * 200)
    session.say(call(1), result(1))
    session.ask("- x\n" * 200 + "- new\n")
    session.say(Message("assistant", (Text("done"),)), user("thanks"))
    assert session.held is not None
    (told,) = session.held.deltas
    pruned = [session.messages[at] for at in (0, 3, 4)]
    request = assemble(session.held.snapshot, session.held.deltas, pruned)
    assert request.messages == (
        Message("user", (Text("hello"), Text(told.text))),
        Message("assistant", (Text("done"),)),
        user("thanks"),
    )


def test_breakpoints_mark_the_system_texts_and_the_newest_user_messages() -> None:
    session = Session()
    session.say(user("hello"))
    assert session.ask("- x").breakpoints.messages == (0,)
    session.say(call(1), result(1))
    request = session.ask("- x")
    assert request.breakpoints.messages == (0, 2)
    assert request.breakpoints.system == (0, 1)
    session.say(call(2), result(2))
    assert session.ask("- x").breakpoints.messages == (2, 4)


def test_a_new_turn_sets_a_breakpoint_where_the_turn_before_began() -> None:
    session = Session()
    session.say(user("hello"), call(1), result(1), Message("assistant", (Text("done"),)))
    session.say(user("more"), call(2), result(2), call(3), result(3))
    assert session.ask("- x").breakpoints.messages == (6, 8)
    session.say(Message("assistant", (Text("done"),)), user("thanks"))
    assert session.ask("- x").breakpoints.messages == (4, 10)
    session.say(call(4), result(4))
    assert session.ask("- x").breakpoints.messages == (10, 12)


def test_a_request_without_instructions_and_mounts_holds_the_date() -> None:
    parts = prompt_parts(Sources(None, (), (), NOW.date(), 40_000), render)
    snapshot = Snapshot(1, stamp_of(NOW), "first", TERMS, parts, (), NOW.date())
    request = assemble(snapshot, (), [(1, user("hello"))])
    assert request.system == ("Today is Wednesday, 2026-11-18 (UTC).",)
    assert request.breakpoints.system == (0,)


steps = st.lists(
    st.tuples(
        st.sampled_from(["tool", "tools", "turn", "failed"]),
        st.sampled_from(["", "add", "remove", "much"]),
        st.sampled_from([0, 60, 60, 4_000, 40_000]),
    ),
    min_size=2,
    max_size=25,
)


def go_on(session: Session, kind: str, number: int) -> None:
    match kind:
        case "tool":
            session.say(call(number), result(number))
        case "tools":  # several calls, whose results come one by one
            calls = [ToolCall(f"t{number}.{n}", "read", {}) for n in range(3)]
            session.say(Message("assistant", tuple(calls)))
            session.say(*(Message("user", (ToolResult(one.id, "x"),)) for one in calls))
        case "turn":
            session.say(Message("assistant", (Text("done"),)), user(f"and {number}?"))
        case _:  # the model did not answer, and something else is said
            session.say(user("are you there?"))


def change(memory: list[str], edit: str, number: int) -> None:
    match edit:
        case "add":
            memory.append(f"- new {number}")
        case "remove" if memory:
            memory.pop(number % len(memory))
        case "much":
            memory[:0] = [f"- much {number}.{n}" for n in range(40)]
        case _:
            pass


def begins_with(after: ModelRequest, before: ModelRequest) -> bool:
    """Up to what was the newest message, which more may have been said beside."""
    known = len(before.messages) - 1
    newest = before.messages[known].parts
    return (
        after.system == before.system
        and after.messages[:known] == before.messages[:known]
        and after.messages[known].parts[: len(newest)] == newest
    )


@settings(max_examples=150, deadline=None)
@given(steps)
def test_consecutive_requests_of_a_session_share_their_beginning_up_to_the_newest_message(
    taken: list[tuple[str, str, int]],
) -> None:
    session = Session()
    memory, at = [f"- fact {number}" for number in range(60)], NOW
    session.say(user("begin"))
    for number, (kind, edit, seconds) in enumerate(taken):
        session.ask("\n".join(memory), at)
        go_on(session, kind, number)
        change(memory, edit, number)
        at += timedelta(seconds=seconds)
    session.ask("\n".join(memory), at)
    for number in range(1, len(session.requests)):
        before, after = session.requests[number - 1], session.requests[number]
        if session.snapshots[number] == session.snapshots[number - 1]:
            assert begins_with(after, before)
    for request in session.requests:
        marks = request.breakpoints
        assert 1 <= len(marks.system) + len(marks.messages) <= BREAKPOINTS_MAX
        assert marks.messages[-1] == len(request.messages) - 1
        assert all(request.messages[at].role == "user" for at in marks.messages)


def test_a_receipt_names_every_part_with_its_revision_and_its_size() -> None:
    session = Session()
    session.say(user("hello"))
    session.ask("- x\n" * 200)
    session.say(call(1), result(1))
    session.ask("- x\n" * 200 + "- ü\n")
    first, second = session.receipts
    assert [part.source for part in first.parts] == [
        "instructions",
        "guidance",
        "memory",
        "memory/notes",
        "date",
    ]
    assert (second.first, second.last, second.deltas) == (1, 3, 1)
    assert second.parts[:-1] == first.parts
    change = second.parts[-1]
    assert (change.source, change.entry) == ("memory/notes", 3)
    assert session.held is not None
    assert change.bytes == len(session.held.deltas[0].text.encode())
    assert receipt_of(2, second.as_json()) == second
    assert second.digest == digest(session.requests[1]) != first.digest


def test_entrances_name_the_request_in_which_a_revision_first_appeared() -> None:
    session = Session()
    for number, memory in enumerate(["- a\n" * 99, "- a\n" * 99, "- a\n" * 99 + "- b", "- c"]):
        session.say(user(str(number)))
        session.ask(memory)
        session.say(Message("assistant", (Text("ok"),)))
    found = entrances(session.receipts)
    assert [(one.source, one.receipt.number) for one in found] == [
        ("memory/notes", 1),
        ("memory/notes", 3),
        ("memory/notes", 4),
    ]
    assert found[0].before is None
    assert [one.before for one in found[1:]] == [one.revision for one in found[:-1]]
    assert isinstance(found[0], Entrance)


def test_a_revision_that_left_the_prompt_and_returned_counts_as_entered_twice() -> None:
    revision = RevisionId("a" * 40)
    snapshot = Snapshot(1, stamp_of(NOW), "first", TERMS, (), (), NOW.date())
    came = Delta(1, (PartChange("memory/notes", "+", revision),))
    went = Delta(3, (PartChange("memory/notes", "-"),))
    again = Delta(5, (PartChange("memory/notes", "+", revision),))
    receipts = []
    for number, deltas in enumerate([(came,), (came, went), (came, went, again)], 1):
        said = [HistoryMessage(1, TurnId("t"), user("hello"))]
        request = assemble(snapshot, deltas, [(1, user("hello"))])
        held = ShownState(snapshot, deltas, NOW)
        at = stamp_of(NOW)
        receipts.append(receipt(number, at, TurnId("t"), "m", held, said, None, request))
    assert [one.receipt.number for one in entrances(receipts)] == [1, 3]
