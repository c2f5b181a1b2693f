"""Secrets are made here from their published shapes, by a seed drawn anew for each run."""

from __future__ import annotations

import base64
import json
import secrets
import string
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from harness.memory.secrets import find_secrets, redact

ROOT = Path(__file__).parent.parent.parent.parent
WORD = string.ascii_letters + string.digits
URL_SAFE = WORD + "-_"
HEX = "0123456789abcdef"
EACH = 60

Make = Callable[[Random], str]


def _of(alphabet: str, count: int) -> Make:
    return lambda random: "".join(random.choices(alphabet, k=count))


def _made(form: str, *parts: Make) -> Make:
    return lambda random: form.format(*(part(random) for part in parts))


def _web_token(random: Random) -> str:
    head = {"alg": "HS256", "typ": "JWT"}
    body = {"sub": str(random.randrange(10**9)), "name": "Mo", "iat": random.randrange(10**9)}
    parts = [json.dumps(head).encode(), json.dumps(body).encode(), random.randbytes(32)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def _private_key(random: Random) -> str:
    kind = random.choice(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
    body = base64.encodebytes(random.randbytes(600)).decode()
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}-----END {kind}PRIVATE KEY-----"


def _password(random: Random) -> str:
    """Return at least one letter and one digit among others."""
    signs = [*random.choices(WORD + "!%+-_.~", k=14), "a", "B", "7"]
    random.shuffle(signs)
    return "".join(signs)


SHAPES: dict[str, Make] = {
    "aws id": _made("AKIA{}", _of(string.ascii_uppercase + "234567", 16)),
    "aws secret": _made("aws_secret_access_key = {}", _of(WORD + "/+", 40)),
    "github": lambda random: f"gh{random.choice('pousr')}_" + _of(WORD, 36)(random),
    "github, fine-grained": _made("github_pat_{}_{}", _of(WORD, 22), _of(WORD, 59)),
    "gitlab": _made("glpat-{}", _of(URL_SAFE, 20)),
    "anthropic": _made("sk-ant-api03-{}AA", _of(URL_SAFE, 93)),
    "openai, project": _made("sk-proj-{}", _of(URL_SAFE, 120)),
    "openai, old": _made("sk-{}T3BlbkFJ{}", _of(WORD, 20), _of(WORD, 20)),
    "slack bot": _made("xoxb-{}-{}-{}", *[_of(string.digits, 12)] * 2, _of(WORD, 24)),
    "slack webhook": _made(
        "https://hooks.slack.com/services/T{}/B{}/{}",
        *[_of(string.ascii_uppercase + string.digits, 8)] * 2,
        _of(WORD, 24),
    ),
    "stripe": _made("sk_live_{}", _of(WORD, 24)),
    "google": _made("AIza{}", _of(URL_SAFE, 35)),
    "npm": _made("npm_{}", _of(WORD, 36)),
    "pypi": _made("pypi-AgEIcHlwaS5vcmc{}", _of(URL_SAFE, 120)),
    "hugging face": _made("hf_{}", _of(string.ascii_letters, 34)),
    "sendgrid": _made("SG.{}.{}", _of(URL_SAFE, 22), _of(URL_SAFE, 43)),
    "twilio": _made("SK{}", _of(HEX, 32)),
    "telegram": _made("{}:AA{}", _of("123456789", 10), _of(URL_SAFE, 33)),
    "digitalocean": _made("dop_v1_{}", _of(HEX, 64)),
    "vault": _made("hvs.{}", _of(URL_SAFE, 95)),
    "azure": _made("AccountName=a;AccountKey={}==;E=core", _of(WORD + "+/", 86)),
    "harness": _made("wh_{}", _of(URL_SAFE, 43)),
    "web token": _web_token,
    "private key": _private_key,
    "url": _made("postgres://app:{}@db.example:5432/shop", _of(WORD, 16)),
    "bearer": _made("Authorization: Bearer {}7a", _of(WORD, 38)),
    "assignment": _made('"password": "{}"', _password),
    "environment": _made("export STAGING_API_KEY={}", _password),
    "yaml": _made("client_secret: {}", _password),
}
PLACES = ("{}", "Use {} for staging.", "a: 1\n{}\nb: 2", "(`{}`)", "日本{} 語", "{}, and then")


@pytest.fixture(scope="module")
def seed() -> int:
    return secrets.randbits(64)


@pytest.mark.parametrize("shape", SHAPES)
def test_nineteen_of_twenty_made_secrets_of_each_shape_are_found(shape: str, seed: int) -> None:
    random = Random(f"{seed} {shape}")
    missed: list[str] = []
    for number in range(EACH):
        secret = SHAPES[shape](random)
        text = PLACES[number % len(PLACES)].format(secret)
        shown, found = redact(text)
        if not found or secret in shown:
            missed.append(text)
    assert len(missed) <= EACH * 0.05, (seed, missed[:5])


def test_at_most_one_of_two_hundred_lines_of_ordinary_text_is_taken_for_a_secret() -> None:
    files = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("harness/**/*.py"), *ROOT.glob("*.md")]
    lines = [line for file in files for line in file.read_text().splitlines() if line.strip()]
    flagged = [line for line in lines if find_secrets(line)]
    assert len(lines) > 10_000
    assert len(flagged) <= len(lines) * 0.005, flagged[:20]


@pytest.mark.parametrize(
    "text",
    [
        "The password is kept by Mo.",
        "token = os.environ['HARNESS_TOKEN']",
        "password: ${DB_PASSWORD1}",
        "api_key=<your key 1>",
        "Bearer authentication",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "uuid 019b0000-0000-7000-8000-00000000aaaa",
        "secret = 00000000000000000000000000000a",
        "task-list-of-the-week-in-november-2026",
        "https://example.com:8080/a@b",
    ],
)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    assert redact(text) == (text, [])


def test_a_redaction_names_the_kind_and_leaves_the_rest() -> None:
    key = "ghp_" + "aB3" * 12
    shown, found = redact(f"first {key} then {key}.")
    assert shown == "first [redacted: GitHub token] then [redacted: GitHub token]."
    assert [(one.kind, one.start, one.end) for one in found] == [
        ("GitHub token", 6, 46),
        ("GitHub token", 52, 92),
    ]


def test_a_redacted_text_holds_no_more_secrets(seed: int) -> None:
    random = Random(seed)
    text = "\n".join(make(random) for make in SHAPES.values())
    shown, found = redact(text)
    assert len(found) >= len(SHAPES) * 0.95
    assert find_secrets(shown) == []


def test_a_private_key_without_its_end_is_taken_out_to_the_end() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc"
    assert redact(text)[0] == "a\n[redacted: private key]"
