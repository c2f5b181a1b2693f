"""Find the numbers of payment cards in text: 13 to 19 digits whose check digit is right.

Digits may be in groups with a blank or a hyphen between them. One number in ten has a right check digit by
chance, so a number must also begin as those of the large card networks do.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![0-9])(?<![0-9][ -])(?:[0-9][ -]?){12,18}[0-9](?![ -]?[0-9])")
_BEGINNING = re.compile(r"4|5[1-5]|2[2-7]|3[4-9]|6[0245]|81|9792")


def find_card_numbers(text: str) -> list[tuple[int, int]]:
    """Return the places of card numbers, in order."""
    found: list[tuple[int, int]] = []
    for match in _NUMBER.finditer(text):
        digits = [int(character) for character in match[0] if character.isdigit()]
        if (
            _BEGINNING.match("".join(map(str, digits)))
            and _is_checked(digits)
            and len({*digits}) > 1
        ):
            found.append(match.span())
    return found


def _is_checked(digits: list[int]) -> bool:
    """Return True if the check digit is right by Luhn's formula."""
    doubled = (digit * 2 for digit in digits[-2::-2])
    total = sum(digits[-1::-2]) + sum(digit - 9 if digit > 9 else digit for digit in doubled)
    return total % 10 == 0
