from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from workspaces.coordination.lazily import build_all, is_built, lazily

THREADS = 8


class Shop:
    def __init__(self) -> None:
        self.built: list[str] = []
        self.fails = False
        self.all_wait = threading.Barrier(THREADS)

    @lazily
    def oven(self) -> object:
        """What bakes."""
        if self.fails:
            raise ValueError("no gas")
        self.built.append("oven")
        return object()

    @lazily
    def bread(self) -> tuple[object, str]:
        self.built.append("bread")
        return self.oven, "bread"

    def taken(self) -> object:
        self.all_wait.wait(timeout=60)
        return self.bread


class Bakery(Shop):
    @lazily
    def cake(self) -> str:
        self.built.append("cake")
        return "cake"


def test_a_service_is_built_at_its_first_use_with_what_it_needs() -> None:
    shop = Shop()
    assert shop.built == []
    assert shop.bread is shop.bread
    assert shop.built == ["bread", "oven"]


def test_each_object_has_services_of_its_own() -> None:
    assert Shop().oven is not Shop().oven


def test_threads_that_come_at_once_get_the_same_service() -> None:
    shop = Shop()
    with ThreadPoolExecutor(THREADS) as threads:
        found = [one.result() for one in [threads.submit(shop.taken) for _ in range(THREADS)]]
    assert all(one is shop.bread for one in found)
    assert shop.built == ["bread", "oven"]


def test_a_service_that_could_not_be_built_is_tried_again() -> None:
    shop = Shop()
    shop.fails = True
    with pytest.raises(ValueError, match="no gas"):
        _ = shop.oven
    assert not is_built(shop, "oven")
    shop.fails = False
    assert shop.oven is shop.oven
    assert is_built(shop, "oven")


def test_all_services_are_built_also_those_of_the_classes_above() -> None:
    bakery = Bakery()
    build_all(bakery)
    assert sorted(bakery.built) == ["bread", "cake", "oven"]


def test_the_class_shows_what_a_service_is() -> None:
    assert Shop.oven.__doc__ == "What bakes."
