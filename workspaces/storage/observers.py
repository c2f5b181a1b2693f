"""Functions that observe something in this process for as long as somebody wants to know of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Observers(Generic[P]):
    """The observers of one thing. Any thread may tell them, while another adds or removes one."""

    def __init__(self) -> None:
        self._each: tuple[Callable[P, None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._each)

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for observe in self._each:
            observe(*args, **kwargs)

    @contextmanager
    def including(self, observe: Callable[P, None]) -> Generator[None]:
        """Tell this function, too, while the body runs."""
        self._each = (*self._each, observe)
        try:
            yield
        finally:
            self._each = tuple(one for one in self._each if one is not observe)
