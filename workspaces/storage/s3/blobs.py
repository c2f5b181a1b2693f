"""Blobs as objects below a prefix of an S3 bucket, which all machines share.

The server decides each condition: `If-None-Match: *` for ABSENT, `If-Match: <ETag>` for a token, on PUT
and on DELETE alike. `remote.s3_capabilities` checks once that the server really does so, before any caller
relies on it.

There are two clients, one set of requests and one kind of error (`S3Error`). boto3 knows credentials,
profiles, regions and `AWS_ENDPOINT_URL_S3`. It lists, deletes, and reports what is wrong. obstore moves the
bytes, with boto3's credentials, because it takes half the time and does not hold the interpreter lock
(docs/decisions/0005-moving-bytes-to-s3.md). obstore does not list, because it reads every key as a path:
a single object called `a//b` from any other program would end every scan.

An ETag is the MD5 of the bytes or some other tag. This module compares ETags and never computes them (but
see `blobs.is_surely_of`). The same bytes get the same ETag again. So a token identifies the current bytes;
it does not prove that no other writer was active in between.

Neither client retries by itself. `_request` does, and decides what may be repeated:

    no connection, or asked to slow down    no effect                 repeat every request
    connection cut, or a server error       possible effect           repeat if the request allows it
    no answer within the timeout            effect still possible     do not repeat

The module `blobs` says what allows a repetition: everything except a write or delete with a condition. If
the answer to such a request is lost, it ends in `Unavailable`. A caller that repeats it learns the current
state from a `Conflict`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
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
    ErasedPast,
    Expect,
    Meta,
    PastData,
    Stat,
    Token,
    check_meta,
    check_name,
    is_meta_word,
)
from workspaces.storage.s3.errors import ERRORS, S3Error, s3_error_of
from workspaces.storage.s3.listing import EVENT, ListedObject, objects_of, read_contents
from workspaces.storage.s3.past_versions import (
    WITHOUT_VERSIONS,
    PastVersion,
    markers_of,
    past_versions_of,
)
from workspaces.storage.timing import timed

if TYPE_CHECKING:
    from obstore import GetOptions

KEY_BYTES_MAX = 1024
"""S3's limit for a whole key, prefix included."""

PAGE_KEYS_MAX = 1000
"""Largest page of a listing that S3 returns."""

LARGE_BYTES = 256 * 1024
"""From this size a write gets the timeout of a slow transfer instead of that of a quick answer."""

CREDENTIALS_KEPT = timedelta(minutes=9)
"""boto3 renews credentials ten minutes before they expire, so the ones it returns live longer than this."""

ERASE_THREADS = 16
"""Parallel deletions of past versions. A thousand at 50 ms each take 3 s."""

TRIES_MAX = 3
PAUSE_S = 0.1
"""First pause; it doubles with every try. Three tries bridge a reset connection.

The caller handles a longer outage.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 3.0
    answer_s: float = 15.0
    """Longest wait for an answer. 256 KiB take this long at 140 kbit/s."""
    transfer_s: float = 120.0
    """Longest transfer of one whole object: the largest file of a workspace (5 MB) at 350 kbit/s."""


class S3Blobs:
    """A blob store below one prefix of a bucket.

    It connects with the first request, so that a machine without network can create one.
    """

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
        """Store the parameters. All other settings come from the standard AWS variables and files."""
        self._prefix = f"{check_name(prefix)}/" if prefix else ""
        self._bucket = _Bucket(bucket, self._prefix, timeouts or Timeouts())
        self._page_keys = page_keys
        self._bytes_max = bytes_max
        self._names_max: int | None = None
        self._sleep = sleep

    def close(self) -> None:
        self._bucket.close()

    def read(self, name: BlobName) -> Blob:
        blob = self._read(name, None)
        if blob is None:
            raise self._unavailable(S3Error(304, ""))  # the request had no If-None-Match
        return blob

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._read(name, since)

    @timed("s3", "get")
    def _read(self, name: BlobName, since: Token | None) -> Blob | None:
        key = self._key(name)
        options: GetOptions = {} if since is None else {"if_none_match": since}

        def get() -> Blob | None:
            try:
                answer = obstore.get(self._bucket.connected().reading, key, options=options)
            except NotModifiedError:
                return None
            if answer.meta["size"] > self._bytes_max:
                raise self._over_limit(name, answer.meta["size"])
            attributes = {word: str(text) for word, text in answer.attributes.items()}
            meta = {word: text for word, text in attributes.items() if is_meta_word(word)}
            return Blob(name, bytes(answer.bytes()), _token(answer.meta["e_tag"]), meta)

        try:
            return self._request(get)
        except S3Error as error:
            if self._is_missing(error):
                raise NotFound("file", name) from error
            raise self._unavailable(error) from error

    @timed("s3", "put")
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
            return self._request(put, is_repeatable=expect is Wildcard.ANY)
        except S3Error as error:
            raise self._failed_change(name, expect, error) from error

    @timed("s3", "delete")
    def delete(self, name: BlobName, *, expect: Expect) -> None:
        key = self._key(name)
        if expect is Wildcard.ABSENT:
            current = self._current_token(name)
            if current is not None:
                raise Conflict("file", name, expected=expect, actual=current)
            return
        condition = {} if expect is Wildcard.ANY else {"IfMatch": expect}

        def delete() -> None:
            client = self._bucket.connected().client
            answer = client.delete_object(Bucket=self._bucket.name, Key=key, **condition)
            headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
            if headers.get("content-length", "0") != "0":  # S3 answers a DELETE with an empty body
                raise S3Error(0, "stranger")

        try:
            self._request(delete, is_repeatable=expect is Wildcard.ANY)
        except S3Error as error:
            if expect is Wildcard.ANY and self._is_missing(error):
                return
            raise self._failed_change(name, expect, error) from error

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        for stat in self.walk(prefix):
            if broken_rule(stat.name) is None:
                yield stat

    def walk(self, prefix: str = "", *, asked: Callable[[], None] = lambda: None) -> Iterator[Stat]:
        """Yield every object, also those with invalid names. `asked` is called before each request.

        The whole listing is read before the first object is yielded. S3 lists in the order of the port, but
        other servers list directory by directory (seaweedfs 4.48 does).
        """
        stats: list[Stat] = []
        token: str | None = None
        while True:
            asked()
            page = self._page(self._prefix + prefix, self._page_keys, token)
            is_encoded = page.get("EncodingType") == "url"
            objects = objects_of(page.get("Contents", ()))
            stats += (_stat(listed, self._prefix, is_encoded) for listed in objects)
            if self._names_max is not None and len(stats) > self._names_max:
                limit = f"names below {prefix or '/'} in {self._bucket}"
                raise OverLimit(limit, maximum=self._names_max, actual=len(stats), unit="names")
            if not page["IsTruncated"]:
                break
            before, token = token, page.get("NextContinuationToken")
            if not token or token == before:
                raise Unavailable(str(self._bucket), "the listing does not end")
        yield from sorted(stats, key=attrgetter("name"))

    def erase_past(self, is_erased: Callable[[str], bool]) -> ErasedPast:
        """Delete for good what a bucket with versions still holds of some names: all versions but the newest,
        and the marks of deletions. A bucket without versions holds nothing."""
        try:
            past = [one for one in self._past_versions() if is_erased(one.key[len(self._prefix) :])]
        except Unavailable as failure:
            if not _is_refused(failure):
                raise
            return ErasedPast(0, ("",))

        def erase(one: PastVersion) -> str | None:
            try:
                self._erase_version(one)
            except Unavailable as failure:
                if not _is_refused(failure):
                    raise
                return one.key[len(self._prefix) :]
            return None

        kept: list[str | None] = []
        # A mark hides the versions below it, so it goes after them.
        with ThreadPoolExecutor(ERASE_THREADS) as pool:
            for is_mark in (False, True):
                kept += pool.map(erase, [one for one in past if one.is_mark == is_mark])
        refused = [name for name in kept if name is not None]
        return ErasedPast(len(past) - len(refused), tuple(sorted(set(refused))))

    def past_names(self) -> Iterator[str]:
        """Yield the name of every past version."""
        for past in self._past_versions():
            if not past.is_mark:
                yield past.key[len(self._prefix) :]

    def past_data(self) -> Iterator[PastData]:
        """Yield the past versions of all names, with their bytes."""
        for past in self._past_versions():
            if not past.is_mark:
                yield PastData(
                    past.key[len(self._prefix) :], past.version, self._read_version(past)
                )

    @timed("s3", "get")
    def _read_version(self, past: PastVersion) -> bytes:
        def get() -> bytes:
            client = self._bucket.connected().client
            found = client.get_object(
                Bucket=self._bucket.name, Key=past.key, VersionId=past.version
            )
            return found["Body"].read()

        try:
            return self._request(get)
        except S3Error as error:
            if self._is_missing(error):
                return b""
            raise self._unavailable(error) from error

    def _past_versions(self) -> Iterator[PastVersion]:
        after: dict[str, str] = {}
        while True:
            page = self._versions_page(after)
            yield from past_versions_of(page)
            if not page.get("IsTruncated"):
                return
            before, after = after, markers_of(page)
            if after == before:
                raise Unavailable(str(self._bucket), "the listing of versions does not end")

    @timed("s3", "list")
    def _versions_page(self, after: Mapping[str, str]) -> dict[str, Any]:
        def page() -> dict[str, Any]:
            client = self._bucket.connected().client
            return client.list_object_versions(
                Bucket=self._bucket.name,
                Prefix=self._prefix,
                MaxKeys=self._page_keys,
                EncodingType="url",
                **after,
            )

        try:
            return self._request(page)
        except S3Error as error:
            if error.status in WITHOUT_VERSIONS or error.code == "NotImplemented":
                return {}
            raise self._unavailable(error) from error

    @timed("s3", "delete")
    def _erase_version(self, past: PastVersion) -> None:
        def delete() -> None:
            client = self._bucket.connected().client
            client.delete_object(Bucket=self._bucket.name, Key=past.key, VersionId=past.version)

        try:
            self._request(delete)
        except S3Error as error:
            if not self._is_missing(error):
                raise self._unavailable(error) from error

    def below(
        self, part: str, *, bytes_max: int | None = None, names_max: int | None = None
    ) -> S3Blobs:
        """Return a store one level down in the same bucket.

        It shares the connections: `close` closes both.
        """
        lower = copy(self)
        lower._prefix = f"{self._prefix}{check_name(part)}/"
        lower._bytes_max = bytes_max or self._bytes_max
        lower._names_max = names_max or self._names_max
        return lower

    def address(self) -> str:
        """Return host, bucket and prefix."""
        try:
            self._request(self._bucket.connected)
        except S3Error as error:
            raise self._unavailable(error) from error
        return f"{self._bucket.host}/{self._bucket.name}/{self._prefix}"

    @timed("s3", "list")
    def _page(self, prefix: str, keys: int, token: str | None) -> dict[str, Any]:
        more = {} if token is None else {"ContinuationToken": token}

        def page() -> dict[str, Any]:
            client = self._bucket.connected().client
            name = self._bucket.name
            page = client.list_objects_v2(
                Bucket=name, Prefix=prefix, MaxKeys=keys, EncodingType="url", **more
            )
            if "IsTruncated" not in page:  # boto3 reads a web page as an empty listing
                raise S3Error(0, "stranger")
            return page

        try:
            return self._request(page)
        except S3Error as error:
            raise self._unavailable(error) from error

    def _current_token(self, name: BlobName) -> Token | None:
        key = self._key(name)

        def head() -> Token:
            client = self._bucket.connected().client
            return _token(client.head_object(Bucket=self._bucket.name, Key=key).get("ETag"))

        try:
            return self._request(head)
        except S3Error as error:
            if self._is_missing(error):
                return None
            raise self._unavailable(error) from error

    def _key(self, name: BlobName) -> str:
        key = self._prefix + check_name(name)
        if len(key.encode()) > KEY_BYTES_MAX:
            raise Refused(
                "path", name, f"is longer than {KEY_BYTES_MAX} bytes below {self._prefix!r}"
            )
        return key

    def _over_limit(self, name: BlobName, size: int) -> OverLimit:
        return OverLimit(f"size of {name!r}", maximum=self._bytes_max, actual=size, unit="bytes")

    def _request(self, ask: Callable[[], T], *, is_repeatable: bool = True) -> T:
        tries = 0
        while True:
            try:
                return ask()
            except ERRORS as error:
                s3_error = s3_error_of(error)
                tries += 1
                may_repeat = s3_error.is_passing if is_repeatable else s3_error.is_without_effect
                if not may_repeat or tries == TRIES_MAX:
                    raise s3_error from error
            pause = PAUSE_S * 2 ** (tries - 1)
            self._sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads the writers

    def _is_missing(self, error: S3Error) -> bool:
        """Return True if the object is missing, and not the whole bucket.

        The answer to a HEAD does not tell the two apart, nor does a proxy that knows nothing of S3.
        """
        if error.status != 404 or error.code == "NoSuchBucket":
            return False
        if error.code != "NoSuchKey":  # ambiguous: a listing fails if the bucket is missing
            self._page(self._prefix, 1, None)
        return True

    def _failed_change(
        self, name: BlobName, expect: Expect, error: S3Error
    ) -> Conflict | Unavailable:
        if expect is Wildcard.ANY:
            return self._unavailable(error)
        if error.status in {409, 412}:
            try:
                return Conflict("file", name, expected=expect, actual=self._current_token(name))
            except Unavailable:
                return Conflict("file", name, expected=expect, actual="something else")
        if self._is_missing(error) and expect is not Wildcard.ABSENT:
            return Conflict("file", name, expected=expect, actual=None)
        return self._unavailable(error)

    def _unavailable(self, error: S3Error) -> Unavailable:
        reason, remedy = error.explained(self._bucket.host)
        return Unavailable(str(self._bucket), reason, remedy=remedy, store="S3")


@dataclass(frozen=True, slots=True)
class _Connected:
    client: Any
    """The boto3 client. It has no types; no code keeps its objects beyond one answer."""
    reading: S3Store
    writing: S3Store
    writing_large: S3Store


class _Bucket:
    """A bucket with its clients. Credentials and region are found once; all threads share them."""

    def __init__(self, name: str, prefix: str, timeouts: Timeouts) -> None:
        """`prefix` is what the credentials may list at least."""
        self.name = name
        self._prefix = prefix
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
                    # It also runs while a request body is sent, so large writes need a longer one.
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
                request_checksum_calculation="when_required",  # other servers support only this
                response_checksum_validation="when_required",
            ),
        )
        client.meta.events.register(EVENT, read_contents)
        client.meta.events.register("before-parameter-build.s3", _prevent_redirect_loop)
        return client

    def _region(self, client: Any) -> str:
        """Return the region of the bucket.

        The same request finds out if the bucket is accessible. If HEAD fails, a listing follows: the answer
        to a HEAD has no body that could hold the reason, and the right to list one prefix allows no HEAD.
        """
        try:
            head: dict[str, Any] = client.head_bucket(Bucket=self.name)
        except boto.ClientError as error:
            # With an explicit encoding the client does not decode the keys that `read_contents` has read.
            client.list_objects_v2(
                Bucket=self.name, Prefix=self._prefix, MaxKeys=1, EncodingType="url"
            )
            head = error.response
        headers: dict[str, str] = head["ResponseMetadata"]["HTTPHeaders"]
        return headers.get("x-amz-bucket-region") or client.meta.region_name or "us-east-1"


def _is_refused(failure: Unavailable) -> bool:
    """Return True if the store has answered that it does not allow this."""
    cause = failure.__cause__
    return isinstance(cause, S3Error) and cause.status == 403


def _prevent_redirect_loop(model: Any, context: dict[str, Any], **_: object) -> None:
    """Mark HeadBucket as already redirected, so that the client does not follow its redirections.

    The client handles every redirection with a HeadBucket that asks for the region, also one of HeadBucket
    itself. Behind a proxy that redirects every request, that would never end.
    """
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


def _stat(listed: ListedObject, prefix: str, is_encoded: bool) -> Stat:
    key, size, tag, modified = listed
    name = (unquote_plus(key) if is_encoded else key).removeprefix(prefix)
    return Stat(name, size, _token(tag), modified.timestamp() if modified else None)


def _token(etag: str | None) -> Token:
    """Return the ETag with quotes. Some servers list it without the quotes that they read and write."""
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
