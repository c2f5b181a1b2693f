"""Rendering Markdown of strangers: what passes the allow-list, and the note beside each block."""

from __future__ import annotations

import re

import pytest
from markupsafe import Markup

from harness.web.pages.parts.markdown import RENDERED_CHARACTERS_MAX, rendered

MAY_STAY = re.compile(
    r"</?(p|br|hr|em|strong|s|code|pre|blockquote|h[1-6]|ul|ol|li|table|thead|tbody|tr|th|td)"
    r'( start="\d+")?( data-aside="")?/?>'
    r'|<a href="(https?:|mailto:)[^"<>]*"( title="[^"<>]*")? rel="noopener nofollow">|</a>'
)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "![x](https://example.com/spy.png)",
        "![x](data:image/png;base64,AAAA)",
        "[x](//example.com/elsewhere)",
        '<https://example.com/"onmouseover=alert(1)>',
        "[x]: javascript:alert(1)\n\n[x]",
        '`<b>`\n\n    <b>\n\n```html"><script>\n<b>\n```',
        '# <svg/onload=alert(1)> data-line="9"',
        "| <i> | b |\n|:-|-:|\n| 1 | <script>x</script> |",
        '<p data-line="1">x</p>',
    ],
)
def test_only_tags_of_the_allow_list_come_out(text: str) -> None:
    left = MAY_STAY.sub("", rendered(text))
    assert "<" not in left, left


def test_text_keeps_its_structure() -> None:
    html = rendered("# A\n\n- *b*\n- [c](https://example.com)\n\n3. d\n\n| e |\n|---|\n| f |\n")
    for piece in (
        "<h1>A</h1>",
        "<em>b</em>",
        '<a href="https://example.com"',
        '<ol start="3">',
        "<td>f</td>",
    ):
        assert piece in html


def test_each_block_has_one_note_with_its_own_lines() -> None:
    text = "# A\n\nfirst\nsecond\n\n- b\n  - inner\n- c\n\n```\ncode\n```\n\n| d |\n|---|\n| e |\n"
    asked: list[tuple[int, int]] = []

    def beside(first: int, end: int) -> Markup:
        asked.append((first, end))
        return Markup("<i>{}</i>").format(first)

    html = rendered(text, beside)
    assert asked == [(1, 2), (3, 5), (6, 7), (7, 8), (8, 10), (10, 13), (14, 15), (16, 17)]
    assert '<li data-line="7"><i>7</i>inner' in html
    assert '<td data-line="16"><i>16</i>e' in html


def test_a_comment_is_shown_as_an_aside() -> None:
    assert '<p data-aside="">&lt;!-- keep it short --&gt;</p>' in rendered("<!-- keep it short -->")


def test_a_text_beyond_the_limit_is_shown_as_it_is() -> None:
    html = rendered("*a* <b>\n" * (RENDERED_CHARACTERS_MAX // 8 + 1))
    assert html.startswith("<pre>*a* &lt;b&gt;")
