"""The functions that take a stranger's text. Whoever writes another one adds it here."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from markupsafe import Markup

import harness.integrations.codex
from harness.context import budget, delta, fence, memory_entry, repair, summary_plan
from harness.integrations import fact_rows, import_notes, json_edit, line_union
from harness.memorize.local import local_message, transcript_file
from harness.memory import card_numbers, secrets, similar
from harness.memory.blocks import block, condition, core_blocks, line_edit
from harness.memory.decisions import decision, result_card
from harness.memory.facts import fact, fact_file
from harness.messages.message import user
from harness.messages.model_request import ModelRequest
from harness.models import demo
from harness.runtime import json_log
from harness.tools import terminal_text
from harness.tools.files import path_pattern
from harness.web.http import body, origin_check, precondition
from harness.web.pages.parts import form, markdown
from tests.hostile.families import Hostile
from workspaces import errors, paths, plain_yaml, revision
from workspaces.errors import Failure
from workspaces.forgetting.matcher import Matcher
from workspaces.forgetting.pattern_search import PatternSearch
from workspaces.forgetting.rule import ForbiddenRule
from workspaces.forgetting.rule_set import RuleSet
from workspaces.forgetting.streamed_text import StreamedText
from workspaces.forgetting.tombstone import tombstone_of
from workspaces.forgetting.words import words_of
from workspaces.history import blame, diff, log, safe_git_command, source
from workspaces.history.git import bundle, commit, objects, tree_check
from workspaces.home import forbidding
from workspaces.ids import looks_like_id
from workspaces.localfs import valid_name
from workspaces.localfs.archive import Archive
from workspaces.search import date, exact, highlight, words
from workspaces.search.unit import Unit, text_units, units
from workspaces.storage.s3 import listing
from workspaces.sync import history_head
from workspaces.timestamp import Stamp
from workspaces.tree import conflict_copy, editor_files, merge, merge_marks

FACT = paths.WorkspacePath("facts/tea.md")


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    of: Callable[[str], object]
    own: tuple[Hostile, ...] = ()
    takes_any: bool = True
    """Whether text of no form at all leads anywhere. If not, it is tried with its own alone."""

    def __call__(self, text: str) -> None:
        with suppress(Failure, ValueError, LookupError, StopIteration):
            self.of(text)


def _bytes(of: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: of(text.encode())


def _split_fact(text: str) -> None:
    for unit in text_units("facts/tea.md", text):
        assert unit.text


def _read_units(text: str) -> None:
    for unit in units(text):
        _ = unit.subject, unit.asks


def _read_fact(data: bytes) -> None:
    fact_file.read_fact(FACT, data)


def _stamps_before(text: str) -> None:
    """One trailer for each line: a sync of ten thousand files has as many."""
    source.stamps_before({f"Received {at}.md": line for at, line in enumerate(text.split("\n"))})


def _put_back(data: bytes) -> None:
    fact_file.put_back(FACT, b"---\npinned: true\n---\nx\n", data)


def _split(text: str) -> tuple[str, str]:
    """Two texts of one, which have much in common."""
    return text, text[len(text) // 3 :] + "\nand more"


def _pair(of: Callable[[str, str], object]) -> Callable[[str], object]:
    return lambda text: of(*_split(text))


def _merged(text: str) -> object:
    one, other = _split(text)
    path = paths.WorkspacePath("notes/a.md")
    return merge.merge(path, text[100:].encode(), one.encode(), other.encode())


def _beside(first: int, following: int) -> Markup:
    """Return what a page of a file shows beside a block."""
    return Markup('<a class="by" href="/h">{}–{}</a>').format(first, following)


def _render(text: str) -> None:
    """Render without the garbage collector, whose passes grow with all objects of the process."""
    gc.disable()
    try:
        assert len(text) <= markdown.RENDERED_CHARACTERS_MAX
        markdown.rendered(text, _beside)
    finally:
        gc.enable()


def _listed(text: str) -> None:
    listing.read_contents({"status_code": 200, "body": text.encode()}, {})


def _is_zero(item: object) -> bool:
    """What is meant is what this program has put there: one item."""
    return item == 0


def _demo(text: str) -> object:
    told = user(f"{text}\nWhat do I like?")
    return demo._answer(ModelRequest(system=(text,), messages=(told,), tools=()))


JSON = (
    Hostile('{"', "a", '":1}'),
    Hostile("{", '"a":1,', '"b":2}'),
    Hostile("{", '"§":1,', '"a":2,"a":2}'),
    Hostile("[", "[", ""),
    Hostile('{"a":', '{"a":', ""),
    Hostile("[", "1,", "1]"),
    Hostile("[", "0", "]"),
    Hostile('["', "\\\\", ""),
    Hostile("", "/*", ""),
    Hostile("", "/* */", "{}"),
    Hostile("[", "/* */1,\n", "1]"),
    Hostile("{}", "// a\n", "x"),
)
YAML = (
    Hostile("a: ", "[", ""),
    Hostile("", "k§: 1\n", ""),
    Hostile("a: &a ", "[*a,", ""),
    Hostile('a: "', "\\", ""),
    Hostile("a: |\n", "  x\n", ""),
)
FRONT = (
    Hostile("---\n", "k§: v\n", "---\nbody"),
    Hostile("---\n", "k: v\n", "---\nbody"),
    Hostile("", "a§\na\n", ""),
)
FACT_FILES = (
    Hostile("---\n", "k§: v\n", "---\nbody"),
    Hostile("---\n", "# c\n\n", "---\nbody"),
    Hostile("---\n{a: 1", ", k§: 2", "}\n---\nbody"),
    Hostile("---\n", "---\r\n", "x"),
    Hostile("---\n", "\n", ""),
)
TOML = (
    Hostile("a = ", "[", ""),
    Hostile("", "k§ = 1\n", ""),
    Hostile("", "[[a]]\n", ""),
    Hostile("a", ".a", " = 1"),
)
FOUND = (
    Hostile("w ", "w", ""),
    Hostile("日本", "日本", "x"),
    Hostile("a'", "a'", "b"),
    Hostile("é ", "w§ ", ""),
)
FORMS = (
    Hostile("", "a=1&", "a=2"),
    Hostile("a=", "%", ""),
    Hostile("a=", "%C3", "%A4"),
    Hostile("", "k§&", ""),
)
MARKDOWN = (
    Hostile("", "[", "](a)"),
    Hostile("", "**a_", "*"),
    Hostile("", "- a\n", ""),
    Hostile("", "[§]: /u\n", "[0]"),
)
GIT = (
    Hostile("", "0", ""),
    Hostile("", "100644 a", ""),
    Hostile("", "100644 a§\0aaaaaaaaaaaaaaaaaaaa", ""),
    Hostile("", "@@ -1 +1 @@\n-a\n+b\n", ""),
    Hostile("", "-a§ b\n", ""),
    Hostile("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n", "-a b§\n+a c§\n", ""),
    Hostile("", "\x1e" + "a" * 40 + "\x1f", ""),
)


PHRASES = (
    Hostile("", "the code is ", "4711"),
    Hostile("", "the code\n", ""),
    Hostile("a", "\u0301", ""),
    Hostile("", "\u200b", "x"),
    Hostile("", "\u314f", ""),
    Hostile("", "é茶", " "),
)
TOMBSTONES = (
    tombstone_of("the code is 4711", b"key"),
    tombstone_of("a a a", b"key"),
)
MATCHER = Matcher(TOMBSTONES, b"key")
RULES = RuleSet(
    [
        ForbiddenRule(one.id, "text", Stamp(""), "", tombstone=one, key_id="k_1")
        for one in TOMBSTONES
    ],
    {"k_1": b"key"},
    PatternSearch(lambda: None),
    {},
)
PIECE = 200
"""Characters of an answer that arrive at once."""


def _streamed(text: str) -> object:
    stream = StreamedText(RULES)
    for at in range(0, len(text), PIECE):
        stream.take(text[at : at + PIECE])
    return stream.rest()


def _tried(text: str) -> object:
    found = MATCHER.find(text)
    return forbidding._tried(text, found, found)


FUNCTIONS: Sequence[Function] = (
    Function("forgetting.words_of", words_of, PHRASES),
    Function("forgetting.replaced", MATCHER.replaced, PHRASES, False),
    Function("forgetting.find_changed", _pair(MATCHER.find_changed), PHRASES, False),
    Function("forgetting.streamed", _streamed, (*PHRASES, Hostile("", "](a", "")), False),
    Function("forbidding._tried", _tried, (Hostile("", "the code is 4711, and ", ""),), False),
    Function("body.parse_json", _bytes(lambda data: body.parse_json(data, within="body")), JSON),
    Function(
        "fence.fenced",
        fence.fenced,
        (Hostile("<", "\ufe0f", "m"), Hostile("", "<m\ufe0f", ""), Hostile("е", "<user", "")),
    ),
    Function("fence.attribute", fence.attribute),
    Function("unit.units", _read_units),
    Function("unit.text_units", _split_fact, (Hostile("---\nkey: ", "[", "\n---\nx\n"),)),
    Function("unit.Unit.subject", lambda text: Unit(1, text, ()).subject),
    Function("unit.Unit.asks", lambda text: Unit(1, text, ()).asks),
    Function("entry.entries", lambda text: memory_entry.entries(text.split("\n"))),
    Function("entry.first_heading", _bytes(memory_entry.first_heading)),
    Function("budget.cut", lambda text: budget.cut(text, 3000)),
    Function("compact.chunk", lambda text: summary_plan.chunk([text, text[:100]], 5000)),
    Function("delta.hunks", _pair(lambda a, b: delta.hunks(a.split("\n"), b.split("\n")))),
    Function("repair.sound", repair.sound),
    Function(
        "secrets.redact",
        secrets.redact,
        (
            Hostile("", "-----BEGIN PRIVATE KEY-----\n", ""),
            Hostile("-----BEGIN PRIVATE KEY-----", "-", "x"),
            Hostile("", "eyJ", ".eyJ"),
            Hostile("", "eyJaaaaaaaaaa.", ""),
            Hostile("", "://a", ""),
            Hostile("", "://:", "@"),
            Hostile("", "token", "="),
            Hostile("", "token=", ""),
            Hostile("password=", "a1", ""),
            Hostile("", "basic ", ""),
        ),
    ),
    Function(
        "card_numbers.find_card_numbers",
        card_numbers.find_card_numbers,
        (Hostile("", "4 ", "x"), Hostile("", "4111111111111111", "")),
        False,
    ),
    Function("transcript_file.parsed_event", _bytes(transcript_file.parsed_event), JSON),
    Function("local_message.shown_title", local_message.shown_title),
    Function("similar.word_set", similar.word_set),
    Function("result_card.card_of", lambda text: result_card.card_of(text, "card"), YAML),
    Function("decision.decision_of", lambda text: decision.decision_of(text, "decision"), FRONT),
    Function("block.entry_starts", block.entry_starts),
    Function("block.content_of", block.content_of),
    Function("line_edit.with_entry", lambda text: line_edit.with_entry(text, "- a")),
    Function(
        "line_edit.with_entry_replaced",
        lambda text: line_edit.with_entry_replaced(f"{text}\n- a", "a", text),
    ),
    Function("line_edit.without_entry", lambda text: line_edit.without_entry(f"{text}\n- a", "a")),
    Function("core_blocks._fitting", lambda text: core_blocks._fitting(text, 300)),
    Function("condition.parse_expected", condition.parse_expected),
    Function("demo.reply", _demo, (Hostile("", "<memory ", ""), Hostile("", "<user>\n", ""))),
    Function("words.terms", words.terms),
    Function("words.query_terms", words.query_terms),
    Function("date.date_words", lambda text: list(date.date_words(text))),
    Function("exact._phrases", exact._phrases),
    Function("highlight.spans", lambda text: list(highlight.spans(text, text[:200])), FOUND, False),
    Function("union.union", _pair(line_union.union)),
    Function("union.lowered", lambda text: line_union.lowered(text, 2)),
    Function("importer._relinked", _bytes(lambda data: import_notes._relinked("MEMORY.md", data))),
    Function(
        "importer._instructions",
        _bytes(lambda data: list(import_notes._instructions("CLAUDE.md", data, Archive()))),
    ),
    Function("log.masked", json_log.masked),
    Function("pattern.matcher", lambda text: path_pattern.matcher(text[:1000])(text)),
    Function(
        "pattern.matcher of the path",
        lambda text: path_pattern.matcher("**/*a*b*[c]?/{d,e*}/**")(text),
    ),
    Function("pattern.fixed_directory", path_pattern.fixed_directory),
    Function("plain.plain", _bytes(terminal_text.plain)),
    Function("json_text.value_at", lambda text: json_edit.value_at(text, ["a", "b"]), JSON),
    Function(
        "json_text.with_value", lambda text: json_edit.with_value(text, ["x", "y"], 1), JSON, False
    ),
    Function("json_text.with_item", lambda text: json_edit.with_item(text, ["x"], 1), JSON, False),
    Function("json_text.without", lambda text: json_edit.without(text, ["b"]), JSON, False),
    Function(
        "json_text.without_items",
        lambda text: json_edit.without_items(text, [], _is_zero),
        JSON,
        False,
    ),
    Function("codex._parsed", harness.integrations.codex._parsed, TOML, False),
    Function("guard.parse_origin", origin_check.parse_origin),
    Function("guard.parse_authority", lambda text: origin_check.parse_authority(text, "http")),
    Function(
        "precondition._parsed",
        lambda text: precondition._parsed("If-Match", text),
        (Hostile("", '"a",', ""), Hostile('"a"', " ", "x")),
    ),
    Function("form.urlencoded", _bytes(form.urlencoded), FORMS),
    Function("markdown.rendered", _render, MARKDOWN, False),
    Function("source.stamps_before", _stamps_before, (Hostile("", "x\n", ""),), False),
    Function("source.body_of", _bytes(lambda data: source.body_of("x.md", data)), FACT_FILES),
    Function("fact.canonical_path", lambda text: fact.canonical_path(fact.check_key(text[:255]))),
    Function("fact_rows.looks_like_rows", _bytes(fact_rows.looks_like_rows), JSON),
    Function("fact_file.read_fact", _bytes(_read_fact), FACT_FILES, False),
    Function("fact_file.put_back", _bytes(_put_back), FACT_FILES, False),
    Function("plain_yaml.load", lambda text: plain_yaml.load(text, name="x.yaml"), YAML, False),
    Function("merge.merge", _merged, FRONT),
    Function("seam.pairs", lambda text: merge_marks.pairs(text, text[50:], text[:-50])),
    Function("revision.trailers_of", revision.trailers_of),
    Function(
        "revision._moved_lines",
        lambda text: revision._moved_lines(text.encode(), text[50:].encode()),
    ),
    Function("revision.quote_of", revision.quote_of),
    Function("paths.WorkspacePath", paths.WorkspacePath),
    Function("paths.folded", paths.folded),
    Function("conflict.is_conflict", conflict_copy.is_conflict),
    Function("renaming.nearest_path", valid_name.nearest_path),
    Function("scratch.is_scratch", editor_files.is_editor_file),
    Function("ids.looks_like_id", looks_like_id),
    Function("parse.nearest", lambda text: errors.nearest(text, ["name", "description"])),
    Function("head.parse_head", _bytes(history_head.parse_head), JSON),
    Function("objects._parse_tree", _bytes(objects._parse_tree), GIT),
    Function(
        "tree_check.TreeChecker.check",
        _bytes(lambda data: tree_check.TreeChecker().check(data)),
        GIT,
    ),
    Function(
        "commit.parse_commit",
        _bytes(lambda data: commit.parse_commit(revision.RevisionId("0" * 40), data)),
        GIT,
    ),
    Function("log.parse_log", _bytes(log.parse_log), GIT),
    Function("log.parse_changes", _bytes(lambda data: log.parse_changes(data, len)), GIT),
    Function("blame.parse_porcelain", _bytes(blame.parse_porcelain), GIT),
    Function("bundle.parse_bundle", _bytes(bundle.parse_bundle), GIT),
    Function("difference.parse_patch", lambda text: diff.parse_patch(text, len), GIT),
    Function("difference.words", diff.words, GIT),
    Function("inquiry.inquiry", lambda text: safe_git_command.check_git_command(["log", text])),
    Function(
        "s3_listing.read_contents",
        _listed,
        (
            Hostile("<Contents><Key>", "<a>", "</Contents>"),
            Hostile("", "<Contents>", "</Contents>"),
            Hostile(
                "",
                "<Contents><Key>a</Key><Size>1</Size><ETag>a</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
                "x",
            ),
        ),
    ),
)
