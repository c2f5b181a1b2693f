"""Render Markdown that a model or a stranger may have written.

HTML in the text stays text. What the renderer makes then passes an allow-list: no images, no attributes but
those named here, and links only to http, https and mailto. Each block knows the line at which it begins, so
that a page can show who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from markupsafe import Markup

RENDERED_CHARACTERS_MAX = 100_000
"""Longer texts are shown as they are. Nobody reads so long a page, and rendering takes half a second here."""

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_NOTED = ("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "pre", "td", "th")
_ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    **{tag: {"data-line", "data-aside"} for tag in _NOTED},
}
_BLOCKS = {"paragraph_open", "heading_open", "list_item_open", "fence", "code_block", "tr_open"}
_MARK = re.compile(r'<(?:p|h[1-6]|li|pre|td|th)(?: data-aside="")? data-line="([0-9]{1,9})">')

_SCHEMES = {"http", "https", "mailto"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")

AtLine = Callable[[int, int], Markup]
"""Return what stands beside a block, from its first line and the line after its last."""


def rendered(text: str, beside: AtLine | None = None) -> Markup:
    """Return the HTML of a Markdown text. `beside` adds a note to each block."""
    if len(text) > RENDERED_CHARACTERS_MAX:
        return Markup("<pre>{}</pre>").format(text)
    parser = _parser()
    tokens = parser.parse(text)
    _mark_comments(tokens)
    ends = {} if beside is None else _mark_lines(tokens)
    html = _clean(parser.renderer.render(tokens, parser.options, {}))
    if beside is not None:

        def note(found: re.Match[str]) -> str:
            line = int(found[1])
            return f"{found[0]}{beside(line, ends[line])}"

        html = _MARK.sub(note, html)
    return Markup(html)  # noqa: S704 - it has passed the allow-list


def _mark_comments(tokens: Sequence[Any]) -> None:
    """Mark paragraphs that are comments in Markdown: they are shown, but as asides."""
    for opening, inline in pairwise(tokens):
        text = inline.content
        if opening.type == "paragraph_open" and text.startswith("<!--") and text.endswith("-->"):
            opening.attrSet("data-aside", "")


def _mark_lines(tokens: Sequence[Any]) -> dict[int, int]:
    """Give each block the number of its first line, from 1. Return the line after each block's own lines."""
    ends: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.type not in _BLOCKS or token.map is None or token.map[0] + 1 in ends:
            continue  # the first paragraph of a list item: the item has the note
        first = token.map[0] + 1
        ends[first] = token.map[1] + 1
        # a row holds cells only: the first of them has the note
        noted = tokens[index + 1] if token.type == "tr_open" else token
        noted.attrSet("data-line", str(first))
    starts = sorted(ends)
    for first, following in pairwise(starts):
        ends[first] = min(ends[first], following)  # what lies inside has a note of its own
    return ends


def _clean(html: str) -> str:
    import nh3

    attributes: Mapping[str, set[str]] = _ATTRIBUTES
    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=dict(attributes),
        url_schemes=_SCHEMES,
        link_rel="noopener nofollow",
    )


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable("image")
    parser.validateLink = _is_allowed
    parser.add_render_rule("fence", _code)
    parser.add_render_rule("code_block", _code)
    return parser


def _is_allowed(url: str) -> bool:
    """Return True for http, https and mailto, and for a path beside the page."""
    scheme = _SCHEME.match(url)
    if scheme is None:  # `//` and what browsers take for it would lead to another server
        return url[:2].replace("\\", "/") != "//"
    return scheme[1].lower() in _SCHEMES


def _code(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    """Return a block of code. The renderer's own rule puts the attributes on an inner element."""
    del renderer, options, env
    token = tokens[index]
    line = token.attrGet("data-line")
    mark = Markup(' data-line="{}"').format(line) if line else ""
    return Markup("<pre{}><code>{}</code></pre>\n").format(mark, token.content)
