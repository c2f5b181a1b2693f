"""Long lists, a page at a time: one shape for all of them.

A page is asked for by `limit` and by the `cursor` of the page before; its `next` is the cursor of the page
after it, and null on the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field

from harness.web.http.route_docs import TEXT_OR_NULL, Count, Query, Schema, list_of, object_of

PAGE = 50
PAGE_MAX = 200
"""Of entries too, and one of them may be long."""

T = TypeVar("T")


class PageQuery(Query):
    limit: Annotated[Count, Field(le=PAGE_MAX)] = PAGE
    cursor: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """`next` of the page before."""


def page_of(
    name: str,
    found: Sequence[T],
    limit: int,
    *,
    shown: Callable[[T], Any],
    place: Callable[[T], str],
) -> dict[str, Any]:
    """`found` holds one more than the limit where there is another page; `place` is the cursor behind
    an item."""
    items = found[:limit]
    following = place(items[-1]) if len(found) > limit else None
    return {name: [shown(item) for item in items], "next": following}


def page_schema(name: str, item: Schema) -> Schema:
    return object_of({name: list_of(item), "next": TEXT_OR_NULL})
