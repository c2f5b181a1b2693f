"""What a model streams is marked before anybody sees it, in order, and at once where nothing is forbidden."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from harness import Harness
from harness.messages.marking import NO_MARKS, TextMarks
from harness.messages.message import Message, Text
from harness.messages.model_request import ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Counted, Emit, Progress, TextArrived, Waiting, Withdrawn
from harness.models.marking import MarkingModel
from harness.models.port import Model
from tests.conformance.model import HELLO
from workspaces.errors import Unavailable
from workspaces.forgetting.streamed_text import StreamedText

SECRET = "the heron nests in Galway"
Step = Progress | BaseException


@dataclass
class Streaming:
    """A model that reports these steps. Its reply has the texts of each part that were not withdrawn."""

    steps: Sequence[Step]
    name: str = "streaming"
    is_failing: bool = False

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        del request, output_tokens_max
        texts: dict[int, str] = {}
        for step in self.steps:
            match step:
                case BaseException():
                    raise step
                case TextArrived(text, part):
                    texts[part] = texts.get(part, "") + text
                case Withdrawn():
                    texts.clear()
                case _:
                    pass
            emit(step)
            await asyncio.sleep(0)
        if self.is_failing:
            return ModelFailure("broken", "it broke off", "try again")
        return Reply(Message("assistant", tuple(map(Text, texts.values()))), Usage(1, 1))


def answer(
    model: Model, marks: TextMarks, emit: Emit | None = None
) -> tuple[list[Progress], Reply | ModelFailure]:
    seen: list[Progress] = []
    request = MarkingModel(model, marks).reply(
        HELLO, output_tokens_max=100, emit=emit or seen.append
    )
    return seen, asyncio.run(request)


def pieces(text: str, part: int = 0) -> list[Step]:
    return [TextArrived(text[at : at + 3], part) for at in range(0, len(text), 3)]


def text_of(seen: Sequence[Progress]) -> str:
    return "".join(one.text for one in seen if isinstance(one, TextArrived))


@pytest.fixture
def marks(harness: Harness) -> TextMarks:
    texts = harness.rooms.forbidding.texts
    harness.rooms.forbidding.forbid({"text": SECRET})
    return texts


def test_the_stream_and_the_reply_have_the_same_marks(marks: TextMarks) -> None:
    steps = [*pieces(f"I saw that {SECRET}. And", 0), *pieces(f"{SECRET} again, the heron", 1)]
    seen, reply = answer(Streaming(steps), marks)
    assert isinstance(reply, Reply)
    assert text_of(seen) == "".join(
        part.text for part in reply.message.parts if isinstance(part, Text)
    )
    assert text_of(seen).count("[forgotten f_") == 2 and "nests" not in text_of(seen)


def test_other_progress_keeps_its_place_and_withdrawn_text_is_dropped(marks: TextMarks) -> None:
    counted, waiting = Counted(Usage(1, 1)), Waiting("busy", 1.0)
    first = pieces("one two three four five six seven the heron nests in")
    steps = [*first, counted, Withdrawn(), waiting, *pieces("Galway then.")]
    seen, _ = answer(Streaming(steps), marks)
    others = [one for one in seen if not isinstance(one, TextArrived)]
    assert others == [counted, Withdrawn(), waiting]
    shown = seen.index(Withdrawn())
    assert text_of(seen[:shown]).startswith("one two three four five")
    assert text_of(seen[shown:]) == "Galway then."


def test_an_answer_that_breaks_off_keeps_what_was_held_back(marks: TextMarks) -> None:
    seen, reply = answer(Streaming(pieces("well, the heron nests in"), is_failing=True), marks)
    assert isinstance(reply, ModelFailure) and "nests" not in text_of(seen)


def test_without_a_rule_each_piece_is_passed_on_as_it_came(harness: Harness) -> None:
    steps = pieces(f"I saw that {SECRET}.")
    for marks in (harness.rooms.forbidding.texts, NO_MARKS):
        assert answer(Streaming(steps), marks)[0] == steps


def test_what_a_listener_raises_ends_the_request(marks: TextMarks) -> None:
    def refuse(progress: Progress) -> None:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        answer(Streaming(pieces("one two three four five six seven " * 20)), marks, refuse)


def test_a_search_that_fails_ends_the_request() -> None:
    class Failing:
        is_empty = False

        def marked(self, text: str) -> str:
            return text

        def stream(self) -> StreamedText | None:
            raise Unavailable("ripgrep", "it is not installed")

    with pytest.raises(Unavailable):
        answer(Streaming(pieces(SECRET)), Failing())
