"""`harness recall`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_recall_finds_filters_and_limits_lines(harness: Terminal) -> None:
    harness("write", "notes", "notes/tea.md", stdin=b"# Drinks\n\n- green tea at nine\n").done()
    harness("workspace", "create", "other").done()
    harness("write", "other", "a.md", stdin=b"- a \x1b[31m tea shop\n").done()
    plain, one, asked, none, listed = harness.all(
        ("recall", "when is green tea?"),
        ("recall", "tea", "-w", "other", "--json"),
        ("recall", "tea", "--kind", "note", "--path", "notes/*", "--by", "owner", "--why"),
        ("recall", "zebra"),
        ("recall", "", "--workspace", "notes", "--limit", "1", "--json"),
    )
    assert plain.done().out.startswith("notes:notes/tea.md:3: - green tea at nine\n")
    (shown,) = one.done().json
    assert (shown["workspace"], shown["path"], shown["line_number"]) == ("other", "a.md", 1)
    assert {"content", "score", "updated_at", "why"} <= shown.keys()
    assert "notes/tea.md:3: " in asked.done().out
    assert "match: tea" in asked.out
    assert "other" not in asked.out
    assert none.done().out == ""
    assert "no line matches" in none.stderr
    assert listed.done().json[0]["line_number"] == 1


def test_recall_stops_where_lines_fit_less_and_says_so_on_stderr(harness: Terminal) -> None:
    text = b"- we deploy on Fridays\n- tea is green\n"
    harness("write", "notes", "notes/a.md", stdin=text).done()
    harness("workspace", "create", "long").done()
    harness("write", "long", "a.md", stdin=b"- the meeting is long\n" * 99).done()
    asked = ("recall", "when do we deploy?", "-w", "notes")
    cut, uncut, document, nothing, wrong = harness.all(
        asked,
        (*asked, "--cut", "off"),
        (*asked, "--json"),
        ("recall", "which violin teacher cancelled the meeting?", "-w", "long"),
        (*asked, "--cut", "half"),
    )
    assert cut.done().out == "notes/a.md:1: - we deploy on Fridays\n"
    assert "1 of " in cut.stderr
    assert "--cut off" in cut.stderr
    assert "tea is green" in uncut.done().out
    assert [hit["line_number"] for hit in document.done().json] == [1]
    assert "1 of " in document.stderr
    assert nothing.done().out == ""
    assert "nothing here bears on the question; --cut off shows 10" in nothing.stderr
    wrong.refused("--cut", "half")


def test_recall_searches_one_workspace_at_a_revision(harness: Terminal) -> None:
    first = harness("write", "notes", "a.md", "--json", stdin=b"- zebra\n").done().json["revision"]
    harness("write", "notes", "a.md", stdin=b"- horse\n").done()
    then, now = harness.all(
        ("recall", "zebra", "-w", "notes", "-r", first, "--json"), ("recall", "zebra", "--json")
    )
    assert [line["content"] for line in then.done().json] == ["- zebra"]
    assert now.done().json == []


def test_invalid_recall_options_are_refused_with_the_valid_values(harness: Terminal) -> None:
    harness("workspace", "create", "other").done()
    for arguments, words in (
        (("--limit", "0"), ("limit", "between 1 and 100")),
        (("--kind", "notes"), ("--kind", "did you mean 'note'?")),
        (("--since", "soon"), ("since", "2026-01-31")),
        (("-w", "absent"), ("absent",)),
        (("-r", "abcdef"), ("--workspace",)),
    ):
        harness("recall", "tea", *arguments).refused(*words)
