"""Strict JSON: which documents are accepted, and how long parsing takes at most."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress

import pytest

from harness.runtime.strict_json import (
    DEPTH_MAX,
    KEY_CHARACTERS_MAX,
    KEYS_MAX,
    NUMBER_CHARACTERS_MAX,
    VALUES_MAX,
    parse_json,
)
from harness.web.loop_watchdog import STALL_S
from workspaces.errors import Refused

MB = 2**20


def refusal(text: bytes | str) -> Refused:
    with pytest.raises(Refused) as caught:
        parse_json(text, within="body")
    return caught.value


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        "text",
        -1,
        1.5e300,
        [1, "[,{", {"a": [True, None]}, ",", '\\"[[[[', "é\n"],
        {str(number): number for number in range(KEYS_MAX)},
        [0] * (VALUES_MAX - 1),
        ",[{" * VALUES_MAX,
        10 ** (NUMBER_CHARACTERS_MAX - 1),
        {"k" * KEY_CHARACTERS_MAX: 1},
    ],
    ids=lambda document: type(document).__name__,
)
def test_json_within_the_limits_is_parsed_unchanged(document: object) -> None:
    assert parse_json(json.dumps(document), within="body") == document
    assert parse_json(json.dumps(document, ensure_ascii=False).encode(), within="body") == document


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1E+400", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_is_refused_by_name(number: str) -> None:
    for text in (number, f'{{"limits": {{"a": {number}}}}}', f"[0, {number}]"):
        failure = refusal(text)
        assert failure.field == "body"
        assert f"holds {number}, which is not a finite number" in str(failure)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        ('{"a": 1}'.encode("utf-16"), "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        (f"[{'0,' * VALUES_MAX}0]", "more than 100,000 values"),
        (f"[{'[],' * VALUES_MAX}0]", "more than 100,000 values"),
        ("[" + '"",' * VALUES_MAX + "0]", "more than 100,000 values"),
        ('["\\"]x,",' + "{}," * VALUES_MAX + "0]", "more than 100,000 values"),
        (json.dumps(dict.fromkeys(map(str, range(KEYS_MAX + 1)))), "more than 1,000 keys"),
        (json.dumps({"k" * (KEY_CHARACTERS_MAX + 1): 1}), "a key of more than 1,000 characters"),
        ("9" * (NUMBER_CHARACTERS_MAX + 1), "a number of more than 1,000 digits"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "is nested deeper than 64 levels"),
        ("[" * (VALUES_MAX - 1), "is nested deeper than 64 levels"),
    ],
    ids=range(13),
)
def test_json_over_a_limit_is_refused_with_a_short_error(text: bytes | str, rule: str) -> None:
    failure = refusal(text)
    assert failure.field == "body"
    assert rule in str(failure)
    assert len(str(failure)) < 200


def test_a_duplicate_json_key_is_refused_naming_the_first() -> None:
    failure = refusal('{"a": 1, "b": {"c": 1, "d": 2, "d": 3, "c": 4}}')
    assert (failure.field, str(failure)) == ("d", "d: appears twice in body")


def test_a_duplicate_key_in_half_a_megabyte_is_found_in_linear_time() -> None:
    pairs = ",".join(f'"k{number:05}":0' for number in range(48_000))
    text = f'{{{pairs},"a":1,"a":2}}'
    begun = time.thread_time()
    refusal(text)
    assert time.thread_time() - begun < 1, "45 s, when each name was looked for among all"


HOSTILE = {
    "unknown keys": lambda: "{" + ",".join(f'"{i}":0' for i in range(700_000)) + "}",
    "numbers": lambda: "[" + "1," * (5 * MB - 2) + "1]",
    "digits": lambda: "[" + ("9" * 4300 + ",") * 2400 + "1]",
    "lists": lambda: "[" + "[]," * (3 * MB) + "1]",
    "objects": lambda: "[" + "{}," * (3 * MB) + "1]",
    "texts": lambda: "[" + '"",' * (3 * MB) + "1]",
    "quotes": lambda: '"' * (10 * MB),
    "escapes": lambda: '"' + '\\"' * (5 * MB) + '"',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_parsing_ten_megabytes_of_hostile_json_does_not_stall_other_threads(kind: str) -> None:
    """Whoever parses holds the interpreter's lock. For how long, the processor time says that passes between
    two moments in which another thread runs."""
    text = HOSTILE[kind]()
    longest_s = 0.0
    ends = threading.Event()

    def run() -> None:
        nonlocal longest_s
        before = time.process_time()
        while not ends.wait(0.001):
            now = time.process_time()
            longest_s, before = max(longest_s, now - before), now

    other = threading.Thread(target=run)
    other.start()
    try:
        with suppress(Refused):
            parse_json(text, within="body")
    finally:
        ends.set()
        other.join()
    assert longest_s < STALL_S
