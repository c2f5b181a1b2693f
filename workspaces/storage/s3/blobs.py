"""Blobs as objects below a prefix of an S3 bucket: what every machine shares.

A condition is decided by the server: `If-None-Match: *` for ABSENT, `If-Match: <ETag>` for a token, on
PUT and on DELETE alike. Whether it really decides is asked by `honesty`, once, before anyone relies on it.

Two clients, one set of questions, one kind of refusal (`s3_refusal`). boto3 knows who we are and where the
bucket is (credentials, profiles, regions, `AWS_ENDPOINT_URL_S3`), lists, deletes, and says what is wrong.
obstore moves the bytes, with boto3's credentials, because it does so in half the time and without holding
the interpreter (docs/decisions/0005-moving-bytes-to-s3.md). Listing is not left to it: it reads every key as
a path, so that one object called `a//b`, made by whomever, would end every scan.

An ETag is the MD5 of the bytes or something stranger; here it is compared and never computed (but see
`blobs.is_surely_of`). It comes back when the same bytes do, so a token says what is there, not that nobody
has been there meanwhile.

Neither client repeats anything by itself; `_asked` does, and knows what may be repeated:

    no connection, or told to slow down     nothing has happened      again, whatever it was
    cut off, or an error of the server      it may have happened      again, if it bears a repetition
    silence until the time is up            it may still happen       not again

What bears a repetition is said in `blobs`: everything but a write or delete under a condition. That one
ends in `Unavailable` when its answer is lost. Whoever asks again is told by a `Conflict` what is there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_plus, urlsplit

import boto3.session  # pyright: ignore[reportMissingTypeStubs]
import obstore
from botocore import exceptions as boto  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import NotModifiedError
from obstore.store import S3Store

from workspaces.conditions import Wildcard
from workspaces.errors import Conflict, NotFound, OverLimit, Refused, Unavailable
from workspaces.paths import broken_rule
from workspaces.storage.blobs import (
    BLOB_BYTES_MAX,
    NO_META,
    Blob,
    BlobName,
    Expect,
    Meta,
    Stat,
    Token,
    check_meta,
    check_name,
    is_meta_word,
)
from workspaces.storage.s3.errors import ERRORS, S3Error, s3_error_of
from workspaces.storage.s3.listing import EVENT, PAGES_KEPT, ListedPage, objects_of, read_contents
from workspaces.storage.s3.parallel_listing import ListingPage, cuts_of, in_parts

if TYPE_CHECKING:
    from obstore import GetOptions

KEY_BYTES_MAX = 1024
"""S3's limit of a whole key, prefix included."""

PAGE_KEYS_MAX = 1000
"""S3 lists no more than this at once."""

LARGE_BYTES = 256 * 1024
"""From here on a write is given the time of a slow line instead of that of a quick answer."""

CREDENTIALS_KEPT = timedelta(minutes=9)
"""boto3 renews credentials ten minutes before they end: what it gives out lives longer than this."""

TRIES_MAX = 3
PAUSE_S = 0.1
"""Doubles with every try. Three tries bridge a reset connection; a longer outage is the caller's."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 3.0
    answer_s: float = 15.0
    """Silence this long is no answer. 256 KiB take it on a line of 140 kbit/s."""
    transfer_s: float = 120.0
    """One object, whole: the largest file of a workspace (5 MB) at 350 kbit/s."""


class S3Blobs:
    """Connects with the first question, so that a machine without network can have one."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        timeouts: Timeouts | None = None,
        page_keys: int = PAGE_KEYS_MAX,
        bytes_max: int = BLOB_BYTES_MAX,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Everything else is in the standard AWS variables and files."""
        self._bucket = _Bucket(bucket, timeouts or Timeouts())
        self._prefix = f"{check_name(prefix)}/" if prefix else ""
        self._page_keys = page_keys
        self._bytes_max = bytes_max
        self._names_max: int | None = None
        self._sleep = sleep

    def close(self) -> None:
        self._bucket.close()

    def read(self, name: BlobName) -> Blob:
        blob = self._read(name, None)
        if blob is None:
            raise self._unavailable(S3Error(304, ""))  # which nobody asked for
        return blob

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._read(name, since)

    def _read(self, name: BlobName, since: Token | None) -> Blob | None:
        key = self._key(name)
        options: GetOptions = {} if since is None else {"if_none_match": since}

        def get() -> Blob | None:
            try:
                found = obstore.get(self._bucket.connected().reading, key, options=options)
            except NotModifiedError:
                return None
            if found.meta["size"] > self._bytes_max:
                raise self._over_limit(name, found.meta["size"])
            said = {word: str(text) for word, text in found.attributes.items()}
            meta = {word: text for word, text in said.items() if is_meta_word(word)}
            return Blob(name, bytes(found.bytes()), _token(found.meta["e_tag"]), meta)

        try:
            return self._asked(get)
        except S3Error as refusal:
            if self._is_missing(refusal):
                raise NotFound("file", name) from refusal
            raise self._unavailable(refusal) from refusal

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        key = self._key(name)
        attributes = dict(check_meta(meta))
        if len(data) > self._bytes_max:
            raise self._over_limit(name, len(data))

        def put() -> Token:
            connected = self._bucket.connected()
            mover = connected.writing if len(data) < LARGE_BYTES else connected.writing_large
            answer = obstore.put(
                mover, key, data, mode=_mode(expect), attributes=attributes, use_multipart=False
            )
            return _token(answer["e_tag"])

        try:
            return self._asked(put, repeatable=expect is Wildcard.ANY)
        except S3Error as refusal:
            raise self._refused_change(name, expect, refusal) from refusal

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        key = self._key(name)
        if expect is Wildcard.ABSENT:
            there = self._token_there(name)
            if there is not None:
                raise Conflict("file", name, expected=expect, actual=there)
            return
        condition = {} if expect is Wildcard.ANY else {"IfMatch": expect}

        def delete() -> None:
            client = self._bucket.connected().client
            answer = client.delete_object(Bucket=self._bucket.name, Key=key, **condition)
            headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
            if headers.get("content-length", "0") != "0":  # S3 has nothing to say about it
                raise S3Error(0, "stranger")

        try:
            self._asked(delete, repeatable=expect is Wildcard.ANY)
        except S3Error as refusal:
            if expect is Wildcard.ANY and self._is_missing(refusal):
                return
            raise self._refused_change(name, expect, refusal) from refusal

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        for stat in self.walk(prefix):
            if broken_rule(stat.name) is None:
                yield stat

    def walk(
        self,
        prefix: str = "",
        *,
        known: Sequence[BlobName] = (),
        asked: Callable[[], None] = lambda: None,
    ) -> Iterator[Stat]:
        """Every object, under a good name or not. Whole before the first comes out: S3 lists in the
        order of the port, but other servers list directory by directory (seaweedfs 4.48 does).

        `known`: names that were there before, ascending: a long listing can be had in parts then. `asked` is
        called with each request."""

        cuts = cuts_of(known, self._page_keys) if self._names_max is None else ()
        count = 0

        def ask(after: str, more: str | None) -> ListingPage:
            nonlocal count
            asked()
            page = self._stats(prefix, after, more)
            count += len(page.stats)
            if self._names_max is not None and count > self._names_max:
                limit = f"names below {prefix or '/'} in {self._bucket}"
                raise OverLimit(limit, maximum=self._names_max, actual=count, unit="names")
            return page

        found = in_parts(ask, cuts)
        if cuts and not {stat.name for stat in found}.issuperset(known):
            found = in_parts(ask, ())  # what has gone is believed only to a listing in one piece
        yield from sorted(found, key=attrgetter("name"))

    def _stats(self, prefix: str, after: str, more: str | None) -> ListingPage:
        begin = {"StartAfter": self._prefix + after} if after and more is None else {}
        if more is not None:
            begin = {"ContinuationToken": more}
        page = self._page(self._prefix + prefix, self._page_keys, begin)
        is_encoded = page.get("EncodingType") == "url"
        stats = _stats_of(objects_of(page.get("Contents", ())), self._prefix, is_encoded)
        following = page.get("NextContinuationToken", "") if page["IsTruncated"] else None
        if following in {"", more} and following is not None:
            raise Unavailable(str(self._bucket), "the listing does not end")
        return ListingPage(stats, following)

    def below(
        self, part: str, *, bytes_max: int | None = None, names_max: int | None = None
    ) -> S3Blobs:
        """The same bucket, one level down, over the same connections: `close` closes both."""
        lower = copy(self)
        lower._prefix = f"{self._prefix}{check_name(part)}/"
        lower._bytes_max = bytes_max or self._bytes_max
        lower._names_max = names_max or self._names_max
        return lower

    def address(self) -> str:
        """Host, bucket and prefix."""
        try:
            self._asked(self._bucket.connected)
        except S3Error as refusal:
            raise self._unavailable(refusal) from refusal
        return f"{self._bucket.host}/{self._bucket.name}/{self._prefix}"

    def _page(self, prefix: str, keys: int, more: dict[str, str]) -> dict[str, Any]:
        def page() -> dict[str, Any]:
            client = self._bucket.connected().client
            name = self._bucket.name
            page = client.list_objects_v2(
                Bucket=name, Prefix=prefix, MaxKeys=keys, EncodingType="url", **more
            )
            if "IsTruncated" not in page:  # to boto3 a web page is a listing with nothing in it
                raise S3Error(0, "stranger")
            return page

        try:
            return self._asked(page)
        except S3Error as refusal:
            raise self._unavailable(refusal) from refusal

    def _token_there(self, name: BlobName) -> Token | None:
        key = self._key(name)

        def head() -> Token:
            client = self._bucket.connected().client
            return _token(client.head_object(Bucket=self._bucket.name, Key=key).get("ETag"))

        try:
            return self._asked(head)
        except S3Error as refusal:
            if self._is_missing(refusal):
                return None
            raise self._unavailable(refusal) from refusal

    def _key(self, name: BlobName) -> str:
        key = self._prefix + check_name(name)
        if len(key.encode()) > KEY_BYTES_MAX:
            raise Refused(
                "path", name, f"is, below {self._prefix!r}, longer than {KEY_BYTES_MAX} bytes"
            )
        return key

    def _over_limit(self, name: BlobName, size: int) -> OverLimit:
        return OverLimit(f"size of {name!r}", maximum=self._bytes_max, actual=size, unit="bytes")

    def _asked(self, ask: Callable[[], T], *, repeatable: bool = True) -> T:
        tries = 0
        while True:
            try:
                return ask()
            except ERRORS as error:
                refusal = s3_error_of(error)
                tries += 1
                again = refusal.is_passing if repeatable else refusal.is_without_effect
                if not again or tries == TRIES_MAX:
                    raise refusal from error
            pause = PAUSE_S * 2 ** (tries - 1)
            self._sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads writers out

    def _is_missing(self, refusal: S3Error) -> bool:
        """Whether the object, and not the whole bucket, is missing: HEAD does not tell, nor does
        something on the way that knows nothing of S3."""
        if refusal.status != 404 or refusal.code == "NoSuchBucket":
            return False
        if refusal.code != "NoSuchKey":
            self._page(self._prefix, 1, {})
        return True

    def _refused_change(
        self, name: BlobName, expect: Expect, refusal: S3Error
    ) -> Conflict | Unavailable:
        if expect is Wildcard.ANY:
            return self._unavailable(refusal)
        if refusal.status in {409, 412}:
            try:
                return Conflict("file", name, expected=expect, actual=self._token_there(name))
            except Unavailable:
                return Conflict("file", name, expected=expect, actual="something else")
        if self._is_missing(refusal) and expect is not Wildcard.ABSENT:
            return Conflict("file", name, expected=expect, actual=None)
        return self._unavailable(refusal)

    def _unavailable(self, refusal: S3Error) -> Unavailable:
        reason, remedy = refusal.explained(self._bucket.host)
        return Unavailable(str(self._bucket), reason, remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Connected:
    client: Any
    """boto3 has no types; nothing of it is kept beyond one answer."""
    reading: S3Store
    writing: S3Store
    writing_large: S3Store


class _Bucket:
    """Who we are and where it is, found out once and shared by all threads."""

    def __init__(self, name: str, timeouts: Timeouts) -> None:
        self.name = name
        self.host: str = "the endpoint"
        self._timeouts = timeouts
        self._connected: _Connected | None = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"S3 bucket {self.name!r}"

    def connected(self) -> _Connected:
        if self._connected is None:
            with self._lock:
                self._connected = self._connected or self._connect()
        return self._connected

    def close(self) -> None:
        with self._lock:
            if self._connected is not None:
                self._connected.client.close()
                self._connected = None

    def _connect(self) -> _Connected:
        session: Any = boto3.session.Session()
        client = self._client(session, None)
        self.host = urlsplit(str(client.meta.endpoint_url)).netloc.rpartition("@")[2]
        region = self._region(client)
        if region != client.meta.region_name:
            client.close()
            client = self._client(session, region)
        endpoint: str = client.meta.endpoint_url
        credentials = Boto3CredentialProvider(session, ttl=CREDENTIALS_KEPT)
        answer, transfer = self._timeouts.answer_s, self._timeouts.transfer_s

        def mover(*, whole_s: float, silence_s: float) -> S3Store:
            return S3Store(
                self.name,
                endpoint=endpoint,
                region=region,
                credential_provider=credentials,
                virtual_hosted_style_request=False,
                conditional_put="etag",
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=whole_s)},
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=self._timeouts.connect_s),
                    "timeout": timedelta(seconds=whole_s),
                    # Counts while a body goes out as well, so it is no measure for large writes.
                    "read_timeout": timedelta(seconds=silence_s),
                },
            )

        return _Connected(
            client,
            reading=mover(whole_s=transfer, silence_s=answer),
            writing=mover(whole_s=answer, silence_s=answer),
            writing_large=mover(whole_s=transfer, silence_s=transfer),
        )

    def _client(self, session: Any, region: str | None) -> Any:
        client = session.client(
            "s3",
            region_name=region,
            config=Config(
                connect_timeout=self._timeouts.connect_s,
                read_timeout=self._timeouts.answer_s,
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=32,
                request_checksum_calculation="when_required",  # others than S3 know no other way
                response_checksum_validation="when_required",
            ),
        )
        client.meta.events.register(EVENT, read_contents)
        client.meta.events.register("before-parameter-build.s3", _ask_where_once)
        return client

    def _region(self, client: Any) -> str:
        """Where the bucket is. The same question finds out whether it can be had at all, and is put
        as a listing where it fails: the answer to a HEAD has no room for a reason."""
        try:
            head: dict[str, Any] = client.head_bucket(Bucket=self.name)
        except boto.ClientError as error:
            # The encoding is asked for by name: else the client would decode what `read_contents` has read.
            client.list_objects_v2(Bucket=self.name, MaxKeys=1, EncodingType="url")
            head = error.response
        told: dict[str, str] = head["ResponseMetadata"]["HTTPHeaders"]
        return told.get("x-amz-bucket-region") or client.meta.region_name or "us-east-1"


def _ask_where_once(model: Any, context: dict[str, Any], **_: object) -> None:
    """The client answers every redirection with the question where the bucket is, that of this question
    too: where something on the way redirects whatever it is asked, that has no end."""
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


@lru_cache(maxsize=PAGES_KEPT)
def _stats_of(page: ListedPage, prefix: str, is_encoded: bool) -> tuple[Stat, ...]:
    return tuple(
        Stat(
            (unquote_plus(key) if is_encoded else key).removeprefix(prefix),
            size,
            _token(tag),
            modified.timestamp() if modified else None,
        )
        for key, size, tag, modified in page.listed
    )


def _token(etag: str | None) -> Token:
    """Some servers list an ETag without the quotes that they read and write it with."""
    if not etag:
        raise S3Error(0, "no ETag")
    return Token(etag if etag.endswith('"') else f'"{etag}"')


def _mode(expect: Expect) -> Any:
    match expect:
        case Wildcard.ANY:
            return "overwrite"
        case Wildcard.ABSENT:
            return "create"
        case token:
            return {"e_tag": token}
