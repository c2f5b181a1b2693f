"""Build a service when it is first used, so that a command imports only what it needs.

A class of services declares each one as a method, which imports what builds it:

    class Services:
        @lazily
        def learning(self) -> Learning:
            from … import Learning

            return Learning(self.agents, …)

The first use of `services.learning` calls the method. Later uses find the service on the object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

S = TypeVar("S")

_BUILDING = threading.RLock()
"""Held while a service is built, with what it needs. One lock for all, so that two threads that need the same
services cannot wait for each other."""


class Lazy(Generic[S]):
    """An attribute that is built at its first use. Threads may share the object."""

    def __init__(self, build: Callable[[Any], S]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type) -> S: ...
    def __get__(self, owner: object | None, kind: type) -> Self | S:
        if owner is None:
            return self
        built = vars(owner)
        with _BUILDING:
            if self._name not in built:  # another thread may have built it
                built[self._name] = self._build(owner)
            return built[self._name]


def lazily(build: Callable[[Any], S]) -> Lazy[S]:
    """Make a method the builder of an attribute."""
    return Lazy(build)


def is_built(owner: object, name: str) -> bool:
    """Return True if this lazy attribute was used."""
    return name in vars(owner)


def build_all(owner: object) -> None:
    """Build every lazy attribute, so that a server imports nothing in the middle of a request."""
    for kind in type(owner).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, Lazy):
                getattr(owner, name)
