"""Read the form that a page posts.

A form carries a token that is bound to the cookie of the session. A page of another origin cannot read it.
The Origin header is checked as well; see `origin_check` and `caller`.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from harness.web.http.body import read_body
from harness.web.http.errors import HttpFailure, Malformed
from harness.web.pages.parts.rendering import form_token
from workspaces.errors import Refused

FORM_BYTES_MAX = 20 * 2**20
"""Largest form. A file of five megabytes, each of whose bytes is sent as three, fits in."""

FIELDS_MAX = 200
FILES_MAX = 50
"""Most files in one upload. A directory with more is imported by the command line."""


class FormExpired(HttpFailure):
    status, code = 403, "form_expired"


@dataclass(frozen=True, slots=True)
class SentForm:
    """The fields of a form. A field without a value is the empty text."""

    fields: Mapping[str, str]
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """The names and bytes of uploaded files."""

    def text(self, name: str) -> str:
        """Return a field without the blanks around it."""
        return self.fields.get(name, "").strip()

    def lines(self, name: str) -> str:
        """Return a text of several lines, with the line ends of files instead of those of forms."""
        return self.fields.get(name, "").replace("\r\n", "\n")

    def has(self, name: str) -> bool:
        return name in self.fields


async def read_form(request: Request) -> SentForm:
    """Return the form of a request.

    Raises:
        FormExpired: its token is not that of this session.
        Malformed: the body is not a form.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(request, bytes_max=FORM_BYTES_MAX, what="the form")
    if media_type == "multipart/form-data":
        form = await _multipart(request, body)
    elif media_type in ("application/x-www-form-urlencoded", ""):
        form = SentForm(urlencoded(body))
    else:
        raise Malformed("Send a form.", field="Content-Type")
    expected = form_token(request)
    if expected and not hmac.compare_digest(
        form.fields.get("token", "").encode(errors="replace"), expected.encode()
    ):
        raise FormExpired("This form is out of date. Open the page again and repeat it.")
    return form


Form = Annotated[SentForm, Depends(read_form)]


def urlencoded(body: bytes) -> dict[str, str]:
    """Return the fields of a body. The first value of a name counts.

    Raises:
        Refused: the body has too many fields, or is not UTF-8 text.
    """
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise Refused(
            "form", None, f"must be UTF-8 text with at most {FIELDS_MAX} fields"
        ) from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields.setdefault(name, value)
    return fields


async def _multipart(request: Request, body: bytes) -> SentForm:
    async def chunks() -> AsyncGenerator[bytes]:
        yield body

    parser = MultiPartParser(
        request.headers,
        chunks(),
        max_files=FILES_MAX,
        max_fields=FIELDS_MAX,
        max_part_size=FORM_BYTES_MAX,
    )
    try:
        parsed: FormData = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise Malformed("The form cannot be read, or has too many files.", field="form") from error
    fields: dict[str, str] = {}
    files: list[tuple[str, bytes]] = []
    for name, value in parsed.multi_items():
        if isinstance(value, UploadFile):
            if value.filename:  # a file field without a choice has no name
                files.append((value.filename, await value.read()))
        else:
            fields.setdefault(name, value)
    await parsed.close()
    return SentForm(fields, tuple(files))
