"""Errors of requests to S3, read from either client, with the message for a person.

boto3 raises structured errors, obstore the text of a dump. Here both become one `S3Error`: the status and
the S3 code of the answer, or a code of this module if no answer came. `S3Blobs` decides what the error
means for a read or a write. The error itself says if a request may be repeated, and gives the message.
"""

from __future__ import annotations

import re
from typing import Any

from botocore import exceptions as boto  # pyright: ignore[reportMissingTypeStubs]
from obstore import exceptions as obstore_errors

ERRORS = (boto.BotoCoreError, boto.ClientError, obstore_errors.BaseError, OSError, ValueError)
"""The exceptions of both clients.

obstore raises FileNotFoundError for a missing object and ValueError for an answer that it cannot parse.
boto3 raises ValueError for an endpoint that is no URL.
"""


class S3Error(Exception):
    """A request without an answer, or with an error as its answer.

    If no answer came, `status` is 0 and `code` is a code of this module.
    """

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
            codes = (code for kind, code in _BOTO_ERRORS.items() if isinstance(error, kind))
            return S3Error(0, next(codes, "cut"))
        case obstore_errors.BaseError() | FileNotFoundError():
            return _from_obstore(error)
        case ValueError():
            return S3Error(0, "misconfigured")
        case _:
            return S3Error(0, "cut")


def _from_obstore(error: Exception) -> S3Error:
    """Return the S3Error for an error of obstore.

    The type of the error is reliable but coarse: a missing bucket is a FileNotFoundError too. All else is
    only in its text, a dump that contains the answer. No valid name looks like such a dump, because names
    have no `:`, `<` or `>`. If the text changes some day, the type is still right.
    """
    text = str(error)
    if "redirect without LOCATION" in text:  # the text does not contain the answer in this case
        return S3Error(301, "PermanentRedirect")
    status, code, kind = (match and match[1] for match in (f.search(text) for f in _IN_TEXT))
    if status is None and isinstance(error, obstore_errors.UnauthenticatedError):
        return S3Error(0, "ExpiredToken")  # no request was sent: boto3 could not renew credentials
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
    ((obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError), 412),
    (obstore_errors.PermissionDeniedError, 403),
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

_LATER = "try again later; if the error persists, look at the server's own log"
_WHICH_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and the endpoint"
_REASONS = {
    "no credentials": (
        "no credentials were found",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    ),
    "no profile": ("the configured AWS profile does not exist", "check AWS_PROFILE"),
    "misconfigured": (
        "the name of the bucket, the region or the endpoint is invalid",
        "check the location, AWS_REGION and AWS_ENDPOINT_URL_S3",
    ),
    "unreachable": (
        "{host} is unreachable",
        "check the network and AWS_ENDPOINT_URL_S3; local workspaces still work",
    ),
    "untrusted": (
        "the certificate of {host} is not trusted",
        "check AWS_ENDPOINT_URL_S3, or set AWS_CA_BUNDLE to the right authorities",
    ),
    "stranger": (
        "{host} is not an S3 server",
        "check AWS_ENDPOINT_URL_S3, and sign in to the network if it requires that",
    ),
    "silent": ("{host} did not answer in time", "try again later"),
    "no ETag": ("it answers without an ETag", "use a server that gives every object an ETag"),
    "cut": ("the connection to {host} was cut", "try again"),
    "NoSuchBucket": ("the bucket does not exist", "create it, or correct the name or the endpoint"),
    "InvalidAccessKeyId": ("the server does not know the access key", _WHICH_KEYS),
    "SignatureDoesNotMatch": ("the secret key does not match the access key", _WHICH_KEYS),
    "ExpiredToken": (
        "the credentials have expired or cannot be obtained",
        "sign in again, or renew them",
    ),
    "AccessDenied": (
        "these credentials lack a permission",
        "allow them to list the bucket and to get, put and delete objects below the prefix",
    ),
    "RequestTimeTooSkewed": (
        "the clock of this machine is too far from the server's",
        "set the clock, preferably by enabling time synchronisation",
    ),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION to the bucket's"),
    "NotImplemented": (
        "the server does not support conditional requests",
        "use a server that supports If-Match and If-None-Match",
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
