"""S3: the contract of blob stores on two servers, and what becomes of a request on a bad wire."""

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


def test_a_whole_bucket_can_be_a_store(seaweed: S3Server) -> None:
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


def test_an_object_is_named_by_its_path_and_tells_where_it_came_from(
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


def test_an_object_with_a_bad_name_is_walked_but_never_scanned(
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


def test_more_objects_than_a_page_holds_are_all_listed(seaweed: S3Server, opened: Opened) -> None:
    store = opened(page_keys=2)
    names = [f"{directory}/{index}.md" for directory in "abc" for index in range(3)]
    for name in names:
        store.write(name, b"x", expect=ABSENT)
    assert [stat.name for stat in store.scan()] == names


def test_a_name_too_long_below_the_prefix_is_refused(store: S3Blobs) -> None:
    name = "/".join([*["x" * 200] * 5, "y" * 15])
    with pytest.raises(Refused, match="longer than 1024 bytes"):
        store.write(name, b"x", expect=ANY)


def test_what_is_too_large_is_neither_sent_nor_fetched(seaweed: S3Server, opened: Opened) -> None:
    store = opened(bytes_max=10)
    with pytest.raises(OverLimit):
        store.write("a.md", b"x" * 11, expect=ANY)
    opened(prefix="shared", bytes_max=100).write("a.md", b"x" * 11, expect=ANY)
    with pytest.raises(OverLimit):
        opened(prefix="shared", bytes_max=10).read("a.md")


def test_deleting_under_absent_asks_whether_there_is_nothing(store: S3Blobs) -> None:
    store.delete("a.md", expect=ABSENT)
    store.write("a.md", b"x", expect=ABSENT)
    with pytest.raises(Conflict):
        store.delete("a.md", expect=ABSENT)


def test_the_module_of_a_location_brings_no_client_along() -> None:
    program = (
        "import sys, workspaces.home.locations\n"
        "assert not {'boto3', 'botocore', 'obstore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- what is wrong with the way there: one sentence each ----


def test_wrong_credentials_are_told_apart(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    use(seaweed.environment(keys=Keys("nobody", "x" * 20)))
    assert _reason(lambda: opened().read("a.md")) == "the server does not know the access key"
    use(seaweed.environment(keys=Keys(seaweed.keys.access, "wrong")))
    assert _reason(lambda: opened().read("a.md")) == "the secret key does not match the access key"


def test_a_key_that_may_only_read_can_read_and_is_told_so_when_it_writes(
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
def test_a_missing_bucket_is_never_taken_for_a_missing_file(
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
def test_a_bucket_that_vanishes_is_never_taken_for_missing_files(
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


def test_a_clock_that_is_wrong_is_named(
    seaweed: S3Server, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore import auth

    now = auth.get_current_datetime
    monkeypatch.setattr(auth, "get_current_datetime", lambda *a, **k: now(*a, **k) - timedelta(1))
    assert _reason(lambda: opened().read("a.md")) == (
        "the clock of this machine is too far from the server's"
    )


def test_an_endpoint_where_nothing_listens_is_named(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    use(seaweed.environment(url="http://127.0.0.1:9"))
    assert _reason(lambda: opened().read("a.md")) == "127.0.0.1:9 is unreachable"


def test_a_server_that_went_away_is_named(
    seaweed: S3Server, use: Callable[[dict[str, str]], None], opened: Opened
) -> None:
    with faulty_proxy(seaweed.url) as proxy:
        use(seaweed.environment(url=proxy.url))
        store = opened()
        assert list(store.scan()) == []
    for call in (lambda: store.read("a.md"), lambda: list(store.scan())):
        reason = _reason(call)
        assert reason.startswith("127.0.0.1:") and reason.endswith("is unreachable")


def test_missing_credentials_and_profiles_are_named(
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


def test_credentials_that_cannot_be_renewed_are_named(
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


def test_an_endpoint_that_is_no_url_is_named(
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


def test_where_the_bucket_itself_may_not_be_asked_for_a_listing_says_that_it_is_there(
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
def test_one_fault_is_bridged_by_whatever_may_be_repeated(
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
def test_a_fault_that_lasts_is_unavailable_after_three_tries(
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


def test_a_busy_server_is_asked_again_even_under_a_condition(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    proxy.next_faults = [BUSY, BUSY]
    token = far.write("a.md", b"1", expect=ABSENT)
    proxy.next_faults = [BUSY]
    far.write("a.md", b"2", expect=token)
    assert far.read("a.md").data == b"2"


@pytest.mark.parametrize("fault", [Reset(), BROKEN], ids=["reset", "broken"])
def test_a_conditional_write_that_never_arrived_is_not_repeated_and_changed_nothing(
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
def test_a_conditional_write_whose_answer_was_lost_meets_its_own_effect_when_repeated(
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


def test_a_creation_whose_answer_was_lost_meets_its_own_effect_when_repeated(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    proxy.next_faults = [Lost()]
    with pytest.raises(Unavailable):
        far.write("a.md", b"1", expect=ABSENT)
    with pytest.raises(Conflict) as caught:
        far.write("a.md", b"1", expect=ABSENT)
    assert far.read("a.md").token == caught.value.actual


def test_a_conditional_delete_whose_answer_was_lost_finds_nothing_when_repeated(
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


def test_a_conflict_is_a_conflict_even_when_nobody_can_say_what_is_there(
    far: S3Blobs, proxy: FaultyProxy
) -> None:
    far.write("a.md", b"1", expect=ABSENT)
    proxy.next_faults = [Carried(), *[Reset()] * 10]
    with pytest.raises(Conflict) as caught:
        far.write("a.md", b"2", expect=Token('"stale"'))
    assert caught.value.actual == "something else"


def test_a_write_that_ran_into_another_one_is_a_conflict(far: S3Blobs, proxy: FaultyProxy) -> None:
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


def test_silence_ends_in_time_and_is_not_asked_again(
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


def test_a_sign_in_page_is_never_taken_for_a_file_or_a_success(
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


def test_a_404_of_someone_on_the_way_is_not_believed(far: S3Blobs, proxy: FaultyProxy) -> None:
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
def test_a_refusal_reads_the_same_through_either_client(
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


def test_who_is_sent_on_and_on_gives_up(far: S3Blobs, proxy: FaultyProxy) -> None:
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
