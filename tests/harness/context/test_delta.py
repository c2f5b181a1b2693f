"""Deltas: changes of memory since the snapshot, sent beside a message."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from harness.context.delta import ChangedLines, Delta, applied, delta, delta_of, hunks, with_deltas
from harness.context.memory_parts import Memory, memory_parts
from harness.context.part import PromptPart
from harness.runtime.templates import render
from workspaces.revision import RevisionId

OLD, NEW = RevisionId("a" * 40), RevisionId("b" * 40)


def shown(text: str | None, revision: RevisionId = OLD, **more: object) -> tuple[PromptPart, ...]:
    found = Memory("notes", text, revision, **more)  # type: ignore[arg-type]
    return tuple(memory_parts([found], 40_000, render))


def told(
    before: tuple[PromptPart, ...], after: tuple[PromptPart, ...], day: date | None = None
) -> Delta:
    news = delta(7, before, after, day, render)
    assert news is not None
    return news


def test_a_delta_shows_added_and_removed_lines_with_their_neighbours() -> None:
    before, after = shown("# M\n- a\n- b\n- c"), shown("# M\n- a\n- B\n- c\n- d", NEW)
    assert told(before, after).text == (
        '<memory-change workspace="notes">\n  - a\n- - b\n+ - B\n  - c\n+ - d\n</memory-change>'
    )


def test_unchanged_memory_makes_no_delta() -> None:
    assert delta(7, shown("- a"), shown("- a", NEW), None, render) is None
    assert delta(7, (), (), None, render) is None


def test_a_delta_shows_appearing_and_disappearing_memory_in_full() -> None:
    assert "\n+ - a\n" in told((), shown("- a")).text
    gone = told(shown("- a"), ())
    assert "\n- - a\n" in gone.text
    assert with_deltas(shown("- a"), [gone]) == ()


def test_a_delta_states_a_new_date_alone_or_after_the_changed_lines() -> None:
    day = date(2026, 11, 19)
    assert told(shown("- a"), shown("- a"), day).text == "Today is Thursday, 2026-11-19 (UTC)."
    both = told(shown("- a"), shown("- b"), day)
    assert both.text.endswith("</memory-change>\n\nToday is Thursday, 2026-11-19 (UTC).")


def test_unreadable_memory_makes_one_delta_and_removes_nothing_from_the_prompt() -> None:
    failed = shown(None, unavailable="EIO")
    news = told(shown("- a"), failed)
    assert news.text == (
        '<memory-change workspace="notes">\n'
        "(unavailable right now: EIO; what was shown before may be out of date)\n"
        "</memory-change>"
    )
    now = with_deltas(shown("- a"), [news])
    assert "- a" in now[0].text
    assert delta(8, now, shown(None, unavailable="another reason"), None, render) is None


def test_a_delta_shortens_a_long_unchanged_line() -> None:
    news = told(shown("- " + "x" * 500), shown("- " + "x" * 500 + "\n- y"))
    assert len(news.text) < 200


texts = st.lists(
    st.sampled_from(
        ["", "- a", "- b", "- c", "# H", "</memory>", "+ x", "</memory-change>", "- - a", "\t"]
    ),
    max_size=12,
).map("\n".join)


@given(st.lists(texts, min_size=1, max_size=6))
def test_a_snapshot_with_its_deltas_equals_the_current_memory(states: list[str]) -> None:
    first = shown(states[0])
    deltas: list[Delta] = []
    for number, text in enumerate(states[1:]):
        before, after = with_deltas(first, deltas), shown(text, RevisionId(f"{number:040}"))
        news = delta(number, before, after, None, render)
        if news is not None:
            deltas.append(delta_of(news.as_json()))  # as it comes back from the store
            assert deltas[-1] == news
        assert [part.text for part in with_deltas(first, deltas)] == [part.text for part in after]


@given(texts, texts)
def test_every_line_within_a_delta_carries_a_mark(before: str, after: str) -> None:
    news = delta(1, shown(before), shown(after), None, render)
    if news is not None:
        opening, *lines, closing = news.text.split("\n")
        assert opening == '<memory-change workspace="notes">'
        assert closing == "</memory-change>"
        assert all(line[:1] in {"+", "-"} or line[:2] in {"  ", ""} for line in lines)


lines = st.lists(st.sampled_from("abcde"), max_size=30)


@given(lines, lines)
def test_applying_hunks_to_the_old_lines_gives_the_new_lines(
    old: list[str], new: list[str]
) -> None:
    assert applied(old, hunks(old, new)) == new
    if old == new:
        assert hunks(old, new) == ()


def test_a_line_added_at_the_end_is_one_hunk() -> None:
    assert hunks(["a", "b"], ["a", "b", "c"]) == (ChangedLines(2, 2, ("c",)),)


def test_hunks_of_fully_rewritten_lines_are_one_replacement() -> None:
    """Lines of many kinds, each of them often: the longest that a comparison can take."""
    old = [str(number % 150) for number in range(20_000)]
    new = [str(number * 7 % 150) for number in range(1, 20_000)]
    assert applied(old, hunks(old, new)) == new
    assert len(hunks(old, new)) == 1
