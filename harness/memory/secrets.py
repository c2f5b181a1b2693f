"""Find secrets in text, and take them out: keys, tokens, passwords, private keys.

A detector knows one published shape: words that stand in every such secret, and an expression for the whole.
The expression is tried only where one of the words stands, so ordinary text costs a search for each word. A
search for a word is many times as fast as an expression.
Every expression is bounded or begins at the edge of a word, so no text takes longer than it is long.

The last detector knows no shape. It takes the value behind a name such as `password` if it looks
random: it has letters and digits, and no sign of code or of a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

VALUE_CHARACTERS_MIN = 8
"""A value behind a name is a secret from this length on. Shorter ones are mostly words and numbers."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: what it is and where it stands. It does not hold the text."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Detector:
    kind: str
    words: tuple[str, ...]
    """One of them stands in every secret of this kind, in small letters if `folds` is true."""
    pattern: re.Pattern[str]
    folds: bool = False
    start: int | None = 0
    """Where a match begins, counted from a word. None: somewhere before it."""
    rest: re.Pattern[str] | None = None
    """An expression for a part of every such secret that is found faster than the whole."""
    accepts: Callable[[str], bool] | None = None
    """Returns False for values that have the shape but are no secrets."""


def find_secrets(text: str) -> Sequence[Secret]:
    """Return the secrets of a text in order. None overlaps another."""
    lowered = text.lower()
    found = [secret for detector in DETECTORS for secret in _found(detector, text, lowered)]
    return _without_overlaps(found)


def redact(text: str) -> tuple[str, Sequence[Secret]]:
    """Return the text with `[redacted: KIND]` for each secret, and the secrets that it held."""
    secrets = find_secrets(text)
    if not secrets:
        return text, secrets
    parts: list[str] = []
    end = 0
    for secret in secrets:
        parts += [text[end : secret.start], f"[redacted: {secret.kind}]"]
        end = secret.end
    return "".join([*parts, text[end:]]), secrets


def _found(detector: _Detector, text: str, lowered: str) -> Iterable[Secret]:
    searched = lowered if detector.folds else text
    for word in detector.words:
        if word in searched:
            break
    else:
        return
    if detector.rest is not None and detector.rest.search(text) is None:
        return
    accepts = detector.accepts
    for match in _matches(detector, text, searched):
        group = match.lastgroup or 0  # the part that is secret, where that is not all
        if accepts is None or accepts(match[group]):
            yield Secret(detector.kind, match.start(group), match.end(group))


def _matches(detector: _Detector, text: str, searched: str) -> Iterable[re.Match[str]]:
    """Yield the matches as `finditer` does, but try them only where a word stands."""
    if detector.start is None or len(searched) != len(text):  # small letters may take more room
        yield from detector.pattern.finditer(text)
        return
    end = 0
    for place in sorted(_places(detector, searched)):
        if place >= end and (match := detector.pattern.match(text, place)) is not None:
            end = match.end()
            yield match


def _places(detector: _Detector, searched: str) -> Iterable[int]:
    """Yield the places at which a match can begin."""
    for word in detector.words:
        at = searched.find(word)
        while at >= 0:
            yield max(0, at + (detector.start or 0))
            at = searched.find(word, at + 1)


def _without_overlaps(found: list[Secret]) -> list[Secret]:
    """Return the secrets in order. Of two that overlap the first stays, and grows to the end of both."""
    kept: list[Secret] = []
    for secret in sorted(found, key=_place):
        last = kept[-1] if kept else None
        if last is None or secret.start >= last.end:
            kept.append(secret)
        elif secret.end > last.end:
            kept[-1] = Secret(last.kind, last.start, secret.end)
    return kept


def _place(secret: Secret) -> tuple[int, int]:
    return secret.start, -secret.end


_CODE = re.compile(r"[(){}<>$*\[\]…]|\.\.\.|://")
_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")


def _is_random(value: str) -> bool:
    """Return True for a value that somebody could have been given to keep."""
    if _CODE.search(value) or _DIGIT.search(value) is None or _LETTER.search(value) is None:
        return False
    return len(set(value)) * 2 >= min(len(value), 24)  # xxxx1 and 00000000a are examples


def _is_no_example(value: str) -> bool:
    """Return False for a value that documents write in place of a password."""
    return not any(word in value.lower() for word in ("password", "secret", "pass", "xxx", "..."))


def _shape(
    kind: str,
    word: str | tuple[str, ...],
    pattern: str,
    *,
    start: int | None = 0,
    rest: re.Pattern[str] | None = None,
) -> _Detector:
    """Return the detector of a secret that is a word of its own."""
    words = (word,) if isinstance(word, str) else word
    whole = re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})")
    return _Detector(kind, words, whole, start=start, rest=rest)


_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "access_key",
    "access-key",
    "accesskey",
    "private_key",
    "credential",
    "authorization",
)

_AWS_ID = "(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*"

DETECTORS: Sequence[_Detector] = (
    _Detector(
        "private key",
        ("PRIVATE KEY",),
        re.compile(_PEM + r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"),
        start=None,
    ),
    _shape("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), _AWS_ID),
    _shape(
        "GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "gh[pousr]_[A-Za-z0-9]{36,255}"
    ),
    _shape("GitHub token", "github_pat_", "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _shape("GitLab token", "gl", r"gl(?:pat|ptt|dt|rt|cbt|ft|oas|soat|agent)-[\w-]{20,255}"),
    _shape("Anthropic key", "sk-ant-", r"sk-ant-[a-z0-9]{2,20}-[\w-]{40,255}"),
    _shape("OpenAI key", "sk-", r"sk-(?:proj|svcacct|admin|None)-[\w-]{20,255}"),
    _shape(
        "OpenAI key",
        "sk-",
        r"sk-[A-Za-z0-9]{48}(?![A-Za-z0-9])|sk-[A-Za-z0-9]{20}T3Blbk[\w-]{4,99}",
    ),
    _shape("OpenRouter key", "sk-or-", "sk-or-v1-[0-9a-f]{64}"),
    _shape("Slack token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    _shape("Slack token", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{10,255}"),
    _shape(
        "Slack webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[TE][A-Z0-9][A-Za-z0-9+/]{20,255}",
    ),
    _shape(
        "Stripe key", ("k_live_", "k_test_"), "[srp]k_(?:live|test)_[A-Za-z0-9]{16,255}", start=-1
    ),
    _shape("Stripe webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,255}"),
    _shape("Google key", "AIza", r"AIza[\w-]{35}"),
    _shape("Google secret", "GOCSPX-", r"GOCSPX-[\w-]{28}"),
    _shape("Google token", "ya29.", r"ya29\.[\w-]{20,2000}"),
    _shape("npm token", "npm_", "npm_[A-Za-z0-9]{36}"),
    _shape("PyPI token", "pypi-", r"pypi-[\w-]{50,1000}"),
    _shape("Docker token", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,255}"),
    _shape("Hugging Face token", "hf_", "hf_[A-Za-z0-9]{34,255}"),
    _shape("SendGrid key", "SG.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _shape("Twilio key", ("SK", "AC"), "(?:SK|AC)[0-9a-f]{32}(?![A-Za-z0-9])"),
    _shape("Telegram token", ":AA", r"[0-9]{8,10}:AA[\w-]{33}", start=None),
    _shape(
        "Discord token",
        ".",
        r"[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])",
        start=None,
        rest=re.compile(r"\.[\w-]{6}\.[\w-]{27}"),
    ),
    _shape("DigitalOcean token", "_v1_", "do[opr]_v1_[0-9a-f]{64}", start=-3),
    _shape("Databricks token", "dapi", "dapi[0-9a-f]{32}"),
    _shape("Vault token", ("hvs.", "hvb."), r"hv[sb]\.[\w-]{24,300}"),
    _shape("Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,80}", start=-14),
    _shape("Linear key", "lin_api_", "lin_api_[A-Za-z0-9]{40}"),
    _shape("Notion token", ("ntn_", "secret_"), "(?:ntn_|secret_)[A-Za-z0-9]{43,50}"),
    _shape("Shopify token", "shp", "shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _shape("Square token", "sq0", r"sq0(?:atp|csp|idp)-[\w-]{22,43}"),
    _shape("Mailgun key", "key-", "key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    _shape("Grafana token", "gls", "glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _shape("age key", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _shape("Cloudflare key", "v1.0-", "v1\\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    _shape("Harness key", ("wh_", "whu_"), r"whu?_[\w-]{43}(?![\w-])"),
    _shape("web token", "eyJ", r"eyJ[\w-]{10,4000}\.eyJ[\w-]{10,16000}\.[\w-]{10,2000}"),
    _Detector(
        "Azure key",
        ("AccountKey=", "SharedAccessKey="),
        re.compile(r"(?:Account|SharedAccess)Key=(?P<value>[A-Za-z0-9+/]{40,90}={0,2})"),
    ),
    _Detector(
        "password",
        ("://",),
        re.compile(r"""(?<=://)[^\s/:@"'<>]{0,100}:(?P<value>[^\s/@"'<>${}]{3,200})@"""),
        start=3,
        accepts=_is_no_example,
    ),
    _Detector(
        "bearer token",
        ("bearer ", "basic "),
        re.compile(r"\b(?i:bearer|basic) (?P<value>[A-Za-z0-9._~+/=-]{16,4000})"),
        folds=True,
        accepts=_is_random,
    ),
    _Detector(
        "secret",
        _NAMES,
        re.compile(
            rf"""(?i:{"|".join(_NAMES)})[a-z_]{{0,16}}\\?["']?[ \t]{{0,3}}(?:[:=]|is)[ \t]{{0,3}}"""
            rf"""(?:=>)?\\?["'`]?(?P<value>[^\s"'`,;\\]{{{VALUE_CHARACTERS_MIN},300}})"""
        ),
        folds=True,
        accepts=_is_random,
    ),
)
"""All detectors. A shape is published by whoever issues the secret; the words are parts of it."""
