from __future__ import annotations

import pytest

from workspaces.search.unit import Unit, text_units, units


def lines(text: str) -> list[tuple[int, str]]:
    return [(unit.line, unit.text) for unit in units(text)]


def test_every_line_that_is_not_blank_is_a_unit() -> None:
    assert lines("one\n\n  two\nthree") == [(1, "one"), (3, "  two"), (4, "three")]


def test_a_list_item_includes_its_continuation_lines() -> None:
    text = "- tea\n  with milk\n  and sugar\n- coffee\nafter\n1. first\n   more\n"
    assert lines(text) == [
        (1, "- tea\n  with milk\n  and sugar"),
        (4, "- coffee"),
        (5, "after"),
        (6, "1. first\n   more"),
    ]


def test_a_nested_list_item_is_a_separate_unit() -> None:
    assert lines("- a\n  - b\n    c\n- d") == [(1, "- a"), (2, "  - b\n    c"), (4, "- d")]


def test_a_unit_has_the_headings_above_its_line() -> None:
    text = "zero\n# One\na\n### Deep ###\nb\n## Two\nc\n# Three\nd"
    found = [(unit.text, unit.headings) for unit in units(text) if not unit.is_heading]
    assert found == [
        ("zero", ()),
        ("a", ("One",)),
        ("b", ("One", "Deep")),
        ("c", ("One", "Two")),
        ("d", ("Three",)),
    ]


def test_a_hash_within_a_code_fence_is_no_heading() -> None:
    found = list(units("```sh\n# comment\n- x\n```\n# Title\nline\n"))
    assert [(unit.line, unit.is_heading) for unit in found] == [
        (2, False),
        (3, False),
        (5, True),
        (6, False),
    ]


def test_lines_of_markup_alone_are_no_units() -> None:
    assert lines("---\nkey: value\n---\n***\n|---|---|\n🎉\n") == [(2, "key: value"), (6, "🎉")]


def test_a_comment_is_no_unit() -> None:
    text = "a\n<!-- one -->\n- b\n<!-- two\n     three -->\nc\n"
    assert lines(text) == [(1, "a"), (3, "- b"), (6, "c")]


@pytest.mark.parametrize(
    "text",
    ["<!-- open\nnever closed", "<!-- a --> said", "```\n<!-- code -->\n```", "x <!-- y -->"],
)
def test_a_comment_among_text_and_one_without_an_end_are_text(text: str) -> None:
    assert lines(text)


def test_a_comment_that_ends_before_text_hides_no_line() -> None:
    assert lines("<!-- a\nb --> c\nd") == [(1, "<!-- a"), (2, "b --> c"), (3, "d")]


def test_carriage_returns_and_lone_form_feeds_do_not_move_line_numbers() -> None:
    assert lines("one\r\ntwo\x0cthree\r\nfour") == [(1, "one"), (2, "two\x0cthree"), (3, "four")]


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("- Caro: likes tea", "Caro"),
        ("- **Deploy day**: Thursday", "Deploy day"),
        ("* [x] Release: done", "Release"),
        ("Caro's birthday is in May", "Caro's"),
        ("> 山田：お茶が好き", "山田"),
        ("- https://example.org is down", "https"),
        ("see the list of things that we said: none", "see"),
        ("- 🎉", ""),
    ],
)
def test_the_subject_of_a_unit_is_the_start_of_its_line(line: str, subject: str) -> None:
    assert Unit(1, line, ()).subject == subject


@pytest.mark.parametrize("line", ["- Which one?", "Really?**", "何ですか？", "- is it? (no)"])
def test_a_line_that_ends_with_a_question_mark_is_a_question(line: str) -> None:
    assert Unit(1, line, ()).asks == (line != "- is it? (no)")


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("## a b ##", "a b"),
        ("# a # #", "a #"),
        ("# C#", "C"),
        ("#\ta \t###   ", "a"),
    ],
)
def test_a_heading_excludes_its_closing_marks(line: str, title: str) -> None:
    unit = next(units(f"{line}\nbelow"))
    assert (unit.is_heading, unit.headings) == (True, (title,))


FACT = "---\nkey: {key}\npinned: true\n---\n\nWith npm run deploy,\n  from the root.\n\n"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("deploy-cmd", "deploy-cmd"),
        ('"auto:the: \\u00e4 \\"cmd\\""', 'auto:the: ä "cmd"'),
        ("'it''s'", "it's"),
        ("deploy # by hand", "deploy"),
        ("[a", "tea"),
        ("[a, b]", "tea"),
        ('"a\\nb"', "tea"),
        ("", "tea"),
        ("x" * 3000, "tea"),
    ],
)
def test_a_fact_is_one_unit_of_its_key_and_its_body(key: str, said: str) -> None:
    (unit,) = text_units("facts/tea.md", FACT.format(key=key))
    assert unit == Unit(6, f"{said}: With npm run deploy,\n  from the root.", ())


def test_a_fact_without_front_matter_has_the_name_of_its_file_as_key() -> None:
    (unit,) = text_units("facts/tea-time.md", "# Five o'clock\n")
    assert unit == Unit(1, "tea-time: # Five o'clock", ())
    (unit,) = text_units("facts/open.md", "---\nkey: a\nno end\n")
    assert unit == Unit(1, "open: ---\nkey: a\nno end", ())


def test_a_body_longer_than_a_fact_is_split_below_its_key() -> None:
    lines = "\n".join(f"- line {n:05}" for n in range(200))
    found = list(text_units("facts/long.md", f"---\nkey: a b\npinned: true\n---\n{lines}\n"))
    assert [unit.line for unit in found] == list(range(5, 205))
    assert {unit.headings for unit in found} == {("a b",)}


def test_only_files_directly_in_the_folder_of_facts_are_facts() -> None:
    text = FACT.format(key="a")
    for name in ("facts/deep/tea.md", "notes/tea.md", "facts.md"):
        assert next(iter(text_units(name, text))).text == "key: a"


def test_a_fact_that_says_nothing_has_no_unit() -> None:
    assert list(text_units("facts/tea.md", "---\nkey: a\n---\n\n \n")) == []
