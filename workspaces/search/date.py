"""Recognize dates as people write them: "8 May 2023", "May 8th, 2023", "2023-05-08" are one day.

A date in a text adds words to it: the name of the month, the number of the day, the year, and the whole
date. So each spelling finds the others. Only unambiguous dates count: 5/8/2023 is two different days in two
countries, and stays three numbers. (On a benchmark whose questions rarely name a day this gains nothing; it
serves users who ask for one.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NUMBER = {name[:length]: n for n, name in enumerate(_MONTHS, 1) for length in (3, 4, len(name))}
_MONTH = "(?P<month>" + "|".join(sorted(_NUMBER, key=len, reverse=True)) + r")\.?"
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>[12][0-9]{3}))?"
_AS_WRITTEN = (
    re.compile(r"\b(?P<year>[12][0-9]{3})[-/.](?P<month>[01]?[0-9])[-/.](?P<day>[0-3]?[0-9])\b"),
    re.compile(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}\b"),
    re.compile(rf"\b{_MONTH}\s+{_DAY}{_YEAR}\b"),
)
_NUMBERS_ONLY = re.compile(r"[12][0-9]{3}[-/.][01]?[0-9][-/.]")
_DIGIT = re.compile(r"[0-9]")


def may_have_dates(folded: str, words: Iterable[str]) -> bool:
    """Return False if a folded text with these words has no date. This takes less time than `date_words`."""
    return not _NUMBER.keys().isdisjoint(words) or _NUMBERS_ONLY.search(folded) is not None


def date_words(folded: str) -> Iterator[str]:
    """Yield the words that dates in a folded text add to it, such as may 8 2023 2023-05-08."""
    if not _DIGIT.search(folded):
        return
    for pattern in _AS_WRITTEN:
        for match in pattern.finditer(folded):
            name = match["month"]
            month, day = int(_NUMBER.get(name, name)), int(match["day"])
            if not (1 <= month <= 12 and 1 <= day <= 31):
                continue
            yield _MONTHS[month - 1]
            yield str(day)
            if match["year"]:
                yield match["year"]
                yield f"{match['year']}-{month:02}-{day:02}"
