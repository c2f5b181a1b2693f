"""The arguments of a tool call, as a person reads them before allowing it."""

from __future__ import annotations

from harness.presentation.call_text import CallLimit, CallLine, call_text


def lines(arguments: dict[str, object]) -> list[str]:
    return [line.text for line in call_text(arguments).lines]


def test_short_values_stand_beside_their_names_and_long_ones_below() -> None:
    told = call_text({"path": "a.md", "count": 3, "all": True, "content": "one\ntwo\n"})
    assert told.lines == (
        CallLine("path: a.md"),
        CallLine("count: 3"),
        CallLine("all: true"),
        CallLine("content:"),
        CallLine("one", is_of_value=True),
        CallLine("two", is_of_value=True),
    )
    assert told.left_out == 0


def test_a_value_cannot_pass_for_another_argument() -> None:
    told = call_text({"command": "ls\npath: harmless.md", "na\nme: x": "y"})
    assert [line.text for line in told.lines if not line.is_of_value] == ["command:", "na me: x: y"]


def test_characters_without_a_shape_are_escaped() -> None:
    assert lines({"command": "rm\u200b -rf\u202e /\x1b[8m\r"}) == [
        r"command: rm\u200b -rf\u202e /\x1b[8m\x0d"
    ]
    assert lines({"name": "grün 🍵 漢字"}) == ["name: grün 🍵 漢字"]


def test_a_limit_counts_what_it_leaves_out() -> None:
    arguments = {"one": "a\n" * 10, "two": "b" * 100, "three": "c"}
    told = call_text(arguments, CallLimit(lines=5, characters=1_000))
    shown = [line.text for line in told.lines]
    assert shown == ["one:", "a", "a", "a", "a", "  (… 12 more characters)"]
    assert told.left_out == 12 + 100 + 1
    told = call_text(arguments, CallLimit(lines=50, characters=70))
    shown = [line.text for line in told.lines if not line.is_of_value]
    assert shown[1:] == [
        f"two: {'b' * 50}",
        "  (… 50 more characters)",
        "three:",
        "  (… 1 more characters)",
    ]
    assert told.left_out == 51
