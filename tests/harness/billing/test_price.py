"""Prices of models: how a request's tokens become money, and the price file."""

from __future__ import annotations

from pathlib import Path

import pytest
from anthropic.types import ModelParam

from harness.billing.price import own_prices
from harness.messages.model_request import Usage
from harness.runtime.settings import DEFAULT_MODEL
from workspaces.errors import Refused, Unavailable

PRICE = "{input: 1, output: 2, cache_read: 0.1, cache_write: 1.25, cache_write_hour: 2}"


def test_the_default_model_has_a_price() -> None:
    assert own_prices().find(DEFAULT_MODEL) is not None


def test_every_kind_of_token_has_its_price() -> None:
    price = own_prices().find("claude-sonnet-5-5")
    assert price is not None
    assert price.of(Usage(1_000_000)) == 2 * 10**9
    assert price.of(Usage(output=1_000_000)) == 10 * 10**9
    assert price.of(Usage(cache_read=1_000_000)) == 10**8
    assert price.of(Usage(cache_write=1_000_000)) == 25 * 10**8
    assert price.of(Usage(cache_write=1_000_000, cache_write_hour=1_000_000)) == 4 * 10**9


def test_a_long_prompt_costs_more_and_cache_tokens_count_as_prompt() -> None:
    price = own_prices().find("claude-haiku-5-5")
    assert price is not None
    assert price.of(Usage(100_000)) == 100_000 * 100
    assert price.of(Usage(100_001)) == 100_001 * 500
    assert price.of(Usage(1, cache_read=100_000)) == 500 + 100_000 * 50


def test_a_price_for_the_exact_model_name_wins_over_the_longest_prefix(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    dear = PRICE.replace("input: 1,", "input: 9,")
    file.write_text(f"valid: 2026-01-01\nmodels:\n  my-*: {PRICE}\n  my-own: {dear}\n")
    prices = own_prices().with_file(file)
    own, other = prices.find("my-own"), prices.find("my-other")
    assert own is not None
    assert other is not None
    assert (own.input, other.input) == (9_000, 1_000)
    assert prices.find("mine") is None
    assert prices.find(DEFAULT_MODEL) == own_prices().find(DEFAULT_MODEL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "valid: 2026-01-01\n",
        "valid: 2026-01-01\nmodels: [a]\n",
        "valid: 2026-01-01\nmodels:\n  m: 3\n",
        "valid: 2026-01-01\nmodels:\n  m: {input: 1}\n",
        f"valid: 2026-01-01\nmodel:\n  m: {PRICE}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('1.25', '1.2345')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('1.25', '-1')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('1.25', 'nan')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('1.25', 'much')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('input', 'inputs')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('}', ', above: 5}')}\n",
        f"valid: 2026-01-01\nmodels:\n  m: {PRICE.replace('}', ', above: {tokens: x}}')}\n",
    ],
)
def test_an_invalid_price_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(Refused):
        own_prices().with_file(file)


def test_a_missing_price_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        own_prices().with_file(tmp_path / "nix.yaml")
    assert "nix.yaml" in str(caught.value)
    assert "prices" in (caught.value.remedy or "")


def test_every_priced_model_name_is_known_to_the_sdk() -> None:
    """A misspelt name would leave its model without a price."""
    from typing import get_args

    known = {name for part in get_args(ModelParam) for name in get_args(part)} | {"demo"}
    for name in own_prices().models:
        assert any(model.startswith(name.removesuffix("*")) for model in known), name
