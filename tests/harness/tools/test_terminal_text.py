"""Terminal text: what remains of a program's output without its control sequences."""

from __future__ import annotations

import pytest

from harness.tools.terminal_text import plain


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"a\n\tb\n", "a\n\tb\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[2J\x1b[H\x1b[?25lhidden\x1b[K", "hidden"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPdevice\x1b\\text", "text"),
        (b"\x1b(Btext\x1b=", "text"),
        (b"1%\r50%\r100%\r\n", "1%\n50%\n100%\n"),
        (b"a\x00b\x08c\x7fd\x07", "abcd"),
        ("a\x9b31mb\x85c".encode(), "abc"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("naïve 茶 👩‍💻".encode(), "naïve 茶 👩‍💻"),
        ("a\u202eb\u2066c\U000e0041".encode(), "abc"),
        (b"\x1b[", ""),
        (b"\x1b]never ended", ""),
    ],
)
def test_terminal_text_loses_every_control_sequence(printed: bytes, shown: str) -> None:
    assert plain(printed) == shown


def test_terminal_text_full_of_escapes_is_read_in_linear_time() -> None:
    for flood in (b"\x1b[" * 50_000, b"\x1b]" * 50_000, b"\x1b[;;;" * 30_000, b"\x1b   " * 30_000):
        assert "\x1b" not in plain(flood)
