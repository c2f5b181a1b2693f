"""Reading S3 listings: the fast parser yields the same objects as botocore."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.servers import BUCKET, S3Server
from workspaces.conditions import ANY
from workspaces.ids import new_id
from workspaces.storage.s3.blobs import S3Blobs
from workspaces.storage.s3.listing import ListedObject, objects_of, read_contents

ONE = (
    b"<Contents><Key>a%20b</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    b"<ETag>&quot;x&quot;</ETag><Size>3</Size></Contents>"
)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
READ = ListedObject("a%20b", 3, '"x"', AT)
HEAD = b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3/"><IsTruncated>false</IsTruncated>'
TAIL = b"<EncodingType>url</EncodingType></ListBucketResult>"


def handed(body: bytes, status: int = 200) -> tuple[bytes, Any]:
    response: dict[str, Any] = {"status_code": status, "body": body}
    read: dict[str, Any] = {}
    read_contents(response, read)
    found = read.get("Contents")
    return response["body"], None if found is None else list(found.listed)


def test_the_s3_listing_parser_takes_the_objects_and_leaves_the_rest() -> None:
    assert handed(HEAD + ONE + ONE + TAIL) == (
        HEAD + TAIL,
        [READ] * 2,
    )


OWNED = ONE.replace(b"<Size>", b"<Owner><ID>a</ID></Owner><Size>")


@pytest.mark.parametrize(
    "objects",
    [
        [ONE, OWNED, ONE],
        [OWNED, ONE],
        [ONE, ONE.replace(b"</Contents>", b"<Owner><ID/></Owner></Contents>")],
        [ONE, b"\n" + ONE],
        [ONE.replace(b"<ETag>", b"<Note><![CDATA[<Key>no</Key>]]></Note><ETag>"), ONE],
        [ONE, ONE.replace(b"a%20b", b"a%20b<!-- c -->")],
    ],
)
def test_the_s3_listing_parser_reads_objects_with_differing_fields(objects: list[bytes]) -> None:
    _, read = handed(HEAD + b"".join(objects) + TAIL)
    assert read == [READ] * len(objects)


@pytest.mark.parametrize("key", [b"a&amp;b", b"a&#38;b"])
def test_the_s3_listing_parser_unescapes_names(key: bytes) -> None:
    _, read = handed(HEAD + ONE + ONE.replace(b"a%20b", key) + TAIL)
    assert [one.key for one in read] == ["a%20b", "a&b"]


def test_an_s3_object_listed_without_an_etag_has_no_token() -> None:
    bare = ONE.replace(b"<ETag>&quot;x&quot;</ETag>", b"")
    _, read = handed(HEAD + ONE + bare + TAIL)
    assert [one.tag for one in read] == ['"x"', None]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>not a listing",
        HEAD + TAIL,
        HEAD + ONE[:-1],
        HEAD + b"</Contents>" + ONE[:-20] + TAIL,
        HEAD + ONE[:-20] + TAIL.replace(b"</", b"</Contents></", 1),
        HEAD + ONE + b"<Name>between</Name>" + ONE + TAIL,
        HEAD + ONE.replace(b">3<", b">three<") + TAIL,
        HEAD + ONE.replace(b"2026", b"then") + TAIL,
    ],
)
def test_the_s3_listing_parser_leaves_bodies_that_are_not_listings(body: bytes) -> None:
    assert handed(body) == (body, None)


def test_the_s3_listing_parser_leaves_error_answers() -> None:
    assert handed(HEAD + ONE + TAIL, status=503) == (HEAD + ONE + TAIL, None)


def test_objects_parsed_by_botocore_convert_to_the_same_listed_objects() -> None:
    read: list[dict[str, Any]] = [{"Key": "a%20b", "Size": 3, "ETag": '"x"', "LastModified": AT}]
    assert objects_of([*read, {"Key": "b", "Size": 0}]) == (
        READ,
        ListedObject("b", 0, None, None),
    )


@pytest.mark.parametrize("name", ["seaweedfs", "moto_s3"])
def test_the_s3_listing_parser_agrees_with_botocore(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: S3Server = request.getfixturevalue(name)
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    prefix = new_id("test")
    store = S3Blobs(BUCKET, prefix, page_keys=2)
    names = ["a b.md", "notes/ä & <ö>.md".replace("<", "(").replace(">", ")"), "x+y=1.md", "z.md"]
    for one in names:
        store.write(one, one.encode(), expect=ANY)
    client = server.client()
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["Contents"]
    client.close()
    told = sorted(
        (
            o["Key"].removeprefix(f"{prefix}/"),
            o["Size"],
            o["ETag"].strip('"'),
            o["LastModified"].timestamp(),
        )
        for o in found
    )
    walked = [
        (stat.name, stat.size, (stat.token or "").strip('"'), stat.modified)
        for stat in store.walk()
    ]
    assert walked == told
    assert [stat.name for stat in store.scan()] == sorted(names)
    store.close()
