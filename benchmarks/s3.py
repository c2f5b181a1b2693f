"""What the port costs over the bare clients, on a real S3 server on this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store

from benchmarks.ratio import compare, report
from tests.servers import BUCKET, S3Server, seaweedfs_in
from workspaces.conditions import ABSENT, ANY
from workspaces.storage.s3.blobs import S3Blobs

FILES = 2000
FILE = b"A line of a memory, as long as lines are.\n" * 100
THREADS = 32
LOOPS = (8, 16, 32)
IN_FLIGHT = 64
ROUNDS = 7


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, seaweedfs_in(Path(directory)) as server:
        os.environ.update(server.environment())
        store = S3Blobs(BUCKET, "ours")
        bare, boto = _obstore(server), server.client()
        _one_object(store, bare, boto)
        _many_objects(store, bare, boto)
        store.close()
        boto.close()


def _one_object(store: S3Blobs, bare: S3Store, boto: Any) -> None:
    numbers = count()
    tokens: dict[str, Any] = {
        "ours": store.write("one.md", FILE, expect=ANY),
        "bare": obstore.put(bare, "bare/one.md", FILE)["e_tag"],
        "boto": boto.put_object(Bucket=BUCKET, Key="boto/one.md", Body=FILE)["ETag"],
    }

    def data() -> bytes:
        return FILE + b"%d" % next(numbers)

    def ours() -> None:
        tokens["ours"] = store.write("one.md", data(), expect=tokens["ours"])

    def peer() -> None:
        mode: Any = {"e_tag": tokens["bare"]}
        answer = obstore.put(bare, "bare/one.md", data(), mode=mode, use_multipart=False)
        tokens["bare"] = answer["e_tag"]

    def other() -> None:
        tokens["boto"] = boto.put_object(
            Bucket=BUCKET, Key="boto/one.md", Body=data(), IfMatch=tokens["boto"]
        )["ETag"]

    _claim("conditional PUT: port / bare obstore", ours, peer, at_most=1.2, rounds=500)
    _claim("conditional PUT: port / bare boto3", ours, other, at_most=1.2, rounds=500)
    _claim(
        "GET: port / bare obstore",
        lambda: store.read("one.md"),
        lambda: bytes(obstore.get(bare, "bare/one.md").bytes()),
        at_most=1.2,
        rounds=500,
    )


def _many_objects(store: S3Blobs, bare: S3Store, boto: Any) -> None:
    runs = count()

    def put(name: str) -> object:
        return obstore.put(bare, name, FILE, mode="create", use_multipart=False)

    def get(name: str) -> object:
        return bytes(obstore.get(bare, name).bytes())

    async def put_later(name: str) -> object:
        return await obstore.put_async(bare, name, FILE, mode="create", use_multipart=False)

    async def get_later(name: str) -> object:
        return bytes(await (await obstore.get_async(bare, name)).bytes_async())

    def fresh() -> list[str]:
        return _names(f"run-{next(runs)}")

    _all(put, _names("bare"), THREADS)
    _all(lambda name: store.write(name, FILE, expect=ABSENT), _names("files"), THREADS)
    up = _best("up", put, put_later, fresh)
    down = _best("down", get, get_later, lambda: _names("bare"))

    _claim(
        f"{FILES} files up: port / bare obstore's best loop",
        lambda: _all(lambda name: store.write(name, FILE, expect=ABSENT), fresh(), THREADS),
        up,
        at_most=1.2,
        rounds=ROUNDS,
    )
    _claim(
        f"{FILES} files down: port / bare obstore's best loop",
        lambda: _all(store.read, _names("files"), THREADS),
        down,
        at_most=1.2,
        rounds=ROUNDS,
    )

    def boto_put(name: str) -> object:
        return boto.put_object(Bucket=BUCKET, Key=name, Body=FILE, IfNoneMatch="*")

    def boto_get(name: str) -> object:
        with boto.get_object(Bucket=BUCKET, Key=name)["Body"] as body:
            return body.read()

    _claim(
        f"{FILES} files up: port / bare boto3",
        lambda: _all(lambda name: store.write(name, FILE, expect=ABSENT), fresh(), THREADS),
        lambda: _all(boto_put, fresh(), THREADS),
        at_most=1.2,
        rounds=3,
    )
    _claim(
        f"{FILES} files down: port / bare boto3",
        lambda: _all(store.read, _names("files"), THREADS),
        lambda: _all(boto_get, _names("bare"), THREADS),
        at_most=1.2,
        rounds=3,
    )
    pages = boto.get_paginator("list_objects_v2")
    _claim(
        f"scan of {FILES} files: port / bare boto3",
        lambda: list(store.scan("files/")),
        lambda: [page["Contents"] for page in pages.paginate(Bucket=BUCKET, Prefix="bare/")],
        at_most=1.5,
        rounds=ROUNDS,
    )


def _claim(
    claim: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    at_most: float,
    rounds: int,
) -> None:
    ours()
    peer()
    mine, theirs = compare(ours, peer, rounds=rounds)
    print(f"  {mine * 1000:.2f} ms against {theirs * 1000:.2f} ms")
    report(claim, mine, theirs, at_most=at_most)


def _best(
    way: str,
    one: Callable[[str], object],
    one_later: Callable[[str], Awaitable[object]],
    names: Callable[[], list[str]],
) -> Callable[[], None]:
    """The fastest of the loops that one would write with the bare client."""
    loops: dict[str, Callable[[], None]] = {
        f"{threads} threads": lambda threads=threads: _all(one, names(), threads)
        for threads in LOOPS
    }
    loops[f"asyncio, {IN_FLIGHT} in flight"] = lambda: asyncio.run(_all_later(one_later, names()))
    times = {loop: median(_timed(run) for _ in range(3)) for loop, run in loops.items()}
    shown = " · ".join(f"{loop} {seconds * 1000:.0f} ms" for loop, seconds in times.items())
    print(f"  bare obstore, {FILES} files {way}: {shown}")
    return loops[min(times, key=lambda loop: times[loop])]


def _timed(run: Callable[[], None]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


async def _all_later(one: Callable[[str], Awaitable[object]], names: Iterable[str]) -> None:
    places = asyncio.Semaphore(IN_FLIGHT)

    async def placed(name: str) -> None:
        async with places:
            await one(name)

    await asyncio.gather(*(placed(name) for name in names))


def _all(one: Callable[[str], object], names: Iterable[str], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, names):
            pass


def _names(prefix: str) -> list[str]:
    return [f"{prefix}/notes/{number:04}.md" for number in range(FILES)]


def _obstore(server: S3Server) -> S3Store:
    import boto3.session

    return S3Store(
        BUCKET,
        endpoint=server.url,
        region="us-east-1",
        credential_provider=Boto3CredentialProvider(boto3.session.Session()),
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=30)},
    )


if __name__ == "__main__":
    main()
