"""Pages of long lists, in one form for all lists.

A page is an object whose list is named by the last word of the path, or by what that word lists (`log`:
`revisions`). A request names a page by `limit` and by the `cursor` from the previous page. The page's
`nextCursor` is the cursor of the following page, or null on the last page. A short list is one page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from harness.web.http.route_docs import Count, Query
from workspaces.validation import StrictModel

PAGE = 50
PAGE_MAX = 200
"""Largest page. It holds for entries too, and one entry may be long."""

T = TypeVar("T")


class PageQuery(Query):
    limit: Annotated[Count, Field(le=PAGE_MAX)] = PAGE
    cursor: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The `nextCursor` of the previous page."""


def page_of(
    name: str,
    rows: Sequence[T],
    limit: int,
    *,
    shown: Callable[[T], Any],
    place: Callable[[T], str],
) -> dict[str, Any]:
    """Return a page as JSON.

    `rows` holds one more than the limit if there is another page. `place` returns the cursor after an item.
    """
    items = rows[:limit]
    following = place(items[-1]) if len(rows) > limit else None
    return {name: [shown(item) for item in items], "nextCursor": following}


def whole(name: str, items: Iterable[Any]) -> dict[str, Any]:
    """Return a list that is one page as JSON."""
    return {name: list(items), "nextCursor": None}


def in_camel_case(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of the command line with its fields spelled as everywhere over HTTP."""
    return {to_camel(name): value for name, value in document.items()}


def page_model(name: str, item: type[Any]) -> type[StrictModel]:
    """Return the model of a page of these items."""
    fields: dict[str, Any] = {name: (list[item], ...), "next_cursor": (str | None, ...)}
    return create_model(f"{name.capitalize()}Page", __base__=StrictModel, **fields)
