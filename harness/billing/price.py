"""The prices of models: what a request costs, from its usage.

Prices come from the file `prices.yaml` beside this module, and from a file of the same form that the setting
`prices` names. For a model in both files, the second file counts. Amounts are whole nanodollars: no price has
more than three decimal places for a million tokens, so no amount is ever rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any, cast

from harness.messages.model_request import Usage
from workspaces.errors import Refused, Unavailable, unknown_name
from workspaces.plain_yaml import load

NANODOLLARS = 1_000_000_000
"""Nanodollars in a dollar."""

DOLLARS_MAX = 100_000
"""Dollars for a million tokens; a higher price is a typing error."""

_KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_hour")
_OWN = Path(__file__).parent / "prices.yaml"


@dataclass(frozen=True, slots=True)
class Price:
    """The nanodollars for one token of each kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_hour: int
    above_tokens: int | None = None
    above: Price | None = None
    """The price of a request whose prompt has more than `above_tokens`."""

    def of(self, usage: Usage) -> int:
        if self.above is not None and usage.prompt > (self.above_tokens or 0):
            return self.above.of(usage)
        return (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_read * self.cache_read
            + (usage.cache_write - usage.cache_write_hour) * self.cache_write
            + usage.cache_write_hour * self.cache_write_hour
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of all models."""

    valid: str
    """The day on which the provider published them."""
    models: Mapping[str, Price]

    def find(self, model: str) -> Price | None:
        if model in self.models:
            return self.models[model]
        matching = [
            name for name in self.models if name.endswith("*") and model.startswith(name[:-1])
        ]
        return self.models[max(matching, key=len)] if matching else None

    def with_file(self, file: Path) -> Prices:
        """Return these prices with those of a file. For a model in both, the file counts.

        Raises: Refused for a file that is not a price list; Unavailable for one that cannot be read.
        """
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            remedy = "name a readable file in the setting `prices`, or leave the setting out"
            raise Unavailable(f"prices {file}", str(error), remedy=remedy) from error
        own = _prices_of(text, str(file))
        return Prices(own.valid, {**self.models, **own.models})


@cache
def own_prices() -> Prices:
    """Return the prices that come with this version."""
    return _prices_of(_OWN.read_text(), str(_OWN))


def prices_from(file: Path | None) -> Callable[[], Prices]:
    """Return a function that returns the prices, with those of a user's file in place of the shipped ones.

    The shipped table is read at the first call. The file is read at once, so that a mistake in it is refused
    at start.
    """
    if file is None:
        return own_prices
    prices = own_prices().with_file(file)
    return lambda: prices


def _prices_of(text: str, name: str) -> Prices:
    data = load(text, name=name)
    for key in data:
        if key not in ("valid", "models"):
            raise unknown_name(name, key, ["valid", "models"])
    models = data.get("models")
    if not isinstance(data.get("valid"), str) or not isinstance(models, dict):
        raise Refused(name, sorted(data), "must have `valid: <date>` and `models:` with prices")
    prices = cast(dict[str, Any], models)
    return Prices(
        data["valid"],
        {model: _price(value, f"{name}: {model}") for model, value in prices.items()},
    )


def _price(value: object, field: str) -> Price:
    fields = _object(value, field)
    above = fields.pop("above", None)
    base = _flat_price(fields, field)
    if above is None:
        return base
    long = _object(above, f"{field}.above")
    tokens = long.pop("tokens", None)
    if not isinstance(tokens, str) or not tokens.isdecimal():
        raise Refused(f"{field}.above.tokens", tokens, "must be a number of tokens")
    return replace(base, above_tokens=int(tokens), above=_flat_price(long, f"{field}.above"))


def _flat_price(fields: dict[str, object], field: str) -> Price:
    for key in fields:
        if key not in _KINDS:
            raise unknown_name(field, key, [*_KINDS, "above"])

    def amount(kind: str) -> int:
        return _nanodollars(fields.get(kind), f"{field}.{kind}")

    return Price(
        amount("input"),
        amount("output"),
        amount("cache_read"),
        amount("cache_write"),
        amount("cache_write_hour"),
    )


def _object(value: object, field: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Refused(field, value, f"must be an object of {', '.join(_KINDS)}")
    return dict(cast(dict[str, object], value))


def _nanodollars(value: object, field: str) -> int:
    """Return the nanodollars of one token, from the dollars of a million tokens in the file."""
    try:
        dollars = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        dollars = None
    if dollars is None or not dollars.is_finite() or not 0 <= dollars <= DOLLARS_MAX:
        raise Refused(field, value, "must be a price in dollars for a million tokens")
    nanodollars = dollars * 1000
    if nanodollars != int(nanodollars):
        raise Refused(field, value, "may have at most three decimal places")
    return int(nanodollars)
