"""Blobs in S3: the conformance tests on two servers, wrong settings, and requests on a faulty network."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.blob_store import BlobStoreConformance
from tests.faulty_proxy import (
    WAIT_S_MAX,
    Answered,
    Carried,
    Fault,
    FaultyProxy,
    Late,
    Lost,
    Reset,
    Truncated,
    faulty_proxy,
)
from tests.servers import BUCKET, READER, Keys, S3Server
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, OverLimit, Refused, Unavailable
from workspaces.storage.blobs import Token
from workspaces.storage.s3.blobs import S3Blobs, Timeouts

Opened = Callable[..., S3Blobs]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    def use(environment: dict[str, str]) -> None:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return use


@pytest.fixture
def opened() -> Iterator[Opened]:
    """S3Blobs below a prefix of its own, closed in the end."""
    with ExitStack() as stack:

        def opened(bucket: str = BUCKET, prefix: str | None = None, **options: object) -> S3Blobs:
            prefix = prefix or f"test-{secrets.token_hex(6)}"
            store = S3Blobs(bucket, prefix, sleep=lambda _: None, **options)  # pyright: ignore
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def seaweed(seaweedfs: S3Server, use: Callable[[dict[str, str]], None]) -> S3Server:
    use(seaweedfs.environment())
    return seaweedfs


@pytest.fixture
def store(seaweed: S3Server, opened: Opened) -> S3Blobs:
    return opened()


class TestS3BlobsOnSeaweedfs(BlobStoreConformance):
    @pytest.fixture
    def store(self, seaweed: S3Server, opened: Opened) -> S3Blobs:
        return opened(page_keys=3)


class TestS3BlobsOnMoto(BlobStoreConformance):
    @pytest.fixture
    def store(
        self, moto_s3: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
    ) -> S3Blobs:
        use(moto_s3.environment())
        return opened(page_keys=3)


def test_an_s3_store_without_a_prefix_uses_the_whole_bucket(seaweed: S3Server) -> None:
    client = seaweed.client()
    bucket = f"root-{secrets.token_hex(6)}"
    client.create_bucket(Bucket=bucket)
    client.close()
    store = S3Blobs(bucket)
    token = store.write("notes/a.md", b"x", expect=ABSENT)
    assert [(stat.name, stat.token) for stat in store.scan()] == [("notes/a.md", token)]
    store.delete("notes/a.md", expect=token)
    assert list(store.scan()) == []
    store.close()


def test_an_s3_object_is_named_by_its_path_and_carries_metadata(
    seaweed: S3Server, store: S3Blobs
) -> None:
    meta = {"version": "v1", "revision": "r1", "stamp": "2026-01-01T00:00:00.000001Z"}
    token = store.below("fs-1").write("notes/ä b.md", b"hello", expect=ABSENT, meta=meta)
    (stat,) = store.scan()
    assert stat.name == "fs-1/notes/ä b.md"
    client = seaweed.client()
    (prefix,) = {
        listed["Key"].split("/")[0]
        for listed in client.list_objects_v2(Bucket=BUCKET)["Contents"]
        if listed["Key"].endswith("/fs-1/notes/ä b.md")
        and store.read("fs-1/notes/ä b.md").token == listed["ETag"] == token
    }
    found = client.get_object(Bucket=BUCKET, Key=f"{prefix}/fs-1/notes/ä b.md")
    with found["Body"] as body:
        assert body.read() == b"hello"
    assert found["Metadata"] == meta
    client.close()
    assert store.read("fs-1/notes/ä b.md").meta == meta


def test_an_s3_object_with_a_bad_name_is_walked_but_never_scanned(
    moto_s3: S3Server, use: Callable[[dict[str, str]], None]
) -> None:
    use(moto_s3.environment())
    client = moto_s3.client()
    client.create_bucket(Bucket="strangers")
    for key in ("p/a//b", "p/dir/", "p/good.md", "p/.git/config", "other.md"):
        client.put_object(Bucket="strangers", Key=key, Body=b"x")
    client.close()
    store = S3Blobs("strangers", "p")
    assert [stat.name for stat in store.scan()] == ["good.md"]
    assert [stat.name for stat in store.walk()] == [".git/config", "a//b", "dir/", "good.md"]
    store.close()


def test_an_s3_scan_lists_more_objects_than_a_page_holds(seaweed: S3Server, opened: Opened) -> None:
    store = opened(page_keys=2)
    names = [f"{directory}/{index}.md" for directory in "abc" for index in range(3)]
    for name in names:
        store.write(name, b"x", expect=ABSENT)
    assert [stat.name for stat in store.scan()] == names


def test_an_s3_name_too_long_below_the_prefix_is_refused(store: S3Blobs) -> None:
    name = "/".join([*["x" * 200] * 5, "y" * 15])
    with pytest.raises(Refused, match="longer than 1024 bytes"):
        store.write(name, b"x", expect=ANY)


def test_an_oversized_blob_is_neither_sent_to_nor_fetched_from_s3(
    seaweed: S3Server, opened: Opened
) -> None:
    store = opened(bytes_max=10)
    with pytest.raises(OverLimit):
        store.write("a.md", b"x" * 11, expect=ANY)
    opened(prefix="shared", bytes_max=100).write("a.md", b"x" * 11, expect=ANY)
    with pytest.raises(OverLimit):
        opened(prefix="shared", bytes_max=10).read("a.md")


def test_deleting_an_s3_object_that_is_expected_absent_is_a_conflict(store: S3Blobs) -> None:
    store.delete("a.md", expect=ABSENT)
    store.write("a.md", b"x", expect=ABSENT)
    with pytest.raises(Conflict):
        store.delete("a.md", expect=ABSENT)


def test_importing_locations_imports_no_s3_client() -> None:
    program = (
        "import sys, workspaces.home.locations\n"
        "assert not {'boto3', 'botocore', 'obstore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- what is wrong with the way there: one sentence each ----


def test_a_wrong_access_key_and_a_wrong_secret_key_have_different_reasons(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    use(seaweed.environment(keys=Keys("nobody", "x" * 20)))
    assert _reason(lambda: opened().read("a.md")) == "the server does not know the access key"
    use(seaweed.environment(keys=Keys(seaweed.keys.access, "wrong")))
    assert _reason(lambda: opened().read("a.md")) == "the secret key does not match the access key"


def test_a_read_only_s3_key_can_read_and_its_writes_name_the_missing_permission(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    opened(prefix="read").write("a.md", b"x", expect=ANY)
    use(seaweed.environment(keys=READER))
    reader = opened(prefix="read")
    assert reader.read("a.md").data == b"x"
    for change in (
        lambda: reader.write("b.md", b"x", expect=ABSENT),
        lambda: reader.write("b.md", b"x", expect=ANY),
        lambda: reader.delete("a.md", expect=ANY),
    ):
        assert _reason(change) == "these credentials lack a permission"


@pytest.mark.parametrize("server", ["seaweedfs", "moto_s3"])
def test_a_missing_bucket_is_not_reported_as_a_missing_file(
    server: str,
    request: pytest.FixtureRequest,
    use: Callable[[dict[str, str]], None],
    opened: Opened,
) -> None:
    use(request.getfixturevalue(server).environment())
    for call in (
        lambda store: store.read("a.md"),
        lambda store: store.write("a.md", b"x", expect=ABSENT),
        lambda store: store.delete("a.md", expect=ANY),
        lambda store: list(store.scan()),
    ):
        missing = opened("no-such-bucket")
        assert _reason(lambda call=call, missing=missing: call(missing)) == (
            "the bucket does not exist"
        )


@pytest.mark.parametrize("server", ["seaweedfs", "moto_s3"])
def test_a_deleted_bucket_is_not_reported_as_missing_files(
    server: str,
    request: pytest.FixtureRequest,
    use: Callable[[dict[str, str]], None],
    opened: Opened,
) -> None:
    running: S3Server = request.getfixturevalue(server)
    use(running.environment())
    client = running.client()
    bucket = f"gone-{secrets.token_hex(6)}"
    client.create_bucket(Bucket=bucket)
    store = opened(bucket)
    token = store.write("a.md", b"x", expect=ABSENT)
    store.delete("a.md", expect=token)
    client.delete_bucket(Bucket=bucket)
    client.close()
    calls: list[Callable[[], object]] = [
        lambda: store.read("a.md"),
        lambda: store.delete("a.md", expect=ANY),
        lambda: store.delete("a.md", expect=token),
        lambda: list(store.scan()),
    ]
    if server == "moto_s3":  # seaweedfs makes a bucket for an admin who writes to it
        calls.append(lambda: store.write("a.md", b"x", expect=token))
    for call in calls:
        assert _reason(call) == "the bucket does not exist"


def test_a_wrong_clock_is_named_as_the_reason_s3_refuses(
    seaweed: S3Server, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore import auth

    now = auth.get_current_datetime
    monkeypatch.setattr(auth, "get_current_datetime", lambda *a, **k: now(*a, **k) - timedelta(1))
    assert _reason(lambda: opened().read("a.md")) == (
        "the clock of this machine is too far from the server's"
    )


def test_an_unreachable_s3_endpoint_is_named(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    use(seaweed.environment(url="http://127.0.0.1:9"))
    assert _reason(lambda: opened().read("a.md")) == "127.0.0.1:9 is unreachable"


def test_a_stopped_s3_server_is_named(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    with faulty_proxy(seaweed.url) as proxy:
        use(seaweed.environment(url=proxy.url))
        store = opened()
        assert list(store.scan()) == []
    for call in (lambda: store.read("a.md"), lambda: list(store.scan())):
        reason = _reason(call)
        assert reason.startswith("127.0.0.1:") and reason.endswith("is unreachable")


def test_missing_s3_credentials_and_profiles_are_named(
    seaweed: S3Server,
    use: Callable[[dict[str, str]], None],
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert _reason(lambda: opened().read("a.md")) == "no credentials were found"
    use({"AWS_PROFILE": "nobody"})
    assert "profile" in _reason(lambda: opened().read("a.md"))


def test_s3_credentials_that_cannot_be_renewed_are_named(
    seaweed: S3Server,
    use: Callable[[dict[str, str]], None],
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Given out once for five minutes, which boto3 takes for the moment to renew them; then never again."""
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    words = {
        "Version": 1,
        "AccessKeyId": seaweed.keys.access,
        "SecretAccessKey": seaweed.keys.secret,
        "Expiration": soon,
    }
    (tmp_path / "given").write_text(json.dumps(words))
    program = tmp_path / "give"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/given && rm {tmp_path}/given\n")
    program.chmod(0o700)
    (tmp_path / "config").write_text(f"[profile asking]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    use({"AWS_PROFILE": "asking", "AWS_CONFIG_FILE": str(tmp_path / "config")})
    expired = "the credentials have expired or cannot be obtained"
    store = opened()
    assert _reason(lambda: store.read("a.md")) == expired
    assert _reason(lambda: store.write("a.md", b"x", expect=ANY)) == expired
    assert _reason(lambda: list(store.scan())) == expired


def test_an_s3_endpoint_that_is_not_a_url_is_named(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    use(seaweed.environment(url="localhost"))
    assert "the name of the bucket, the region or the endpoint is invalid" in _reason(
        lambda: opened().read("a.md")
    )


# ---- a bad wire ----


@pytest.fixture
def proxy(seaweed: S3Server, use: Callable[[dict[str, str]], None]) -> Iterator[FaultyProxy]:
    with faulty_proxy(seaweed.url) as proxy:
        use(seaweed.environment(url=proxy.url))
        yield proxy


@pytest.fixture
def prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def far(proxy: FaultyProxy, opened: Opened, prefix: str) -> S3Blobs:
    """Beyond the proxy, connected."""
    store = opened(prefix=prefix)
    assert list(store.scan()) == []
    return store


@pytest.fixture
def impatient(far: S3Blobs, proxy: FaultyProxy, opened: Opened, prefix: str) -> S3Blobs:
    """The same objects, for those who do not wait long; connected, which on a busy machine takes longer."""
    store = opened(prefix=prefix, timeouts=Timeouts(connect_s=60, answer_s=0.5, transfer_s=0.5))

    def is_connected() -> bool:
        with suppress(Unavailable):
            return list(store.scan()) == []
        return False

    until(is_connected)
    until(lambda: proxy.under_way == 0)
    return store


def test_a_forbidden_bucket_check_falls_back_to_a_listing(
    proxy: FaultyProxy, opened: Opened, prefix: str
) -> None:
    opened(prefix=prefix).write("a b.md", b"x", expect=ABSENT)
    proxy.next_faults = [Answered("403 Forbidden", body=b"")]
    again = opened(prefix=prefix)
    assert [stat.name for stat in again.scan()] == ["a b.md"]
    assert proxy.next_faults == []


BUSY = Answered("503 Service Unavailable", "SlowDown")
BROKEN = Answered("500 Internal Server Error", "InternalError")
PORTAL = Answered("200 OK", body=b"<html>Please sign in</html>")
PASSING: dict[str, Fault] = {
    "reset": Reset(),
    "lost": Lost(),
    "truncated": Truncated(),
    "busy": BUSY,
    "broken": BROKEN,
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_unconditional_s3_calls_are_repeated_after_a_single_fault(
    far: S3Blobs, proxy: FaultyProxy, fault: Fault
) -> None:
    data = b"0123456789" * 10_000
    proxy.next_faults = [fault]
    far.write("a.md", data, expect=ANY)
    proxy.next_faults = [fault]
    assert far.read("a.md").data == data
    proxy.next_faults = [fault]
    assert [stat.name for stat in far.scan()] == ["a.md"]
    proxy.next_faults = [fault]
    far.delete("a.md", expect=ANY)
    assert list(far.scan()) == []


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_lasting_s3_fault_is_unavailable_after_three_tries(
    far: S3Blobs, proxy: FaultyProxy, fault: Fault
) -> None:
    far.write("a.md", b"0123456789" * 10, expect=ANY)
    for call in (lambda: far.read("a.md"), lambda: list(far.scan())):
        before = proxy.asked
        proxy.next_faults = [fault] * 10
        with pytest.raises(Unavailable):
            call()
        assert proxy.asked - before == 3
    proxy.next_faults = []
    assert far.read("a.md").data == b"0123456789" * 10


def test_a_conditional_write_is_repeated_if_the_s3_server_is_busy(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    proxy.next_faults = [BUSY, BUSY]
    token = far.write("a.md", b"1", expect=ABSENT)
    proxy.next_faults = [BUSY]
    far.write("a.md", b"2", expect=token)
    assert far.read("a.md").data == b"2"


@pytest.mark.parametrize("fault", [Reset(), BROKEN], ids=["reset", "broken"])
def test_a_conditional_s3_write_that_never_arrived_is_not_repeated(
    far: S3Blobs, proxy: FaultyProxy, fault: Fault
) -> None:
    token = far.write("a.md", b"1", expect=ABSENT)
    asked = proxy.asked
    proxy.next_faults = [fault]
    with pytest.raises(Unavailable):
        far.write("a.md", b"2", expect=token)
    assert proxy.asked - asked == 1
    assert far.read("a.md").data == b"1"
    far.write("a.md", b"2", expect=token)


@pytest.mark.parametrize("fault", [Lost(), Late()], ids=["lost", "late"])
def test_a_repeated_conditional_s3_write_conflicts_with_its_own_lost_effect(
    far: S3Blobs, impatient: S3Blobs, proxy: FaultyProxy, fault: Fault
) -> None:
    first = far.write("a.md", b"1", expect=ABSENT)
    proxy.carried.clear()
    proxy.next_faults = [fault]
    with pytest.raises(Unavailable):
        impatient.write("a.md", b"2", expect=first)
    until(lambda: proxy.carried == ["PUT"])
    with pytest.raises(Conflict) as caught:
        far.write("a.md", b"2", expect=first)
    there = far.read("a.md")
    assert (there.data, there.token) == (b"2", caught.value.actual)


def test_a_repeated_creation_in_s3_conflicts_with_its_own_lost_effect(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    proxy.next_faults = [Lost()]
    with pytest.raises(Unavailable):
        far.write("a.md", b"1", expect=ABSENT)
    with pytest.raises(Conflict) as caught:
        far.write("a.md", b"1", expect=ABSENT)
    assert far.read("a.md").token == caught.value.actual


def test_a_repeated_conditional_s3_delete_finds_no_object_after_its_lost_effect(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    token = far.write("a.md", b"1", expect=ABSENT)
    proxy.carried.clear()
    proxy.next_faults = [Lost()]
    with pytest.raises(Unavailable):
        far.delete("a.md", expect=token)
    assert proxy.carried == ["DELETE"]
    with pytest.raises(Conflict) as caught:
        far.delete("a.md", expect=token)
    assert caught.value.actual is None


def test_an_s3_conflict_is_reported_even_if_the_actual_token_cannot_be_read(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    far.write("a.md", b"1", expect=ABSENT)
    proxy.next_faults = [Carried(), *[Reset()] * 10]
    with pytest.raises(Conflict) as caught:
        far.write("a.md", b"2", expect=Token('"stale"'))
    assert caught.value.actual == "something else"


def test_a_concurrent_s3_write_is_a_conflict(far: S3Blobs, proxy: FaultyProxy) -> None:
    token = far.write("a.md", b"1", expect=ABSENT)
    for call in (
        lambda: far.write("a.md", b"2", expect=token),
        lambda: far.write("a.md", b"2", expect=ABSENT),
        lambda: far.delete("a.md", expect=token),
    ):
        proxy.next_faults = [Answered("409 Conflict", "ConditionalRequestConflict")]
        with pytest.raises(Conflict) as caught:
            call()
        assert caught.value.actual == token


def test_an_s3_request_without_answer_times_out_and_is_not_repeated(
    impatient: S3Blobs, proxy: FaultyProxy
) -> None:
    late = Late()
    before = proxy.asked
    for call in (
        lambda: impatient.read("a.md"),
        lambda: impatient.write("a.md", b"x", expect=ANY),
        lambda: impatient.write("a.md", b"x" * 300_000, expect=ANY),
        lambda: impatient.delete("a.md", expect=ANY),
        lambda: list(impatient.scan()),
    ):
        asked = proxy.asked
        proxy.next_faults = [late]
        assert _reason(call).endswith("did not answer in time")
        until(partial(met, proxy, asked + 1))  # which may be later, where the wire is slow
        assert proxy.asked - asked == 1
    late.released.set()
    assert proxy.asked - before == 5


def test_a_network_sign_in_page_is_not_treated_as_an_s3_answer(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    for call in (
        lambda: far.read("a.md"),
        lambda: far.write("a.md", b"x", expect=ABSENT),
        lambda: far.write("a.md", b"x", expect=ANY),
        lambda: far.delete("a.md", expect=ABSENT),
        lambda: far.delete("a.md", expect=ANY),
        lambda: far.delete("a.md", expect=Token('"1"')),
        lambda: list(far.scan()),
    ):
        proxy.next_faults = [PORTAL] * 10
        with pytest.raises(Unavailable):
            call()


def test_a_404_from_a_network_proxy_is_not_reported_as_a_missing_file(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    """It is checked with the bucket: if that answers, the file is really missing there."""
    stranger = Answered("404 Not Found", body=b"<html>no such page</html>")
    proxy.next_faults = [stranger] * 10
    assert "is not an S3 server" in _reason(lambda: far.read("a.md"))
    proxy.next_faults = [stranger]
    with pytest.raises(NotFound):
        far.read("a.md")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (("403 Forbidden", "RequestTimeTooSkewed"), "the clock of this machine"),
        (("400 Bad Request", "ExpiredToken"), "the credentials have expired"),
        (("301 Moved Permanently", "PermanentRedirect"), "the bucket is in another region"),
        (("401 Unauthorized", ""), "these credentials lack a permission"),
        (("403 Forbidden", "AccessDenied"), "these credentials lack a permission"),
        (("403 Forbidden", "SomethingNew"), "these credentials lack a permission"),
        (("404 Not Found", "NoSuchBucket"), "the bucket does not exist"),
        (
            ("501 Not Implemented", "NotImplemented"),
            "the server does not support conditional requests",
        ),
        (("507 Insufficient Storage", ""), "the server's disk is full"),
        (("418 Whatever", "Teapot"), "it answers with an error (Teapot)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_an_s3_refusal_has_the_same_reason_through_both_clients(
    far: S3Blobs, proxy: FaultyProxy, answer: tuple[str, str], reason: str
) -> None:
    for call in (
        lambda: far.read("a.md"),
        lambda: far.write("a.md", b"x", expect=Token('"1"')),
        lambda: far.write("a.md", b"x", expect=ABSENT),
        lambda: far.write("a.md", b"x", expect=ANY),
        lambda: far.delete("a.md", expect=Token('"1"')),
        lambda: list(far.scan()),
    ):
        proxy.next_faults = [Answered(*answer)] * 10
        assert _reason(call).startswith(reason)


def test_endless_s3_redirects_are_not_followed(far: S3Blobs, proxy: FaultyProxy) -> None:
    """A network that wants to be signed in to first, or an endpoint that has moved."""
    for call in (
        lambda: list(far.scan()),
        lambda: far.delete("a.md", expect=ANY),
        lambda: far.write("a.md", b"x", expect=ANY),
    ):
        asked = proxy.asked
        proxy.next_faults = [Answered("302 Found", headers=("Location: http://127.0.0.1:9/",))] * 99
        assert "is not an S3 server" in _reason(call)
        assert proxy.asked - asked < 5


def met(proxy: FaultyProxy, asked: int) -> bool:
    return proxy.asked >= asked


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _reason(call: Callable[[], object]) -> str:
    """One sentence without a dump, and a remedy."""
    with pytest.raises(Unavailable) as caught:
        call()
    assert str(caught.value).startswith("S3 bucket ")
    assert caught.value.remedy
    assert len(str(caught.value)) < 150
    assert "://" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.reason
