"""Real S3 servers on this machine, started when the first test asks and ended by their own pid.

`seaweedfs` honours conditions and checks credentials; `moto_s3` does the first only; `rclone_s3` accepts
conditions and ignores them. Under pytest-xdist every worker has its own. Where a server is not installed
its tests are skipped, visibly; in CI (`CI=true`) that is an error.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from workspaces.ids import new_id

BUCKET = "memories"
READY_S_MAX = 120
STARTS_MAX = 3
"""A port that was free may be taken before the server opens it."""


@dataclass(frozen=True, slots=True)
class Keys:
    access: str
    secret: str


ADMIN = Keys("admin-access", "admin-secret")
READER = Keys("reader-access", "reader-secret")


@dataclass(frozen=True, slots=True)
class S3Server:
    url: str
    keys: Keys = ADMIN

    def environment(self, *, url: str | None = None, keys: Keys | None = None) -> dict[str, str]:
        """The standard variables, and no other source of settings."""
        keys = keys or self.keys
        return {
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": keys.access,
            "AWS_SECRET_ACCESS_KEY": keys.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str = "s3", *, keys: Keys | None = None) -> Any:
        """The bare client, to arrange and look at what the product does not."""
        import boto3.session

        keys = keys or self.keys
        session = boto3.session.Session(keys.access, keys.secret, region_name="us-east-1")
        return session.client(service, endpoint_url=self.url)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs_in(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def versioned(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """A client, and a bucket that keeps every version of its objects."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    client, bucket = seaweedfs.client(), new_id("v").replace("_", "-").lower()
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    yield client, bucket
    client.close()


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        _missing("moto[server]")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    server = S3Server(f"http://{host}:{port}")
    _make_bucket(server)
    yield server
    moto.stop()


@pytest.fixture(scope="session")
def rclone_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory = tmp_path_factory.mktemp("rclone")
    (directory / "served" / BUCKET).mkdir(parents=True)

    def command(ports: Callable[[], int]) -> tuple[list[str], str]:
        address = f"127.0.0.1:{ports()}"
        keys = f"{ADMIN.access},{ADMIN.secret}"
        options = [f"--addr={address}", f"--auth-key={keys}", f"--config={os.devnull}"]
        return ["serve", "s3", *options, str(directory / "served")], f"http://{address}/"

    with _running("rclone", command, directory) as url:
        yield S3Server(url.rstrip("/"))


@contextmanager
def seaweedfs_in(directory: Path) -> Iterator[S3Server]:
    """A seaweedfs that keeps all it has in `directory`."""
    identities = [
        _identity(ADMIN, ["Admin", "Read", "Write", "List", "Tagging"]),
        _identity(READER, [f"Read:{BUCKET}", f"List:{BUCKET}"]),
    ]
    (directory / "s3.json").write_text(json.dumps({"identities": identities}))

    def command(ports: Callable[[], int]) -> tuple[list[str], str]:
        port = ports()
        others = ("s3.port.grpc", "master.port", "master.port.grpc", "volume.port")
        others += ("volume.port.grpc", "filer.port", "filer.port.grpc")
        others += ("admin.port", "admin.port.grpc")
        options = [
            f"-dir={directory}",
            f"-s3.config={directory}/s3.json",
            "-s3.iam.readOnly=false",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.port={port}",
            *(f"-{other}={ports()}" for other in others),
            f"-filer.localSocket={directory}/filer.sock",
            f"-s3.localSocket={directory}/s3.sock",
        ]
        return ["mini", *options], f"http://127.0.0.1:{port}/healthz"

    with _running("weed", command, directory) as url:
        server = S3Server(url.removesuffix("/healthz"))
        _make_bucket(server)
        yield server


@contextmanager
def _running(
    program: str,
    command: Callable[[Callable[[], int]], tuple[list[str], str]],
    directory: Path,
) -> Iterator[str]:
    """Start, wait until `url` is answered, and kill in the end: what it holds is worth nothing."""
    path = executable(program)
    for start in range(1, STARTS_MAX + 1):
        arguments, url = command(free_port)
        with (directory / f"start-{start}.log").open("wb") as log:
            process = subprocess.Popen(
                [path, *arguments],
                cwd=directory,
                env={"HOME": str(directory), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            if wait_until_answered(process, url):
                yield url
                return
        finally:
            process.kill()
            process.wait(timeout=READY_S_MAX)
    raise RuntimeError(f"{program} did not start: {(directory / 'start-1.log').read_text()}")


def wait_until_answered(process: subprocess.Popen[Any], url: str) -> bool:
    end = time.monotonic() + READY_S_MAX
    while time.monotonic() < end:
        try:
            with urlopen(url, timeout=10):
                return True
        except URLError as error:
            if getattr(error, "code", None) is not None:  # it answers, if only to say no
                error.close()  # pyright: ignore[reportAttributeAccessIssue]
                return True
        except OSError:
            pass
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            return False
    return False


def free_port() -> int:
    """Below the range that outgoing connections are given, so that none of those takes it."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def executable(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or _missing(name)


def _missing(what: str) -> Any:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


def _identity(keys: Keys, actions: list[str]) -> dict[str, Any]:
    credentials = [{"accessKey": keys.access, "secretKey": keys.secret}]
    return {"name": keys.access, "credentials": credentials, "actions": actions}


def _make_bucket(server: S3Server) -> None:
    client = server.client()
    client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key="first", Body=b"")  # seaweedfs takes 0.2 s for its first
    client.close()
