"""Ranking: from where a query's terms occur to the units it is about. Pure.

The score of a unit is a sum over the query's terms, BM25 with one change: what is saturated is not how
often the term occurs in the unit alone, but

    own + cohesion · neighbours + section

- **own**: how often it occurs, divided by a weak length norm: lines are short, and a longer one mostly says
  more. [BM25's usual norm instead costs recall@5 2 and the reciprocal rank 2.5 points.]
- **neighbours**: a share of what stands up to three units before and after, half as much with each step, and
  more for those before: an answer follows its question, "it" follows what it names. [+8]
- **cohesion** is how much lines of this file have to do with their neighbours: how many terms units side by
  side share, divided by how many any two of the same section share. 1 means that the order says nothing, as
  in a list of facts, and then neighbours count nothing; from 1.5 on they count in full. It is measured for
  each file when it is indexed, and drawn towards that of the whole index where a file is short. So the same
  weights serve diaries and lists. [With lines shuffled over all files neighbours without it cost 4.5 points,
  with it none; in notes that have an order it changes nothing.]
- **section**: the share of the section's units that hold the term [+0.5; +3 in files without an order], and
  whether its headings or the file's name do [reciprocal rank +0.7]. It lifts all lines of a section alike.

Being saturated together, ten weak hints for one term are worth less than the term itself. The sum is then
multiplied: up, when the query names the **subject** that starts the line [+2.5, reciprocal rank +4]; down for
a line that only **asks**, which is rarely the one that tells [recall@5 +0.5]; and down for a **heading**,
whose words the lines below it have anyway. Divided by what a line would get that says every term once, scores
mean the same in every index.

In brackets: points of recall@10, where nothing else is said, that each gains beside all others on a public
benchmark of 3 048 lines and 760 questions; docs/benchmarks.md has the whole table. The weights were tuned on
three of its five folders; the other two, no clean test, give three points less; around them the figures are
flat. Tried and left out,
because they gained less than half a point: pairs of neighbouring words, how much of the query is covered,
words of the best lines added to the query, times of day for a query that asks when, more stop words.

**What makes it fast.** Only units that hold one of the query's rarer terms, or stand beside one, are
looked at; terms that two fifths of all units hold, and whatever comes after `POSTINGS_MAX` postings, only
weigh what the rarer ones have found. Of what is found the `CANDIDATES` with the highest estimates are
scored in full. Ids of neighbouring units are neighbouring numbers, with a gap between files, so
neighbours and sections are found by arithmetic and bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import nlargest
from itertools import pairwise
from math import log

from workspaces.search.embeddings import QueryVector, fused
from workspaces.search.table import NOWHERE, FileRow, Posting, unpacked

BEFORE = (0.5, 0.25, 0.125)
AFTER = (0.3, 0.15, 0.075)
GAP_UNITS = max(len(BEFORE), len(AFTER))
"""Numbers left free between files, so that nobody's neighbour is in another file."""

SECTION = 2.0
SECTION_DAMPING_UNITS = 10
"""In a section of three lines each line is a third of it, which says nothing."""

HEADING = 0.2
SUBJECT = 0.7
ASKS = 0.2
IS_HEADING = 0.5

SATURATION = 1.2
LENGTH = 0.1
LENGTH_PIVOT_TERMS = 16
"""A fixed length, so that a unit's weight does not change when others come."""

COHESION_NONE, COHESION_FULL = 1.1, 1.5
COHESION_ASSUMED = 1.5
COHESION_DAMPING = 4.0
"""In shared terms that chance would expect: files with fewer are judged by the whole index."""

COMMON_SHARE = 0.4
"""A term that so many units hold finds nothing, if there is another one; …"""
COMMON_UNITS_MIN = 64
"""… but in an index of a few lines."""
POSTINGS_MAX = 4000
"""A millisecond."""
SEEDS = 50
"""Units with the highest worth of their own, beyond `CANDIDATES`, whose neighbours are considered."""
CANDIDATES = 80
"""Half a millisecond; twice as many find 0.2 points more among shuffled lines, and nothing in others."""

HEADING_TRAIT, ASKS_TRAIT = 1, 2
SECTION_MARK = "§"
"""What the terms of headings begin with: their postings are sections."""

_SHARES = (
    *((step, share) for step, share in enumerate(BEFORE, 1)),
    *((-step, share) for step, share in enumerate(AFTER, 1)),
)
"""Of a unit's worth, for whoever stands that much further on."""

_SUBJECT_BIT = 0x80
_STEPS = 16
_STRENGTH = tuple((byte & 0x7F) / _STEPS for byte in range(256))


def weight(count: int, length: int, *, is_subject: bool) -> int:
    """The byte that a posting keeps."""
    norm = 1 - LENGTH + LENGTH * length / LENGTH_PIVOT_TERMS
    return min(0x7F, max(1, round(_STEPS * count / norm))) | (_SUBJECT_BIT if is_subject else 0)


@dataclass(frozen=True, slots=True)
class MatchReasons:
    """Which terms of the query speak for a unit, and from where."""

    own: list[str]
    """They stand in the unit itself, …"""
    above: list[str]
    """… only in its headings or the file's name, …"""
    near: list[str]
    """… only beside it."""
    is_subject: bool


@dataclass(frozen=True, slots=True)
class Scored:
    unit: int
    path: str
    score: float
    similarity: float
    """In meaning; 0 where nobody was asked for it."""
    is_named: bool
    _judge: _Judge

    def reasons(self) -> MatchReasons:
        return self._judge.reasons(self.unit)


class Corpus:
    """All files of an index, as far as ranking must know them."""

    def __init__(self, rows: Mapping[str, FileRow]) -> None:
        self.rows = rows
        self.size = sum(len(row.traits) for row in rows.values())
        self._ordered = sorted(rows.values(), key=lambda row: row.base)
        self._bases = [row.base for row in self._ordered]

    def row_of(self, unit: int) -> FileRow | None:
        """The file of a unit; None for a number that is no unit."""
        at = bisect_right(self._bases, unit) - 1
        row = self._ordered[at] if at >= 0 else None
        return row if row is not None and unit < row.base + len(row.traits) else None

    def has(self, unit: int, paths: Container[str]) -> bool:
        """Whether a number is a unit of one of these files."""
        row = self.row_of(unit)
        return row is not None and row.path in paths

    def cohesion(self, row: FileRow) -> float:
        """How much its neighbours tell of a unit: 0 … 1."""
        prior = self._cohesion * COHESION_DAMPING
        found = (row.shared + prior) / (row.expected + COHESION_DAMPING)
        share = (found - COHESION_NONE) / (COHESION_FULL - COHESION_NONE)
        return min(1.0, max(0.0, share))

    @cached_property
    def _cohesion(self) -> float:
        shared = sum(row.shared for row in self._ordered)
        expected = sum(row.expected for row in self._ordered)
        prior = COHESION_ASSUMED * COHESION_DAMPING
        return (shared + prior) / (expected + COHESION_DAMPING)


def rank(
    terms: Sequence[str],
    postings: Mapping[str, Posting],
    corpus: Corpus,
    *,
    keep: Callable[[str], bool] | None = None,
    named: Collection[int] = (),
    meant: QueryVector | None = None,
    candidates: int | None = CANDIDATES,
) -> list[Scored]:
    """What is `named` first, then the best; of equals the first path and line. `meant`: the query's
    meaning, to be fused in. `candidates` None: everything that is found."""
    ideal = sum(_rarity(len(postings.get(term, NOWHERE).units), corpus.size) for term in terms)
    known = [_Term(term, postings, corpus.size) for term in terms if term in postings]
    known.sort(key=lambda term: (len(term.units), term.name))
    leading = _leading(known, corpus.size)
    own = _own(leading)
    kept = corpus.rows.keys()
    if keep is not None:
        kept = frozenset(path for path in corpus.rows if keep(path))
        own = {unit: value for unit, value in own.items() if corpus.has(unit, kept)}
    chosen = {*_candidates(own, candidates), *named}
    if meant is not None:
        within = None if keep is None else partial(corpus.has, paths=kept)
        chosen.update(meant.nearest(within))
    scored: list[Scored] = []
    for row, units in _by_file(chosen, corpus):
        if row.path in kept:
            judge = _Judge(row, corpus.cohesion(row), known, ideal, meant)
            scored += [one for unit in units if (one := judge.judge(unit, named)) is not None]
    return sorted(scored, key=lambda one: (not one.is_named, -one.score, one.path, one.unit))


_Around = tuple[float, bool]
"""What a section says of a term: how much, and whether its headings do."""


class _Term:
    """One term of a query: where it occurs."""

    def __init__(self, name: str, postings: Mapping[str, Posting], size: int) -> None:
        posting = postings[name]
        self.name = name
        self.units = posting.units
        self.weights = posting.weights
        self.sections = postings.get(SECTION_MARK + name, NOWHERE).units
        self.rarity = _rarity(len(self.units), size)
        self.worth = self.rarity * (SATURATION + 1)
        self.byte: Callable[[int], int | None] = self._searched
        """How strongly a unit holds it."""
        self.beside: Callable[[int], float | None] = _nothing
        """What the neighbours of a unit say; only of a leading term."""

    def lead(self) -> None:
        """Units are asked for one by one from now on: quickly, and with their neighbours."""
        strengths = dict(zip(self.units, self.weights, strict=True))
        self.byte = strengths.get
        if len(strengths) > CANDIDATES:
            self.beside = partial(_gathered, strengths.get)
            return
        near: dict[int, float] = {}  # less work to tell it to all than to ask for some
        for unit, byte in strengths.items():
            for step, share in _SHARES:
                at = unit + step
                near[at] = near.get(at, 0.0) + share * _STRENGTH[byte]
        self.beside = near.get

    def _searched(self, unit: int) -> int | None:
        at = bisect_left(self.units, unit)
        return self.weights[at] if at < len(self.units) and self.units[at] == unit else None

    def around(self, start: int, end: int) -> _Around:
        count = bisect_left(self.units, end) - bisect_left(self.units, start)
        share = SECTION * count / (end - start + SECTION_DAMPING_UNITS)
        at = bisect_left(self.sections, start)
        is_above = at < len(self.sections) and self.sections[at] == start
        return (share + HEADING, True) if is_above else (share, False)


def _nothing(unit: int) -> None:
    """Common terms say nothing of whoever stands beside them."""
    del unit


def _gathered(byte: Callable[[int], int | None], unit: int) -> float:
    found = 0.0
    for step, share in _SHARES:
        beside = byte(unit - step)
        if beside:
            found += share * _STRENGTH[beside]
    return found


def _rarity(count: int, size: int) -> float:
    return log(1 + (size - count + 0.5) / (count + 0.5))


def _leading(terms: list[_Term], size: int) -> list[_Term]:
    """Of terms that ascend by how often they occur, those that find units; at least the rarest."""
    common = max(COMMON_UNITS_MIN, COMMON_SHARE * size)
    leading: list[_Term] = []
    room = POSTINGS_MAX
    for term in terms:
        if leading and (len(term.units) > common or len(term.units) > room):
            break
        room -= len(term.units)
        term.lead()
        leading.append(term)
    return leading


def _own(leading: list[_Term]) -> dict[int, float]:
    """What each unit that holds a leading term is worth by itself, roughly."""
    found: dict[int, float] = {}
    get = found.get
    strength = _STRENGTH
    for term in leading:
        rarity = term.rarity
        for unit, byte in zip(term.units, term.weights, strict=True):
            found[unit] = get(unit, 0.0) + rarity * strength[byte]
    return found


def _candidates(own: dict[int, float], count: int | None) -> Iterable[int]:
    """Those units, and their neighbours, that could be worth most."""
    seeds: Iterable[int] = own
    if count is not None and len(own) > count + SEEDS:
        seeds = nlargest(count + SEEDS, own, key=own.__getitem__)
    found: dict[int, float] = {}
    get = found.get
    for unit in seeds:
        value = own[unit]
        found[unit] = get(unit, 0.0) + value
        for step, share in _SHARES:
            found[unit + step] = get(unit + step, 0.0) + share * value
    if count is None or len(found) <= count:
        return found
    return nlargest(count, found, key=found.__getitem__)


def _by_file(units: Iterable[int], corpus: Corpus) -> Iterator[tuple[FileRow, list[int]]]:
    """Numbers that are no unit are left out."""
    row: FileRow | None = None
    together: list[int] = []
    for unit in sorted(units):
        if row is None or unit >= row.base + len(row.traits):
            if row is not None:
                yield row, together
            row, together = corpus.row_of(unit), []
        if row is not None:
            together.append(unit)
    if row is not None:
        yield row, together


class _Judge:
    """Scores units of one file."""

    def __init__(
        self,
        row: FileRow,
        cohesion: float,
        terms: list[_Term],
        ideal: float,
        meant: QueryVector | None,
    ) -> None:
        self._meant = meant
        self._row = row
        self._cohesion = cohesion
        self._terms = terms
        self._ideal = ideal
        self._starts = unpacked(row.sections)
        self._sections: dict[int, list[_Around]] = {}

    def judge(self, unit: int, named: Collection[int]) -> Scored | None:
        """None for a unit that only its section speaks for."""
        cohesion = self._cohesion
        score = 0.0
        is_reached = is_subject = False
        for term, (around, is_above) in zip(self._terms, self._section(unit), strict=True):
            found = around
            byte = term.byte(unit)
            if byte:
                found += _STRENGTH[byte]
                is_reached = True
                is_subject = is_subject or byte >= _SUBJECT_BIT
            if cohesion and (beside := term.beside(unit)):
                found += cohesion * beside
                is_reached = True
            is_reached = is_reached or is_above
            score += term.worth * found / (found + SATURATION)
        similarity = self._meant.similarity(unit) if self._meant is not None else 0.0
        if not is_reached and not similarity:
            return None
        trait = self._row.traits[unit - self._row.base]
        if is_subject:
            score *= 1 + SUBJECT
        if trait & ASKS_TRAIT:
            score *= 1 - ASKS
        if trait & HEADING_TRAIT:
            score *= IS_HEADING
        score = score / self._ideal if self._ideal else 0.0
        if self._meant is not None:
            score = fused(score, similarity)
        return Scored(unit, self._row.path, score, similarity, unit in named, self)

    def reasons(self, unit: int) -> MatchReasons:
        found = MatchReasons(
            [], [], [], any((one.byte(unit) or 0) >= _SUBJECT_BIT for one in self._terms)
        )
        for term, (_, is_above) in zip(self._terms, self._section(unit), strict=True):
            if term.byte(unit):
                found.own.append(term.name)
            elif is_above:
                found.above.append(term.name)
            elif self._cohesion and term.beside(unit):
                found.near.append(term.name)
        return found

    def _section(self, unit: int) -> list[_Around]:
        """What the section of a unit says of each term."""
        starts = self._starts
        at = bisect_right(starts, unit - self._row.base)
        found = self._sections.get(at)
        if found is None:
            base = self._row.base
            end = starts[at] if at < len(starts) else len(self._row.traits)
            found = [term.around(base + starts[at - 1], base + end) for term in self._terms]
            self._sections[at] = found
        return found


def add_neighbours(sections: Sequence[Sequence[frozenset[str]]]) -> tuple[float, float]:
    """Of a file's units' terms, section by section: how many terms units side by side share, and how many
    any two of the same section would."""
    shared = expected = 0.0
    for units in sections:
        size = len(units)
        if size < 2 + GAP_UNITS:
            continue
        counts: dict[str, int] = {}
        for unit in units:
            for term in unit:
                counts[term] = counts.get(term, 0) + 1
        all_pairs = sum(count * (count - 1) for count in counts.values()) / (size * (size - 1))
        side_by_side = [*pairwise(units), *zip(units, units[2:], strict=False)]
        shared += sum(len(one & other) for one, other in side_by_side)
        expected += all_pairs * len(side_by_side)
    return shared, expected
