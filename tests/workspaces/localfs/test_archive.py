from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.localfs.archive import Archive, pack, top_of, unpack
from workspaces.paths import WorkspacePath
from workspaces.workspace_record import Quota

QUOTA = Quota(bytes=100_000, files=20, file_bytes=10_000)
AT = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
FILES = {"MEMORY.md": b"# Memory\n", "notes/a.md": b"a\n", "notes/deep/b.md": b"b\n"}


def unpacked(source: Path) -> Archive:
    return unpack(source, QUOTA)


def zipped(place: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return place


def tarred(place: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(place, "w:gz" if place.suffix == ".gz" else "w") as archive:
        for info, data in entries:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return place


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def reasons(parcel: Archive) -> dict[str, str]:
    return {left.name: left.reason for left in parcel.left}


@pytest.mark.parametrize("ending", [".zip", ".tar", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("wrapping", ["", "vault/", "./"])
def test_packed_files_are_unpacked_unchanged(ending: str, wrapping: str, tmp_path: Path) -> None:
    if wrapping == "./" and ending == ".zip":
        wrapping = ".\\"
    out = io.BytesIO()
    files = [(WorkspacePath(path), data) for path, data in FILES.items()]
    pack(files, out, ending=ending, at=AT)
    again = io.BytesIO()
    pack(files, again, ending=ending, at=AT)
    assert out.getvalue() == again.getvalue()
    place = tmp_path / f"parcel{ending}"
    if not wrapping:
        place.write_bytes(out.getvalue())
    elif ending == ".zip":
        zipped(place, *((f"{wrapping}{path}", data) for path, data in FILES.items()))
    else:
        tarred(place, *((member(f"{wrapping}{path}"), data) for path, data in FILES.items()))
    parcel = unpacked(place)
    assert parcel.files == FILES
    assert parcel.left == []
    assert top_of(place) == {"MEMORY.md", "notes"}


def test_unpacking_a_directory_takes_its_files_and_no_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "notes").mkdir(parents=True)
    (source / "notes/a.md").write_text("a")
    (tmp_path / "secret").write_text("secret")
    (source / "link.md").symlink_to(tmp_path / "secret")
    (source / "up").symlink_to(tmp_path, target_is_directory=True)
    os.link(tmp_path / "secret", source / "hard.md")
    os.mkfifo(source / "pipe")
    (source / "large.bin").write_bytes(b"x" * 10_001)
    parcel = unpacked(source)
    assert parcel.files == {"notes/a.md": b"a"}
    told = reasons(parcel)
    assert told["link.md"] == told["up"] == "is a link"
    assert "second hard link" in told["hard.md"]
    assert told["pipe"] == "is not a regular file"
    assert told["large.bin"] == "has 10,001 bytes; the limit for a file is 10,000"


def test_a_file_name_that_is_not_utf8_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"na\xffme.md")).write_text("x")
    assert unpacked(tmp_path).files == {"na\udcffme.md": b"x"}


def test_an_excluded_directory_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("x")
    (tmp_path / "a.md").write_text("a")
    parcel = unpack(tmp_path, QUOTA, enter=lambda name: name != ".git")
    assert (set(parcel.files), reasons(parcel)) == ({"a.md"}, {".git/": "was not searched"})


def test_links_and_devices_in_a_tar_are_left_out(tmp_path: Path) -> None:
    parcel = unpacked(
        tarred(
            tmp_path / "a.tar.gz",
            (member("a.md"), b"a"),
            (member("link.md", tarfile.SYMTYPE, "/etc/passwd"), b""),
            (member("hard.md", tarfile.LNKTYPE, "a.md"), b""),
            (member("null", tarfile.CHRTYPE), b""),
            (member("pipe", tarfile.FIFOTYPE), b""),
            (member("a.md"), b"another"),
        )
    )
    assert parcel.files == {"a.md": b"a"}
    assert [left.reason for left in parcel.left] == [
        "is a link",
        "is a link",
        "is not a regular file",
        "is not a regular file",
        "is in the archive twice; the first one was taken",
    ]


def test_links_and_encrypted_files_in_a_zip_are_left_out(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.md")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    place = zipped(tmp_path / "a.zip", ("a.md", b"a"), (link, b"/etc/passwd"), ("locked.md", b"x"))
    data = bytearray(place.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1  # the flag of the last entry in the table of contents: encrypted
    place.write_bytes(data)
    parcel = unpacked(place)
    assert parcel.files == {"a.md": b"a"}
    assert reasons(parcel) == {"link.md": "is a link", "locked.md": "is encrypted"}


def test_archive_names_from_windows_and_mac_are_decoded(tmp_path: Path) -> None:
    place = zipped(tmp_path / "a.zip", ("notes\\a.md", b"a"), ("b.md", b"b"))
    name = "ümlaut.md".encode()
    mac = zipped(tmp_path / "mac.zip", ("x" * len(name), b"u"))
    mac.write_bytes(mac.read_bytes().replace(b"x" * len(name), name))
    assert set(unpacked(place).files) == {"notes/a.md", "b.md"}
    assert set(unpacked(mac).files) == {"ümlaut.md"}


def test_an_archive_bomb_is_stopped_at_the_quota(tmp_path: Path) -> None:
    zeros = bytes(QUOTA.file_bytes)
    many = zipped(tmp_path / "many.zip", *((f"{n}.md", zeros) for n in range(11)))
    with pytest.raises(OverLimit, match="size"):
        unpacked(many)
    files = zipped(tmp_path / "files.zip", *((f"{n}.md", b"") for n in range(21)))
    with pytest.raises(OverLimit, match="files"):
        unpacked(files)
    large = tarred(tmp_path / "large.tar.gz", (member("a.md"), bytes(QUOTA.bytes * 5)))
    assert large.stat().st_size < 10_000
    with pytest.raises(OverLimit, match="unpacked size"):
        unpacked(large)


def test_a_zip_entry_larger_than_declared_is_left_out(tmp_path: Path) -> None:
    """Entries that unpack to more than they say, and all of them to the same compressed bytes."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packed.compress(bytes(1_000_000)) + packed.flush()
    liar = zipfile.ZipInfo("liar.md")
    place = zipped(tmp_path / "liar.zip", (liar, b""))
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, 0, len(body), 10, 1, 0) + b"a"
    central = b"".join(
        struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, 0, len(body), 10, 1, 0, 0, 0, 0, 0, 0
        )
        + b"a"
        for _ in range(3)
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, len(central), len(local + body), 0)
    place.write_bytes(local + body + central + end)
    parcel = unpacked(place)
    assert parcel.files == {}
    assert {left.name for left in parcel.left} == {"a"}


def test_a_zip_with_an_oversized_table_of_contents_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2**31, 0, 0)
    place.write_bytes(b"PK\3\4" + bytes(100) + end)
    with pytest.raises(OverLimit, match="table of contents"):
        unpacked(place)
    place.write_bytes(b"PK\3\4" + bytes(100) + b"PK\6\7" + bytes(16) + end)
    with pytest.raises(Refused, match="ZIP64"):
        unpacked(place)


@pytest.mark.parametrize("cut", [30, 100, -1])
def test_a_damaged_archive_is_refused_as_damaged(cut: int, tmp_path: Path) -> None:
    whole = zipped(tmp_path / "a.zip", *((f"{n}.md", os.urandom(200)) for n in range(3)))
    data = whole.read_bytes()
    whole.write_bytes(data[:cut] if cut > 0 else b"PK\3\4" + os.urandom(500))
    with pytest.raises(Refused, match="is damaged"):
        unpacked(whole)
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(os.urandom(2000)))
    with pytest.raises(Refused, match="is damaged"):
        unpacked(packed)


def test_a_damaged_file_in_a_zip_is_left_out_and_the_rest_is_unpacked(tmp_path: Path) -> None:
    place = zipped(tmp_path / "a.zip", ("a.md", b"a" * 500), ("b.md", b"b" * 500))
    data = place.read_bytes()
    at = data.index(b"b.md") + 4
    place.write_bytes(data[:at] + b"\xff\xff" + data[at + 2 :])
    parcel = unpacked(place)
    assert set(parcel.files) == {"a.md"}
    assert "is damaged" in reasons(parcel)["b.md"]


def test_a_missing_or_unsupported_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        unpacked(tmp_path / "nothing")
    (tmp_path / "a.tar.xz").write_bytes(b"\xfd7zXZ\x00" + bytes(20))
    with pytest.raises(Refused, match="xz"):
        unpacked(tmp_path / "a.tar.xz")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="neither"):
        unpacked(tmp_path / "pipe")
    (tmp_path / "CLAUDE.md").write_text("be brief")
    assert unpacked(tmp_path / "CLAUDE.md").files == {"CLAUDE.md": b"be brief"}


def test_listing_the_directories_of_a_zip_takes_linear_time(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        source = zipped(tmp_path / f"{count}.zip", *((f"d{n}/a.md", b"x") for n in range(count)))
        taken: list[float] = []
        for _ in range(3):
            begun = time.process_time()
            assert len(top_of(source)) == count
            taken.append(time.process_time() - begun)
        return min(taken)

    few, many = seconds(1000), seconds(4000)
    assert many < 9 * few  # each with each takes sixteen times as long
