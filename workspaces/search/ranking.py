"""Rank the units that a query is about, from the postings of its terms. Pure.

The score of a unit is a sum over the query's terms. It is BM25 with one change: the saturated frequency is
not only that of the term in the unit, but

    (own + cohesion · neighbours + section) · share

- **own**: the term's frequency in the unit.
- **neighbours**: a share of the frequencies up to three units before and after. It halves with each step, and
  is larger for units before: an answer follows its question, "it" follows the name it stands for. [+8 on
  short lines]
- **cohesion**: how strongly lines of this file relate to their neighbours. It is the number of terms that
  adjacent units share, divided by the number that any two units of the same section share. At 1 the order
  means nothing, as in a list of facts, and neighbours do not count. From 1.5 on they count in full. It is
  measured for each file when it is indexed; for a short file it is drawn towards that of the whole index. So
  the same weights serve diaries and lists. [+4 when lines are shuffled over all files]
- **section**: the share of the section's units that hold the term [+1; +3 in files without an order], and
  whether its headings or the file's name hold it [+1 on short lines]. It lifts all lines of a section alike.
- **share**: 1 for a unit of up to `WHOLE_TERMS` terms. A longer unit collects words of any query, so all
  that speaks for it counts in inverse proportion to its length. [+15 on long messages, of which the context
  has 7; nothing on short lines, which a norm below this length makes worse]

The parts are saturated together, so ten weak hints for one term are worth less than the term itself. The sum
is then multiplied: up, if the query names the **subject** that starts the line [+3 on short lines]; and down
for a **heading**, whose words the lines below it have anyway. The result is divided by the score of a line
that contains every term once, so scores mean the same in every index.

In brackets: the points of recall@10 that each part gains in addition to all others, on two public sets of
notes: short lines of talk and long messages. The weights were chosen on every second folder of each set;
docs/benchmarks.md has both halves. docs/performance.md tells what was tried and left out.

**The cut.** By default an answer shows the lines from half of the best score on, without headings. It shows
nothing if no line bears on the query (`lowest_shown`).

**What makes it fast.** Only units that hold one of the query's rarer terms, or are next to one, are
considered. Terms that half of all units hold, and terms beyond `POSTINGS_MAX` postings, only weigh the
units that the rarer terms have found. Of these, the `CANDIDATES` with the highest estimates are scored in
full. Neighbouring units have neighbouring numbers, with a gap between files, so neighbours and sections are
found by arithmetic and bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import nlargest
from itertools import pairwise
from math import log, log2
from typing import Protocol

from workspaces.search.embeddings import QueryVector, fuse
from workspaces.search.table import NOWHERE, FileRow, Posting, unpack_numbers

BEFORE = (0.5, 0.25, 0.125)
AFTER = (0.3, 0.15, 0.075)
GAP_UNITS = max(len(BEFORE), len(AFTER))
"""Numbers left free between files, so that no unit has a neighbour in another file."""

SECTION = 1.0
SECTION_DAMPING_UNITS = 10
"""Units added to a section's size. In a section of three lines each line is a third, which means nothing."""

HEADING = 0.4
SUBJECT = 0.7
IS_HEADING = 0.5

SATURATION = 0.8
WHOLE_TERMS = 80
"""Terms up to which a unit counts in full: a paragraph. The length is fixed, so that a unit's weight does
not change as others are added."""

COHESION_NONE, COHESION_FULL = 1.1, 1.5
COHESION_ASSUMED = 1.25
"""Cohesion of an index with too few lines to tell. Neighbours then count so little that lines with nothing
else stay below the cut."""
COHESION_DAMPING = 4.0
"""Weight of the whole index's cohesion, in shared terms expected by chance. Files with fewer mostly take
that of the whole index."""

COMMON_SHARE = 0.5
"""Share of units from which a term is common and finds no units, if the query has another term."""
COMMON_UNITS_MIN = 64
"""Units from which a term can be common. In an index of a few lines no term is."""
POSTINGS_MAX = 4000
"""Postings to read for leading terms: a millisecond."""
SEEDS = 50
"""Units with the highest own estimates, beyond `CANDIDATES`, whose neighbours are considered."""
CANDIDATES = 80
"""Units to score in full: half a millisecond. Twice as many gain 0.2 points among shuffled lines and
nothing in others."""

CUT_SHARE = 0.5
"""Share of the best score below which the default cut leaves a line out."""
BEARING_SCORE = 0.48
"""Score of the best line from which it bears on the query: it has about half of the query's words, the rarer
ones counting more."""
BEARING_DAMPING_UNITS = 30
"""Size of an index at which half of that score is enough. Where few words are known, a missing one tells
little."""

HEADING_TRAIT, ASKS_TRAIT = 0x80, 0x40
_SHARE_MAX = 0x3F
"""The lower bits of a unit's traits hold its share, in steps of 1 / 63."""
SECTION_MARK = "§"
"""Prefix of the terms of headings. Their postings are the first units of sections."""

_SHARES = (
    *((step, share) for step, share in enumerate(BEFORE, 1)),
    *((-step, share) for step, share in enumerate(AFTER, 1)),
)
"""Shares of a unit's strength that its neighbours receive: distance of the neighbour, share."""

SUBJECT_BIT = 0x80
"""Bit of a weight byte: the term is in the subject of the unit."""
_ONCE = 56
_STEPS_A_DOUBLING = 11
_STRENGTH = tuple(2 ** (((byte & 0x7F) - _ONCE) / _STEPS_A_DOUBLING) for byte in range(256))
"""The frequency of each weight byte. The steps are even in proportion: 3 % off at most, from 1/34 to 87."""
_SATURATED = tuple(strength / (strength + SATURATION) for strength in _STRENGTH)
_SHARE = tuple((traits & _SHARE_MAX) / _SHARE_MAX for traits in range(256))


def share_of(length: int) -> float:
    """Return the share that counts of what speaks for a unit of this many terms."""
    return min(1.0, WHOLE_TERMS / length) if length else 1.0


def weight(count: int, share: float) -> int:
    """Return the weight byte of a posting: the frequency, as far as it counts."""
    return min(0x7F, max(1, _ONCE + round(_STEPS_A_DOUBLING * log2(count * share))))


def traits_of(length: int, *, is_heading: bool, asks: bool) -> int:
    """Return the traits byte of a unit."""
    share = max(1, round(_SHARE_MAX * share_of(length)))
    return share | (HEADING_TRAIT if is_heading else 0) | (ASKS_TRAIT if asks else 0)


@dataclass(frozen=True, slots=True)
class MatchReasons:
    """The terms of the query that match a unit, by where they occur."""

    own: list[str]
    """Terms in the unit itself."""
    above: list[str]
    """Terms only in its headings or the file's name."""
    near: list[str]
    """Terms only in neighbouring units."""
    is_subject: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """A unit with its score."""

    unit: int
    path: str
    score: float
    similarity: float
    """Similarity by the embedder's vectors. 0 without a query vector."""
    is_named: bool
    is_heading: bool
    asks: bool
    _scorer: _Scorer

    def reasons(self) -> MatchReasons:
        return self._scorer.reasons(self.unit)


class Ranked(Protocol):
    """A line in a ranking, as the cut needs it."""

    @property
    def score(self) -> float: ...
    @property
    def is_named(self) -> bool: ...
    @property
    def is_heading(self) -> bool: ...
    @property
    def bears(self) -> bool: ...


def bears(score: float, size: int) -> bool:
    """Return True if a line with this score, in an index of `size` units, bears on the query.

    The score is how much of the query the line and its context hold, the rarer words counting more."""
    return score >= BEARING_SCORE * size / (size + BEARING_DAMPING_UNITS)


def lowest_shown(ranked: Iterable[Ranked]) -> float | None:
    """Return the score from which on the default cut shows lines, or None if no line bears on the query."""
    lines = [one for one in ranked if one.is_named or not one.is_heading]
    if not any(one.bears for one in lines):
        return None
    return CUT_SHARE * max(one.score for one in lines)


def is_shown(one: Ranked, lowest: float) -> bool:
    """Return True if a line is above the cut. A heading is no answer, unless the query names it."""
    return one.is_named or (one.score >= lowest and not one.is_heading)


class Corpus:
    """The rows of all files of an index, as ranking needs them."""

    def __init__(self, rows: Mapping[str, FileRow]) -> None:
        self.rows = rows
        self.size = sum(len(row.traits) for row in rows.values())
        self._ordered = sorted(rows.values(), key=lambda row: row.base)
        self._bases = [row.base for row in self._ordered]

    def row_of(self, unit: int) -> FileRow | None:
        """Return the file of a unit, or None for a number that is no unit."""
        at = bisect_right(self._bases, unit) - 1
        row = self._ordered[at] if at >= 0 else None
        return row if row is not None and unit < row.base + len(row.traits) else None

    def has(self, unit: int, paths: Container[str]) -> bool:
        """Return True if a number is a unit of one of these files."""
        row = self.row_of(unit)
        return row is not None and row.path in paths

    def cohesion(self, row: FileRow) -> float:
        """Return the weight of neighbours in a file, from 0 to 1."""
        prior = self._cohesion * COHESION_DAMPING
        cohesion = (row.shared + prior) / (row.expected + COHESION_DAMPING)
        share = (cohesion - COHESION_NONE) / (COHESION_FULL - COHESION_NONE)
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
    query_vector: QueryVector | None = None,
    candidates: int | None = CANDIDATES,
) -> list[Scored]:
    """Return the `named` units first, then the others by descending score. Of equal scores, statements come
    before questions; then path and line decide. `query_vector` adds the similarity to the score. `keep`
    selects files by path. With `candidates` None, every unit found is scored."""
    ideal = sum(_rarity(len(postings.get(term, NOWHERE).units), corpus.size) for term in terms)
    known = [_Term(term, postings, corpus.size) for term in terms if term in postings]
    known.sort(key=lambda term: (len(term.units), term.name))
    leading = _leading_terms(known, corpus.size)
    own = _own_estimates(leading)
    paths = corpus.rows.keys()
    if keep is not None:
        paths = frozenset(path for path in corpus.rows if keep(path))
        own = {unit: value for unit, value in own.items() if corpus.has(unit, paths)}
    chosen = {*_candidates(own, candidates), *named}
    if query_vector is not None:
        is_kept = None if keep is None else partial(corpus.has, paths=paths)
        chosen.update(query_vector.nearest(is_kept))
    scored: list[Scored] = []
    for row, units in _by_file(chosen, corpus):
        if row.path in paths:
            scorer = _Scorer(row, corpus.cohesion(row), known, ideal, query_vector)
            scored += [one for unit in units if (one := scorer.score(unit, named)) is not None]
    return sorted(
        scored, key=lambda one: (not one.is_named, -one.score, one.asks, one.path, one.unit)
    )


_SectionMatch = tuple[float, bool]
"""How strongly a section holds a term, and whether its headings or the file's name hold it."""


class _Term:
    """One term of a query, with its postings."""

    def __init__(self, name: str, postings: Mapping[str, Posting], size: int) -> None:
        posting = postings[name]
        self.name = name
        self.units = posting.units
        self.weights = posting.weights
        self.sections = postings.get(SECTION_MARK + name, NOWHERE).units
        self.rarity = _rarity(len(self.units), size)
        self.worth = self.rarity * (SATURATION + 1)
        self.byte: Callable[[int], int | None] = self._search
        """Returns the weight byte of a unit, or None."""
        self.near: Callable[[int], float | None] = _no_neighbours
        """Returns the strength from a unit's neighbours. Only a leading term counts neighbours."""

    def prepare_lookup(self) -> None:
        """Make this a leading term: prepare fast lookups of single units and of their neighbours."""
        strengths = dict(zip(self.units, self.weights, strict=True))
        self.byte = strengths.get
        if len(strengths) > CANDIDATES:  # many postings: compute neighbours on demand
            self.near = partial(_sum_neighbours, strengths.get)
            return
        near: dict[int, float] = {}  # few postings: computing all neighbours is less work
        for unit, byte in strengths.items():
            for step, share in _SHARES:
                at = unit + step
                near[at] = near.get(at, 0.0) + share * _STRENGTH[byte]
        self.near = near.get

    def _search(self, unit: int) -> int | None:
        at = bisect_left(self.units, unit)
        return self.weights[at] if at < len(self.units) and self.units[at] == unit else None

    def in_section(self, start: int, end: int) -> _SectionMatch:
        count = bisect_left(self.units, end) - bisect_left(self.units, start)
        share = SECTION * count / (end - start + SECTION_DAMPING_UNITS)
        at = bisect_left(self.sections, start)
        is_above = at < len(self.sections) and self.sections[at] == start
        return (share + HEADING, True) if is_above else (share, False)


def _no_neighbours(unit: int) -> None:
    """Return nothing: a common term does not count for neighbouring units."""
    del unit


def _sum_neighbours(byte: Callable[[int], int | None], unit: int) -> float:
    strength = 0.0
    for step, share in _SHARES:
        neighbour = byte(unit - step)
        if neighbour:
            strength += share * _STRENGTH[neighbour]
    return strength


def _rarity(count: int, size: int) -> float:
    return log(1 + (size - count + 0.5) / (count + 0.5))


def _leading_terms(terms: list[_Term], size: int) -> list[_Term]:
    """Return the terms that find units: the rarest, and those that are neither common nor over the limit of
    postings. `terms` ascend by how often they occur."""
    common = max(COMMON_UNITS_MIN, COMMON_SHARE * size)
    leading: list[_Term] = []
    room = POSTINGS_MAX
    for term in terms:
        if leading and (len(term.units) > common or len(term.units) > room):
            break
        room -= len(term.units)
        term.prepare_lookup()
        leading.append(term)
    return leading


def _own_estimates(leading: list[_Term]) -> dict[int, float]:
    """Return a rough score of each unit that holds a leading term, without neighbours and section."""
    estimates: dict[int, float] = {}
    get = estimates.get
    saturated = _SATURATED
    for term in leading:
        worth = term.worth
        for unit, byte in zip(term.units, term.weights, strict=True):
            estimates[unit] = get(unit, 0.0) + worth * saturated[byte]
    return estimates


def _candidates(own: dict[int, float], count: int | None) -> Iterable[int]:
    """Return the units, neighbours included, that could have the highest scores."""
    seeds: Iterable[int] = own
    if count is not None and len(own) > count + SEEDS:
        seeds = nlargest(count + SEEDS, own, key=own.__getitem__)
    estimates: dict[int, float] = {}
    get = estimates.get
    for unit in seeds:
        value = own[unit]
        estimates[unit] = get(unit, 0.0) + value
        for step, share in _SHARES:
            estimates[unit + step] = get(unit + step, 0.0) + share * value
    if count is None or len(estimates) <= count:
        return estimates
    return nlargest(count, estimates, key=estimates.__getitem__)


def _by_file(units: Iterable[int], corpus: Corpus) -> Iterator[tuple[FileRow, list[int]]]:
    """Yield each file with its units. Numbers that are no unit are left out."""
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


class _Scorer:
    """A scorer of the units of one file."""

    def __init__(
        self,
        row: FileRow,
        cohesion: float,
        terms: list[_Term],
        ideal: float,
        query_vector: QueryVector | None,
    ) -> None:
        self._query_vector = query_vector
        self._row = row
        self._cohesion = cohesion
        self._terms = terms
        self._ideal = ideal
        self._starts = unpack_numbers(row.sections)
        self._sections: dict[int, list[_SectionMatch]] = {}

    def score(self, unit: int, named: Collection[int]) -> Scored | None:
        """Score a unit. Return None if only other units of its section match."""
        traits = self._row.traits[unit - self._row.base]
        is_heading = bool(traits & HEADING_TRAIT)
        share = _SHARE[traits]
        # A heading is no answer to what only the lines beside it say.
        near_share = 0.0 if is_heading else share * self._cohesion
        vector = self._query_vector
        score = 0.0
        has_match = is_subject = False
        for term, (in_section, is_above) in zip(self._terms, self._section(unit), strict=True):
            strength = share * in_section
            byte = term.byte(unit)
            if byte:
                strength += _STRENGTH[byte]
                has_match = True
                is_subject = is_subject or byte >= SUBJECT_BIT
            if near_share and (near := term.near(unit)):
                strength += near_share * near
                has_match = True
            has_match = has_match or (is_above and not is_heading)
            score += term.worth * strength / (strength + SATURATION)
        similarity = vector.similarity(unit) if vector is not None else 0.0
        if not has_match and not similarity:
            return None
        if is_subject:
            score *= 1 + SUBJECT
        if is_heading:
            score *= IS_HEADING
        score = score / self._ideal if self._ideal else 0.0
        if vector is not None:
            score = fuse(score, similarity)
        return Scored(
            unit,
            self._row.path,
            score,
            similarity,
            is_named=unit in named,
            is_heading=is_heading,
            asks=bool(traits & ASKS_TRAIT),
            _scorer=self,
        )

    def reasons(self, unit: int) -> MatchReasons:
        reasons = MatchReasons(
            [], [], [], any((one.byte(unit) or 0) >= SUBJECT_BIT for one in self._terms)
        )
        counts_others = not self._row.traits[unit - self._row.base] & HEADING_TRAIT
        for term, (_, is_above) in zip(self._terms, self._section(unit), strict=True):
            if term.byte(unit):
                reasons.own.append(term.name)
            elif counts_others and is_above:
                reasons.above.append(term.name)
            elif counts_others and self._cohesion and term.near(unit):
                reasons.near.append(term.name)
        return reasons

    def _section(self, unit: int) -> list[_SectionMatch]:
        """Return the match of a unit's section with each term."""
        starts = self._starts
        at = bisect_right(starts, unit - self._row.base)
        matches = self._sections.get(at)
        if matches is None:
            base = self._row.base
            end = starts[at] if at < len(starts) else len(self._row.traits)
            matches = [term.in_section(base + starts[at - 1], base + end) for term in self._terms]
            self._sections[at] = matches
        return matches


def count_shared_terms(sections: Sequence[Sequence[frozenset[str]]]) -> tuple[float, float]:
    """Return the number of terms that adjacent units of a file share, and the number they would share by
    chance: the mean of any two units of the same section. `sections` holds the terms of each unit."""
    shared = expected = 0.0
    for units in sections:
        size = len(units)
        if size < 2 + GAP_UNITS:
            continue
        counts: Counter[str] = Counter()
        for unit in units:
            counts.update(unit)
        all_pairs = sum(count * (count - 1) for count in counts.values()) / (size * (size - 1))
        side_by_side = [*pairwise(units), *zip(units, units[2:], strict=False)]
        shared += sum(len(one & other) for one, other in side_by_side)
        expected += all_pairs * len(side_by_side)
    return shared, expected
