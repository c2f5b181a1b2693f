"""What a request to S3 met instead of its answer, read from either client, and what to tell a person.

boto3 raises structured errors, obstore the text of a dump. Here both become one `Refusal`: the status and
the S3 code of the answer, or, where none came, a word of ours. What it means for a read or a write is
decided in `s3`; what may be asked again follows from it, and so does the sentence.
"""

from __future__ import annotations

import re
from typing import Any

from botocore import exceptions as boto  # pyright: ignore[reportMissingTypeStubs]
from obstore import exceptions as moved

ERRORS = (boto.BotoCoreError, boto.ClientError, moved.BaseError, OSError, ValueError)
"""What both clients raise. obstore has FileNotFoundError for a missing object and ValueError for what
it cannot parse; boto3 has ValueError for an endpoint that is no URL."""


class S3Error(Exception):
    """No answer, or not the one that was asked for. `status` is 0 and `code` one of ours if none came."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code

    @property
    def is_without_effect(self) -> bool:
        return self.code == "unreachable" or self.status in {429, 503}

    @property
    def is_passing(self) -> bool:
        return (
            self.is_without_effect
            or self.code in {"cut", "RequestTimeout"}
            or self.status in {500, 502, 504}
        )

    def explained(self, host: str) -> tuple[str, str]:
        reason, remedy = (
            _REASONS.get(self.code)
            or _REASONS.get(_SYNONYMS.get(self.code, ""))
            or _REASONS_BY_STATUS.get(self.status)
            or (f"it answers with an error ({self.code or self.status})", _LATER)
        )
        return reason.format(host=host), remedy


def s3_error_of(error: Exception) -> S3Error:
    match error:
        case boto.ClientError():
            untyped: Any = error
            answer: dict[str, dict[str, Any]] = untyped.response
            status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return S3Error(status, str(answer.get("Error", {}).get("Code", "")))
        case boto.BotoCoreError():
            named = (code for kind, code in _BOTO_ERRORS.items() if isinstance(error, kind))
            return S3Error(0, next(named, "cut"))
        case moved.BaseError() | FileNotFoundError():
            return _told_by_obstore(error)
        case ValueError():
            return S3Error(0, "misconfigured")
        case _:
            return S3Error(0, "cut")


def _told_by_obstore(error: Exception) -> S3Error:
    """The kind of the error is reliable but coarse: a missing bucket is a FileNotFoundError too. The
    rest stands only in its text, a dump with the answer in it; no valid name looks like one, because
    names have no `:`, `<` or `>`. Should the text change some day, the kind is still right."""
    text = str(error)
    if "redirect without LOCATION" in text:  # and without what came with it
        return S3Error(301, "PermanentRedirect")
    status, code, kind = (found and found[1] for found in (f.search(text) for f in _IN_TEXT))
    if status is None and isinstance(error, moved.UnauthenticatedError):
        return S3Error(0, "ExpiredToken")  # not even asked: boto3 could not renew the credentials
    if status is None:
        by_kind = (number for kinds, number in _OBSTORE_ERRORS if isinstance(error, kinds))
        number = next(by_kind, 0)
    else:
        number = int(status)
    if number == 0:
        return S3Error(0, _OBSTORE_KINDS.get(kind or "", "cut"))
    return S3Error(number, code or "")


_IN_TEXT = (
    re.compile(r"status code: (\d{3})"),
    re.compile(r"<Code>(\w+)</Code>"),
    re.compile(r"HttpError \{\s*kind: (\w+)"),
)
_OBSTORE_KINDS = {"Connect": "unreachable", "Timeout": "silent"}
_OBSTORE_ERRORS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (FileNotFoundError, 404),
    ((moved.AlreadyExistsError, moved.PreconditionError), 412),
    (moved.PermissionDeniedError, 403),
)
_BOTO_ERRORS: dict[type[Exception], str] = {
    boto.NoCredentialsError: "no credentials",
    boto.PartialCredentialsError: "no credentials",
    boto.ProfileNotFound: "no profile",
    boto.CredentialRetrievalError: "ExpiredToken",
    boto.TokenRetrievalError: "ExpiredToken",
    boto.UnauthorizedSSOTokenError: "ExpiredToken",
    boto.SSOTokenLoadError: "ExpiredToken",
    boto.SSLError: "untrusted",
    boto.ReadTimeoutError: "silent",
    boto.ConnectTimeoutError: "unreachable",
    boto.EndpointConnectionError: "unreachable",
    boto.ProxyConnectionError: "unreachable",
    boto.ParamValidationError: "misconfigured",
    boto.NoRegionError: "misconfigured",
}

_LATER = "try again later; if it stays so, look at the server's own log"
_WHICH_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and the endpoint"
_REASONS = {
    "no credentials": (
        "no credentials were found",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    ),
    "no profile": ("the AWS profile that was asked for does not exist", "check AWS_PROFILE"),
    "misconfigured": (
        "the bucket's name, the region or the endpoint cannot be used as it is written",
        "check the location, AWS_REGION and AWS_ENDPOINT_URL_S3",
    ),
    "unreachable": (
        "nothing answers at {host}",
        "check the network and AWS_ENDPOINT_URL_S3; what is on this machine goes on working",
    ),
    "untrusted": (
        "the certificate of {host} is not to be trusted",
        "check AWS_ENDPOINT_URL_S3, or name the right authorities in AWS_CA_BUNDLE",
    ),
    "stranger": (
        "what answers at {host} is no S3 server",
        "check AWS_ENDPOINT_URL_S3, and sign in where the network asks for it",
    ),
    "silent": ("{host} did not answer in time", "try again later"),
    "no ETag": ("it answers without an ETag", "use a server that gives every object one"),
    "cut": ("the connection to {host} was cut", "try again"),
    "NoSuchBucket": ("there is no such bucket", "create it, or correct the name or the endpoint"),
    "InvalidAccessKeyId": ("the access key is unknown there", _WHICH_KEYS),
    "SignatureDoesNotMatch": ("the secret key does not fit the access key", _WHICH_KEYS),
    "ExpiredToken": (
        "the credentials have expired or cannot be had",
        "sign in again, or renew them",
    ),
    "AccessDenied": (
        "these credentials may not do this",
        "allow them to list the bucket and to get, put and delete objects below the prefix",
    ),
    "RequestTimeTooSkewed": (
        "the clock of this machine is too far from the server's",
        "set the clock, best by turning time synchronisation on",
    ),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION to the bucket's"),
    "NotImplemented": (
        "the server does not know conditions on requests",
        "use a server that honours If-Match and If-None-Match",
    ),
    "SlowDown": ("the server is busy", "try again later"),
}
_SYNONYMS = {
    "InvalidToken": "ExpiredToken",
    "TokenRefreshRequired": "ExpiredToken",
    "ExpiredTokenException": "ExpiredToken",
    "RequestExpired": "RequestTimeTooSkewed",
    "AllAccessDisabled": "AccessDenied",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "IllegalLocationConstraintException": "PermanentRedirect",
}
_REASONS_BY_STATUS = {
    301: _REASONS["stranger"],
    302: _REASONS["stranger"],
    307: _REASONS["stranger"],
    308: _REASONS["stranger"],
    401: _REASONS["AccessDenied"],
    403: _REASONS["AccessDenied"],
    404: _REASONS["stranger"],
    429: _REASONS["SlowDown"],
    501: _REASONS["NotImplemented"],
    503: _REASONS["SlowDown"],
    507: ("the server's disk is full", "free some space there"),
}
