"""How editors save a file, system call by system call, each as seen with strace on the real one.

Every function takes the file and its new text. What is yielded between two steps is a moment in which
somebody else may look: before the first save, the editor is open and has scratch files lying around.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

Steps = Generator[None]
Editor = Callable[[Path, str], Steps]


def _write(file: Path, text: str, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
    fd = os.open(file, flags, 0o600)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)


def vim(file: Path, text: str, *, keeps_backup: bool = False) -> Steps:
    """Renames the file to its backup and writes it anew; a swap file lies there all the time."""
    swap, backup = file.with_name(f".{file.name}.swp"), file.with_name(f"{file.name}~")
    swx = file.with_name(f".{file.name}.swx")
    for name in (swap, swx):  # whether the directory tells the two apart
        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    swx.unlink()
    swap.write_bytes(b"b0VIM 9.0\0\0" * 400)
    yield
    swap.write_bytes(b"b0VIM 9.0\0\0" * 800)  # typing
    yield
    probe = file.with_name("4913")  # may a file be made here, with this owner?
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()
    file.rename(backup)
    _write(file, text)
    file.chmod(0o600)
    if not keeps_backup:
        backup.unlink()
    swap.write_bytes(b"b0VIM 9.0\0\0" * 100)
    yield
    swap.unlink()


def vim_with_backups(file: Path, text: str) -> Steps:
    """`:set backup`"""
    return vim(file, text, keeps_backup=True)


def emacs(file: Path, text: str) -> Steps:
    """A lock that is a link to nowhere, an autosave, a backup that stays."""
    lock, unsaved = file.with_name(f".#{file.name}"), file.with_name(f"#{file.name}#")
    lock.symlink_to("ann@laptop.4711:1795000000")
    yield
    _write(unsaved, text)
    yield
    file.rename(file.with_name(f"{file.name}~"))
    _write(file, text)
    lock.unlink()
    unsaved.unlink()
    yield


def vs_code(file: Path, text: str) -> Steps:
    """In place: truncated, then written."""
    yield
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    os.ftruncate(fd, 0)
    os.write(fd, text.encode())
    os.fdatasync(fd)
    os.close(fd)
    yield


def gnome(file: Path, text: str) -> Steps:
    """A temporary file, renamed over the other."""
    yield
    temporary = file.with_name(".goutputstream-X5KQ42")
    _write(temporary, text, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    temporary.rename(file)
    yield


def jetbrains(file: Path, text: str) -> Steps:
    """Two renames, with a moment without any file in between."""
    yield
    temporary = file.with_name(f"{file.name}___jb_tmp___")
    old = file.with_name(f"{file.name}___jb_old___")
    _write(temporary, text)
    file.rename(old)
    temporary.rename(file)
    old.unlink()
    yield


def nano(file: Path, text: str) -> Steps:
    """In place, with a lock named like a swap file and a backup that is copied."""
    lock = file.with_name(f".{file.name}.swp")
    _write(lock, "b0nano 7.2")
    yield
    _write(file.with_name(f"{file.name}~"), file.read_text())
    _write(file, text)
    lock.unlink()
    yield


EDITORS: tuple[Editor, ...] = (vim, vim_with_backups, emacs, vs_code, gnome, jetbrains, nano)
